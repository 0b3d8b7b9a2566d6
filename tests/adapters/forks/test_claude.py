"""The claude backend with a stand-in for the program: what it is given, and how it is ended."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import anyio.to_thread
import processes
import pytest

from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks import program
from memoryd.adapters.forks.claude import CLOSING, ClaudeBackend
from memoryd.adapters.forks.sdk import SYSTEM
from memoryd.config import ForkSettings, Settings
from memoryd.ports import ForkFailure, ForkReply, ForkRequest, SessionRef

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

MESSAGE = "[memoryd] what to keep of @README.md?"

STAND_IN = """#!{python} -IS
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
record = {{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
with open(os.path.join(here, "plan.json")) as file:
    plan = json.load(file)
if plan["reads"]:
    record["stdin"] = sys.stdin.read()
with open(os.path.join(here, "record.json"), "w") as file:
    json.dump(record, file)
for line in plan["lines"]:
    print(json.dumps(line), flush=True)
if plan["hangs"]:
    time.sleep(600)
"""

RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": '{"ops": []}',
    "num_turns": 1,
    "usage": {},
}
NOT_LOGGED_IN = [
    {
        "type": "assistant",
        "error": "authentication_failed",
        "message": {"model": "<synthetic>", "content": []},
    },
    {**RESULT, "is_error": True, "terminal_reason": "api_error"},
]


class Stage:
    """A home with a session, a stand-in for the program and a backend."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.config_dir = self.home / ".claude"
        self.cwd = folder / "repository"
        self.bin = folder / "bin"
        for made in (self.config_dir, self.cwd, self.bin):
            made.mkdir(parents=True)
        self.program = self.bin / "claude"
        self.program.write_text(STAND_IN.format(python=sys.executable))
        self.program.chmod(0o755)
        transcript = self.config_dir / "session.jsonl"
        transcript.write_text("{}\n")
        self.session = SessionRef(str(uuid4()), transcript, self.config_dir, self.cwd)
        self.tag = processes.new_tag()
        self.env = {"HOME": str(self.home), "PATH": str(self.bin), "LANG": "C.UTF-8"}
        self.settings = Settings()
        self.backend = ClaudeBackend(self.env, lambda: self.settings, SystemClock())
        self.plan(RESULT)

    def plan(self, *lines: dict[str, Any], hangs: bool = False, reads: bool = True) -> None:
        plan = {"lines": lines, "hangs": hangs, "reads": reads}
        (self.bin / "plan.json").write_text(json.dumps(plan))

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.bin / "record.json").read_text())
        return found

    def texts(self) -> list[str]:
        """What the program was told, block by block."""
        line = json.loads(self.record()["stdin"])
        assert line["type"] == "user"
        assert line["message"]["role"] == "user"
        return [block["text"] for block in line["message"]["content"]]

    def request(self, **more: Any) -> ForkRequest:
        fields: dict[str, Any] = {"deadline": 20.0, "conversation": ("one", "two"), **more}
        session = fields.pop("session", self.session)
        return ForkRequest(uuid4().hex, session, MESSAGE, **fields)

    async def fork(self, **more: Any) -> ForkReply | ForkFailure:
        return await self.backend.fork(self.request(**more))

    async def fault(self, session: SessionRef | None = None) -> str:
        return await anyio.to_thread.run_sync(self.backend.fault, session or self.session)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(program, "USUAL_PLACES", ("~/.local/bin",))
    return Stage(tmp_path)


async def test_it_resumes_a_fork_of_the_session_where_the_session_is(stage: Stage) -> None:
    assert await stage.fork() == ForkReply('{"ops": []}', "")
    record = stage.record()
    argv = record["argv"]
    assert f"--resume={stage.session.id}" in argv
    assert {"-p", "--fork-session", "--no-session-persistence", "--strict-mcp-config"} < set(argv)
    assert not any(argument.startswith(("--model", "--effort")) for argument in argv)
    assert record["cwd"] == str(stage.cwd)


async def test_the_message_is_no_block_that_the_client_looks_for_files_in(stage: Stage) -> None:
    await stage.fork()
    assert stage.texts() == [MESSAGE, CLOSING]
    assert "@" not in CLOSING
    assert not CLOSING.startswith(("/", "#", "!"))


async def test_no_hook_runs_and_every_tool_has_to_be_asked_for(stage: Stage) -> None:
    await stage.fork()
    (settings,) = [a for a in stage.record()["argv"] if a.startswith("--settings=")]
    assert json.loads(settings.removeprefix("--settings=")) == {
        "disableAllHooks": True,
        "permissions": {"ask": ["*"]},
        "env": {},
    }
    assert "--permission-mode=dontAsk" in stage.record()["argv"]


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
async def test_it_thinks_as_hard_as_the_session(stage: Stage, effort: str) -> None:
    await stage.fork(session=replace(stage.session, effort=effort))
    assert f"--effort={effort}" in stage.record()["argv"]


