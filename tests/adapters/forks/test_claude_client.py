"""The claude backend with the real client, against a scripted Messages API."""

from __future__ import annotations

import json
import sys
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import anyio.to_thread
import processes
import pytest
from e2e.host import Host

from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks.claude import CLOSING, ClaudeBackend
from memoryd.config import Settings
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import (
    Answer,
    Call,
    Failure,
    Hang,
    Reply,
    Text,
    Tokens,
    ToolUse,
    text,
    tool,
)
from memoryd.ports import ForkFailure, ForkReply, ForkRequest, SessionRef
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.client]

MODEL = "claude-opus-5-5"
USAGE = Usage(input=11, cache_read=33, cache_write=22, output=44)
TOKENS = Tokens(input=11, cache_read=33, cache_write=22, output=44)
OPS = '{"ops": [], "topics": []}'
PROMPT = "the answer is bun"


class Stage:
    """A person with one finished session, and a backend beside it."""

    def __init__(self, folder: Path, api: ScriptedApi, extra: Mapping[str, str]) -> None:
        self.api = api
        self.tag = processes.new_tag()
        self.host = Host.make(folder, api.url, extra=extra)
        self.session = self._session()
        self.asked_before = len(api.messages)
        self.env = {**self.host.environment, f"AWS_{processes.TAG}": self.tag}
        self.settings = Settings()
        self.backend = ClaudeBackend(self.env, lambda: self.settings, SystemClock())

    def _session(self) -> SessionRef:
        id_ = str(uuid4())
        self.api.script = lambda _: text("bun it is")
        done = self.host.print_mode(PROMPT, "--session-id", id_)
        assert done.stdout == "bun it is\n", done.stderr
        (transcript,) = self.host.config.glob(f"projects/*/{id_}.jsonl")
        return SessionRef(
            id_,
            transcript,
            self.host.config,
            self.host.project,
            executable=str(self.host.program),
            effort="medium",
        )

    @property
    def requests(self) -> list[Call]:
        """What the forks asked."""
        return self.api.messages[self.asked_before :]

    def answers(self, *replies: Reply) -> None:
        queue = deque(replies)
        self.api.script = lambda _: queue.popleft() if len(queue) > 1 else queue[0]

    async def fork(self, message: str = "[memoryd] keep?", **more: Any) -> ForkReply | ForkFailure:
        fields: dict[str, Any] = {"deadline": 40.0, "conversation": (PROMPT,), **more}
        return await self.backend.fork(ForkRequest(uuid4().hex, self.session, message, **fields))


@contextmanager
def a_stage(folder: Path, **extra: str) -> Iterator[Stage]:
    with ScriptedApi() as api:
        yield Stage(folder / "person", api, extra)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with a_stage(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def stage(shared: Stage) -> Stage:
    """One session for all that leaves it as it was: a fork must."""
    shared.asked_before = len(shared.api.messages)
    shared.settings = Settings()
    shared.backend.release()
    return shared


def blocks(call: Call) -> list[tuple[str, str]]:
    """The messages' blocks without their cache marks."""
    found: list[tuple[str, str]] = []
    for message in call.body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            kept = {name: value for name, value in part.items() if name != "cache_control"}
            found.append((message["role"], json.dumps(kept, sort_keys=True)))
    return found


async def test_a_fork_answers_from_the_sessions_own_prefix_and_leaves_no_trace(
    stage: Stage,
) -> None:
    stage.answers(Answer((Text(OPS),), tokens=TOKENS))
    before = stage.session.transcript.read_bytes()
    files = sorted(stage.host.config.rglob("*.jsonl"))
    assert await stage.fork() == ForkReply(OPS, MODEL, USAGE)
    (asked,) = stage.requests
    original = stage.api.messages[0]
    assert asked.body["tools"] == original.body["tools"]
    assert asked.body["system"][1:] == original.body["system"][1:]
    assert asked.model == original.model
    assert asked.body["output_config"] == original.body["output_config"]
    assert blocks(asked)[: len(blocks(original))] == blocks(original)
    new = [json.loads(block)["text"] for _, block in blocks(asked)[len(blocks(original)) :]]
    assert new[:3] == ["bun it is", "[memoryd] keep?", CLOSING]
    assert stage.session.transcript.read_bytes() == before
    assert sorted(stage.host.config.rglob("*.jsonl")) == files


@pytest.mark.parametrize(
    ("failure", "kind", "most_requests"),
    [
        (Failure(401, "authentication_error"), "credentials", 3),
        (Failure(402, "billing_error"), "credentials", 1),
        (Failure(403, "permission_error"), "credentials", 1),
        (Failure(404, "not_found_error"), "rejected", 3),
        (Failure(429, "rate_limit_error"), "transient", 1),
        (Failure(500, "api_error"), "transient", 1),
        (Failure(529, "overloaded_error"), "transient", 1),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Failure) else None,
)
async def test_an_error_of_the_api_has_its_class_and_is_not_asked_for_again(
    stage: Stage, failure: Failure, kind: str, most_requests: int
) -> None:
    stage.answers(failure)
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status) == (kind, failure.status)
    assert len(stage.requests) <= most_requests