async def test_an_effort_that_no_version_knows_is_left_out(stage: Stage) -> None:
    await stage.fork(session=replace(stage.session, effort="--dangerous"))
    assert not any("dangerous" in argument for argument in stage.record()["argv"])


async def test_another_model_only_where_the_config_says_so(stage: Stage) -> None:
    stage.settings = Settings(fork=ForkSettings(model="claude-haiku-5-5"))
    await stage.fork()
    assert "--model=claude-haiku-5-5" in stage.record()["argv"]


async def test_the_environment_holds_nothing_of_a_session(stage: Stage) -> None:
    stage.env |= {
        "AI_AGENT": "x",
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "x",
        "CLAUDE_EFFORT": "x",
        "CLAUDE_PID": "1",
        "MEMORYD_SOCKET": "/s",
        "SECRET_OF_THE_SHELL": "x",
        "XDG_CONFIG_HOME": "/c",
        "https_proxy": "http://127.0.0.1:2",
        "AWS_REGION": "eu-central-1",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "DISABLE_TELEMETRY": "1",
    }
    await stage.fork()
    env = stage.record()["env"]
    assert set(env) - {"LC_CTYPE"} == {
        "AWS_REGION",
        "CLAUDE_CODE_DISABLE_FILE_MENTIONS",
        "CLAUDE_CODE_DISABLE_REFUSAL_RETRY",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_STARTUP_FAILURE_RESULTS",
        "CLAUDE_CODE_USE_BEDROCK",
        "DISABLE_AUTOUPDATER",
        "DISABLE_COMPACT",
        "DISABLE_TELEMETRY",
        "HOME",
        "LANG",
        "MEMORYD_CHILD",
        "PATH",
        "XDG_CONFIG_HOME",
        "https_proxy",
    }
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "2"


async def test_proxy_and_certificates_come_from_the_config(stage: Stage) -> None:
    bundle = stage.home / "ca.pem"
    bundle.touch()
    stage.settings = Settings(https_proxy="http://127.0.0.1:2", ca_bundle="~/ca.pem")
    await stage.fork()
    env = stage.record()["env"]
    assert env["HTTPS_PROXY"] == "http://127.0.0.1:2"
    assert env["NODE_EXTRA_CA_CERTS"] == str(bundle)


@pytest.mark.parametrize(
    ("settings", "url"),
    [(Settings(), "https://api.anthropic.com"), (Settings(base_url="http://g/"), "http://g/")],
)
async def test_with_a_key_of_ours_the_base_url_is_above_every_other(
    stage: Stage, settings: Settings, url: str
) -> None:
    stage.settings = settings
    stage.env["ANTHROPIC_API_KEY"] = "sk-made-up"
    await stage.fork()
    (given,) = [a for a in stage.record()["argv"] if a.startswith("--settings=")]
    assert json.loads(given.removeprefix("--settings="))["env"] == {"ANTHROPIC_BASE_URL": url}
    assert not any("sk-made-up" in argument for argument in stage.record()["argv"])


async def test_a_config_folder_of_its_own_is_named(stage: Stage) -> None:
    await stage.fork(session=replace(stage.session, config_dir=stage.home / "work"))
    assert stage.record()["env"]["CLAUDE_CONFIG_DIR"] == str(stage.home / "work")


async def test_the_default_folder_is_named_only_where_its_state_lies_inside(stage: Stage) -> None:
    await stage.fork()
    assert "CLAUDE_CONFIG_DIR" not in stage.record()["env"]
    (stage.config_dir / ".claude.json").write_text("{}")
    await stage.fork()
    assert stage.record()["env"]["CLAUDE_CONFIG_DIR"] == str(stage.config_dir)
    (stage.home / ".claude.json").write_text("{}")
    await stage.fork()
    assert "CLAUDE_CONFIG_DIR" not in stage.record()["env"]


async def test_a_shrunk_attempt_brings_its_own_conversation(stage: Stage) -> None:
    turns = tuple(f"{number}".ljust(1000, "x") for number in range(10))
    await stage.fork(conversation=turns, shrunk=True)
    first, *middle, message, closing = stage.texts()
    assert (first, message, closing) == (SYSTEM, MESSAGE, CLOSING)
    assert middle[-1] == turns[-1]
    assert sum(map(len, middle)) <= 5000
    argv = stage.record()["argv"]
    assert "--model=claude-haiku-5-5" in argv
    assert not any(argument.startswith(("--resume", "--fork")) for argument in argv)


@pytest.mark.parametrize("gone", ["cwd", "transcript", "id"])
async def test_a_session_that_can_not_be_resumed_is_saved_all_the_same(
    stage: Stage, gone: str
) -> None:
    if gone == "cwd":
        stage.cwd.rmdir()
    if gone == "transcript":
        stage.session.transcript.unlink()
    session = replace(stage.session, id="--help") if gone == "id" else stage.session
    assert isinstance(await stage.fork(session=session), ForkReply)
    assert stage.texts()[1:3] == ["one", "two"]
    assert not any(argument.startswith("--resume") for argument in stage.record()["argv"])


@pytest.mark.parametrize("shrunk", [False, True])
async def test_without_a_conversation_nothing_runs(stage: Stage, *, shrunk: bool) -> None:
    assert await stage.fork(conversation=("", " "), shrunk=shrunk) == ForkFailure("nothing")
    assert not (stage.bin / "record.json").exists()


async def test_the_outcome_ends_a_program_that_goes_on(stage: Stage) -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 529, "retry_delay_ms": 1}
    stage.plan(retry, hangs=True)
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status) == ("transient", 529)


async def test_a_deadline_and_a_cancellation_leave_no_process(stage: Stage) -> None:
    stage.env |= {f"AWS_{processes.TAG}": stage.tag}
    stage.plan(hangs=True)
    assert await stage.fork(deadline=0.3) == ForkFailure("transient", type="timeout")
    with anyio.move_on_after(0.3):
        await stage.fork()
    assert await processes.none_alive(stage.tag, name=f"AWS_{processes.TAG}")


async def test_a_program_that_ends_without_a_word_is_transient(stage: Stage) -> None:
    stage.plan(reads=False)
    assert await stage.fork() == ForkFailure("transient", type="no_result")


async def test_without_the_program_it_says_so(stage: Stage) -> None:
    stage.program.unlink()
    words = "the `claude` program is not on the daemon's PATH nor in its usual places"
    assert await stage.fault() == words
    assert await stage.fork() == ForkFailure("rejected", type="no_program")


async def test_the_sessions_own_program_is_enough(stage: Stage) -> None:
    stage.env["PATH"] = os.defpath
    session = replace(stage.session, executable=str(stage.program))
    assert await stage.fault(session) == ""
    assert isinstance(await stage.fork(session=session), ForkReply)


async def test_a_login_that_was_refused_is_a_fault_of_its_config_folder_alone(
    stage: Stage,
) -> None:
    other = replace(stage.session, config_dir=stage.home / "work")
    stage.plan(*NOT_LOGGED_IN)
    assert await stage.fork() == ForkFailure("credentials", type="authentication_failed")
    assert await stage.fault() == (
        "the fork got an API error, authentication failed: start `claude` and log in with /login"
    )
    assert await stage.fault(other) == ""
    stage.backend.release()
    assert await stage.fault() == ""


async def test_the_status_shows_the_login_that_was_used_last(stage: Stage) -> None:
    other = replace(stage.session, config_dir=stage.home / "work")
    stage.plan(*NOT_LOGGED_IN)
    await stage.fork()
    assert "log in with /login" in await anyio.to_thread.run_sync(stage.backend.fault, None)
    stage.plan(RESULT)
    await stage.fork(session=other)
    assert await anyio.to_thread.run_sync(stage.backend.fault, None) == ""


@pytest.mark.parametrize("change", ["credentials", "account", "config"])
async def test_a_changed_login_or_config_is_tried_again(stage: Stage, change: str) -> None:
    (stage.home / ".claude.json").write_text('{"numStartups": 1}')
    stage.plan(*NOT_LOGGED_IN)
    await stage.fork()
    (stage.home / ".claude.json").write_text('{"numStartups": 2}')
    assert await stage.fault() != ""
    if change == "credentials":
        (stage.config_dir / ".credentials.json").write_text("{}")
    if change == "account":
        (stage.home / ".claude.json").write_text('{"oauthAccount": {"accountUuid": "x"}}')
    if change == "config":
        stage.settings = Settings(retention_days=1)
    assert await stage.fault() == ""


async def test_a_base_url_with_a_password_is_not_put_in_arguments(stage: Stage) -> None:
    stage.settings = Settings(base_url="https://user:pass@gateway.example.org")
    assert await stage.fault() == "base_url holds a user name or password"


def test_it_is_the_persons_subscription_without_a_key_of_ours(stage: Stage) -> None:
    assert stage.backend.on_subscription
    stage.env["ANTHROPIC_API_KEY"] = "sk-made-up"
    assert not stage.backend.on_subscription