async def test_a_wish_to_wait_is_passed_on(stage: Stage) -> None:
    stage.answers(Failure(429, "rate_limit_error", retry_after="30"))
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert 30 <= outcome.retry_after < 60
    assert len(stage.requests) == 1


async def test_no_server_is_transient(stage: Stage) -> None:
    stage.settings = Settings(base_url="http://127.0.0.1:1")
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status) == ("transient", 0)


async def test_what_is_too_long_is_said_and_a_shrunk_attempt_goes_without_the_session(
    stage: Stage,
) -> None:
    too_long = Failure(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")

    def script(call: Call) -> Reply:
        return too_long if call.holds("bun it is") else text(OPS)

    stage.api.script = script
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status) == ("too_long", 400)
    tried = len(stage.requests)
    turns = (f"{PROMPT} ".ljust(1000, "x"), "the last turn".ljust(800, "y"))
    shrunk = await stage.fork(conversation=turns, shrunk=True)
    assert isinstance(shrunk, ForkReply)
    (asked,) = stage.requests[tried:]
    assert asked.holds("the last turn")
    assert not asked.holds(PROMPT)
    assert asked.model == "claude-haiku-5-5"


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (
            Answer((Text("I will not"),), "refusal", TOKENS),
            ForkFailure("refused", usage=USAGE, model=MODEL),
        ),
        (
            Answer((Text('{"ops": ['),), "max_tokens", TOKENS),
            ForkReply('{"ops": [', MODEL, USAGE, "cut"),
        ),
    ],
    ids=["refused", "cut"],
)
async def test_a_stop_before_the_end_is_not_asked_about_again(
    stage: Stage, reply: Reply, outcome: ForkReply | ForkFailure
) -> None:
    stage.answers(reply)
    assert await stage.fork() == outcome
    # After a cut the client's next request may have left before it is ended; two more would follow.
    assert len(stage.requests) <= 2


async def test_an_empty_text_is_empty(stage: Stage) -> None:
    stage.answers(text(""))
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert (outcome.kind, outcome.status) == ("empty", 0)


async def test_a_server_that_hangs_is_cut_at_the_deadline_and_nothing_is_left(
    stage: Stage,
) -> None:
    stage.answers(Hang())
    assert await stage.fork(deadline=2.0) == ForkFailure("transient", type="timeout")
    assert len(stage.requests) == 1
    assert await processes.none_alive(stage.tag, name=f"AWS_{processes.TAG}")


async def test_cancelled_in_the_middle_of_its_answer_nothing_is_left(stage: Stage) -> None:
    stage.answers(Hang())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.fork)
        await anyio.to_thread.run_sync(stage.api.wait_for, lambda call: call in stage.requests)
        tasks.cancel_scope.cancel()
    assert await processes.none_alive(stage.tag, name=f"AWS_{processes.TAG}")


async def test_words_of_a_text_decide_nothing(stage: Stage) -> None:
    words = "API Error: 529 overloaded. Not logged in · Please run /login. Prompt is too long"
    stage.answers(text(words))
    outcome = await stage.fork(words)
    assert isinstance(outcome, ForkReply)
    assert outcome.text == words


async def test_what_a_message_mentions_is_neither_read_nor_run(stage: Stage) -> None:
    secret = stage.host.project / "secret.md"
    secret.write_text("the secret of the file\n")
    stage.answers(text(OPS))
    message = f"/compact\n- @secret.md and @{secret}\n# @agent-x\n!ls\n@secret.md"
    assert isinstance(await stage.fork(message), ForkReply)
    (asked,) = stage.requests
    assert asked.holds(message)
    assert not asked.holds("the secret of the file")


# ── a client whose person and repository allow everything ──────────────────────────────────────────

ALLOWED = ["Bash", "Bash(*)", "Write", "Edit", "Read", "mcp__maker", "mcp__maker__make"]

EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "Stop",
    "SessionEnd",
)

MCP_SERVER = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "maker", "version": "1"}}
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "make", "description": "makes a file",
                             "inputSchema": {"type": "object"}}]}
    if asked["method"] == "tools/call":
        pathlib.Path(sys.argv[1]).touch()
        result = {"content": [{"type": "text", "text": "made"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


class Allowing:
    """Makes every tool free to use, and every hook leave a file and block."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.made = stage.host.folder / "made"
        self.made.mkdir()
        self.secret = stage.host.project / "secret.md"
        self.secret.write_text("the secret of the file\n")
        self._settings(stage.host.config / "settings.json", "user")
        self._settings(stage.host.project / ".claude" / "settings.json", "project")
        server = stage.host.folder / "server.py"
        server.write_text(MCP_SERVER)
        started = {"command": sys.executable, "args": [str(server), str(self.made / "mcp")]}
        (stage.host.project / ".mcp.json").write_text(
            json.dumps({"mcpServers": {"maker": started}})
        )

    def _settings(self, file: Path, name: str) -> None:
        file.parent.mkdir(exist_ok=True)
        hook = f"touch '{self.made}/{name}-hook'; echo no >&2; exit 2"
        hooks = [{"hooks": [{"type": "command", "command": hook}]}]
        settings = {
            "permissions": {"allow": ALLOWED, "defaultMode": "acceptEdits"},
            "enableAllProjectMcpServers": True,
            "hooks": dict.fromkeys(EVENTS, hooks),
        }
        file.write_text(json.dumps(settings))

    @property
    def uses(self) -> dict[str, ToolUse]:
        made = str(self.made)
        return {
            "Bash": ToolUse("Bash", {"command": f"touch {made}/bash", "description": "x"}),
            "Write": ToolUse("Write", {"file_path": f"{made}/write", "content": "x"}),
            "Edit": ToolUse(
                "Edit",
                {"file_path": str(self.secret), "old_string": "secret", "new_string": "EDITED"},
            ),
            "Read": ToolUse("Read", {"file_path": str(self.secret)}),
            "mcp__maker__make": ToolUse("mcp__maker__make", {}),
        }

    def nothing_happened(self) -> bool:
        unchanged = self.secret.read_text() == "the secret of the file\n"
        return unchanged and not list(self.made.iterdir())


@pytest.fixture(scope="module")
def allowing_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Allowing]:
    with a_stage(tmp_path_factory.mktemp("allowing")) as made:
        yield Allowing(made)


@pytest.fixture
def allowing(allowing_shared: Allowing) -> Allowing:
    allowing_shared.stage.asked_before = len(allowing_shared.stage.api.messages)
    return allowing_shared


@pytest.mark.parametrize("name", ["Bash", "Write", "Edit", "Read", "mcp__maker__make"])
async def test_no_tool_runs_whatever_was_allowed_and_the_second_answer_counts(
    allowing: Allowing, name: str
) -> None:
    stage = allowing.stage
    stage.answers(Answer((allowing.uses[name],), "tool_use"), text(OPS))
    outcome = await stage.fork()
    assert isinstance(outcome, ForkReply)
    assert outcome.text == OPS
    assert allowing.nothing_happened()
    assert len(stage.requests) == 2
    assert not stage.requests[1].holds("the secret of the file")


async def test_a_model_that_asks_for_tools_for_ever_ends_as_empty(allowing: Allowing) -> None:
    stage = allowing.stage
    stage.answers(Answer(tuple(allowing.uses.values()), "tool_use"))
    outcome = await stage.fork()
    assert isinstance(outcome, ForkFailure)
    assert outcome.kind == "empty"
    assert allowing.nothing_happened()
    assert len(stage.requests) == 2


async def test_hooks_that_block_do_not_run(allowing: Allowing) -> None:
    allowing.stage.answers(text(OPS))
    outcome = await allowing.stage.fork()
    assert isinstance(outcome, ForkReply)
    assert outcome.text == OPS
    assert allowing.nothing_happened()


def test_the_same_person_does_use_tools_without_us(allowing: Allowing, tmp_path: Path) -> None:
    """What the tests above show is ours, and not the client's or the script's doing."""
    stage = allowing.stage
    proof = tmp_path / "proof"
    stage.answers(tool("Bash", command=f"touch '{proof}'", description="x"), text("done"))
    stage.host.print_mode("go", "--settings", '{"disableAllHooks": true}')
    assert proof.exists()


# ── keys and logins ────────────────────────────────────────────────────────────────────────────────


async def test_a_repository_can_not_send_our_key_elsewhere(stage: Stage) -> None:
    settings = stage.host.project / ".claude" / "settings.json"
    settings.parent.mkdir()
    with ScriptedApi() as elsewhere:
        settings.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": elsewhere.url}}))
        stage.answers(text(OPS))
        outcome = await stage.fork()
        settings.unlink()
        settings.parent.rmdir()
        assert isinstance(outcome, ForkReply)
        assert elsewhere.calls == []


async def test_without_a_login_it_is_the_credentials_and_a_new_one_is_tried(
    stage: Stage,
) -> None:
    env = {name: value for name, value in stage.env.items() if name != "ANTHROPIC_API_KEY"}
    backend = ClaudeBackend(env, Settings, SystemClock())
    request = ForkRequest("1", stage.session, "[memoryd] keep?", (PROMPT,), 40.0)
    outcome = await backend.fork(request)
    assert outcome == ForkFailure("credentials", type="authentication_failed")
    assert stage.requests == []
    assert await anyio.to_thread.run_sync(backend.fault, stage.session) != ""
    login = stage.session.config_dir / ".credentials.json"
    login.write_text("{}")
    assert await anyio.to_thread.run_sync(backend.fault, stage.session) == ""
    login.unlink()


async def test_each_config_folder_has_its_own_key(tmp_path: Path) -> None:
    keys: list[str] = []
    with ScriptedApi() as api:
        for name in ("a", "b"):
            stage = Stage(tmp_path / name, api, {})
            helper = {"apiKeyHelper": f"echo sk-of-{name}"}
            (stage.host.config / "settings.json").write_text(json.dumps(helper))
            env = {k: v for k, v in stage.env.items() if k != "ANTHROPIC_API_KEY"}
            backend = ClaudeBackend(env, Settings, SystemClock())
            stage.answers(text(OPS))
            request = ForkRequest("1", stage.session, "[memoryd] keep?", (PROMPT,), 40.0)
            assert isinstance(await backend.fork(request), ForkReply)
            keys.append(stage.requests[-1].headers["x-api-key"])
    assert keys == ["sk-of-a", "sk-of-b"]
