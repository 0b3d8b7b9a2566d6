"""What the real client does with the plugin; the daemon is a recorder."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from e2e.host import Host, find_client
from fake_daemon import FakeDaemon, Reply, answer_in_order

from memoryd.ctl.plugin import hook_interpreter, render, template
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import Answer, Failure, Script, Text, text, tool
from memoryd.protocol import LOAD_PARTS, PART_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.host import Terminal
    from fake_daemon import Answerer

pytestmark = [pytest.mark.e2e, pytest.mark.client]

START = ["session_started"] * LOAD_PARTS
ALLOW_BASH = ("--allowedTools", "Bash")


@dataclass
class Rig:
    """The client, its Messages API and the daemon that records."""

    host: Host
    api: ScriptedApi
    daemon: FakeDaemon

    def heard(self) -> list[tuple[str, str]]:
        """Route and what tells one event from another of its kind, parts of a start once."""
        return [
            (arrival.route, detail(arrival.event))
            for arrival in self.daemon.arrivals
            if arrival.headers["memoryd-part"] in ("0", "1")
        ]

    def wait_for(self, *heard: tuple[str, str]) -> None:
        """Wait until exactly this was heard."""
        self.daemon.wait_for(lambda _: self.heard() == list(heard))

    def wait_for_number(self, route: str, number: int) -> None:
        """Wait until a route was heard so often."""
        self.daemon.wait_for(lambda _: len(self.daemon.of(route)) == number)


def detail(event: dict[str, Any]) -> str:
    for name in ("source", "prompt", "last_assistant_message", "reason"):
        if name in event:
            return str(event[name])
    return ""


@contextmanager
def serve(folder: Path, script: Script, answer: Answerer) -> Iterator[Rig]:
    run = folder / "run"
    run.mkdir(mode=0o700)
    plugin = render(
        folder / "plugin",
        interpreter=hook_interpreter(),
        socket=run / "s",
        spool=folder / "spool",
    )
    with ScriptedApi(script) as api, FakeDaemon(run / "s", answer) as daemon:
        extra = {"CLAUDE_CODE_MAX_RETRIES": "0"}
        yield Rig(Host.make(folder / "host", api.url, plugin=plugin, extra=extra), api, daemon)


@pytest.fixture
def script() -> Script:
    return Script(text("the answer"))


@pytest.fixture
def rig(tmp_path: Path, script: Script) -> Iterator[Rig]:
    with serve(tmp_path, script, lambda _: Reply()) as made:
        yield made


def memory_part(number: int) -> str:
    """A part of the longest length, with its number at both ends."""
    edge = f"<part {number}>"
    filling = "é\N{GRINNING FACE}x "  # five UTF-16 units
    return edge + filling * ((PART_LIMIT - 2 * len(edge)) // 5) + edge


def session_start_answer(context: str) -> bytes:
    output = {"hookEventName": "SessionStart", "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output}, ensure_ascii=False).encode()


class TestPrintMode:
    def test_a_plain_turn(self, rig: Rig) -> None:
        done = rig.host.print_mode("a prompt")
        assert (done.returncode, done.stdout, done.stderr) == (0, "the answer\n", "")
        assert rig.heard() == [
            ("session_started", "startup"),
            ("prompt_submitted", "a prompt"),
            ("turn_ended", "the answer"),
            ("session_ended", "other"),
        ]
        arrivals = rig.daemon.arrivals
        assert rig.daemon.routes()[:LOAD_PARTS] == START
        assert {arrival.said("attended") for arrival in arrivals} == {"0"}
        assert {arrival.said("entrypoint") for arrival in arrivals} == {"sdk-cli"}
        assert {arrival.said("config_dir") for arrival in arrivals} == {str(rig.host.config)}
        assert {arrival.said("project_dir") for arrival in arrivals} == {str(rig.host.project)}
        assert {arrival.said("executable") for arrival in arrivals} == {str(rig.host.program)}
        assert len({arrival.said("pid") for arrival in arrivals}) == 1
        assert len({arrival.headers["memoryd-event"] for arrival in arrivals}) == len(arrivals)

    def test_a_tool_batch(self, rig: Rig, script: Script) -> None:
        script.on("use a tool", tool("Bash", command="true", description="nothing"))
        rig.host.print_mode("use a tool", *ALLOW_BASH)
        assert [route for route, _ in rig.heard()] == [
            "session_started",
            "prompt_submitted",
            "tools_ran",
            "turn_ended",
            "session_ended",
        ]
        assert "agent_id" not in rig.daemon.of("tools_ran")[0].event

    def test_a_refused_tool_is_a_batch_too(self, rig: Rig, script: Script) -> None:
        script.on("use a tool", tool("Bash", command="touch x", description="a file"))
        rig.host.print_mode("use a tool", "--permission-mode", "dontAsk")
        assert not (rig.host.project / "x").exists()
        assert len(rig.daemon.of("tools_ran")) == 1

    def test_a_failed_turn_has_no_end(self, rig: Rig, script: Script) -> None:
        script.on("fail", Failure(400, "invalid_request_error"))
        assert rig.host.print_mode("fail").returncode == 1
        # The client often ends the hook that would tell of the failure before it has begun.
        assert [route for route, _ in rig.heard() if route != "turn_failed"] == [
            "session_started",
            "prompt_submitted",
            "session_ended",
        ]

    def test_a_resumed_and_a_forked_session(self, rig: Rig) -> None:
        rig.host.print_mode("first")
        session = rig.daemon.arrivals[0].event["session_id"]
        rig.host.print_mode("second", "--resume", session)
        rig.host.print_mode("third", "--resume", session, "--fork-session")
        starts = rig.daemon.of("session_started")[::LOAD_PARTS]
        assert [start.event["source"] for start in starts] == ["startup", "resume", "fork"]
        assert [start.event["session_id"] == session for start in starts] == [True, True, False]

    def test_a_subagents_events_carry_its_id(self, rig: Rig, script: Script) -> None:
        script.on("for the helper", tool("Bash", command="true", description="nothing"))
        script.on(
            "ask a helper",
            tool(
                "Agent",
                description="help",
                prompt="for the helper",
                subagent_type="general-purpose",
                run_in_background=False,
            ),
        )
        rig.host.print_mode("ask a helper", *ALLOW_BASH)
        batches = [arrival.event for arrival in rig.daemon.of("tools_ran")]
        assert ["agent_id" in event for event in batches] == [True, False]
        assert len({event["session_id"] for event in batches}) == 1


class TestInteractive:
    def test_interrupted_cleared_compacted_and_left(self, rig: Rig, script: Script) -> None:
        never = Event()
        script.on("begin", Answer((Text("only begun"),), hold_inside=never))
        heard = [("session_started", "startup")]
        with rig.host.interactive() as terminal:
            terminal.submit("hello")
            heard += [("prompt_submitted", "hello"), ("turn_ended", "the answer")]
            rig.wait_for(*heard)

            terminal.submit("begin")
            terminal.wait_for("only begun")
            terminal.press("Escape")
            terminal.wait_for("Interrupted")
            terminal.submit("go on")
            # Nothing was heard of the interruption.
            heard += [("prompt_submitted", "begin"), ("prompt_submitted", "go on")]
            heard += [("turn_ended", "the answer")]
            rig.wait_for(*heard)

            terminal.submit("/compact")
            heard += [("session_started", "compact")]
            rig.wait_for(*heard)

            terminal.submit("/clear")
            heard += [("session_ended", "clear"), ("session_started", "clear")]
            rig.wait_for(*heard)

            terminal.exit()
            heard += [("session_ended", "prompt_input_exit")]
            rig.wait_for(*heard)
        never.set()
        assert {arrival.said("attended") for arrival in rig.daemon.arrivals} == {"1"}
        starts = rig.daemon.of("session_started")[::LOAD_PARTS]
        sessions = [start.event["session_id"] for start in starts]
        assert sessions[0] == sessions[1] != sessions[2]

    def test_failures_and_a_refusal(self, rig: Rig, script: Script) -> None:
        script.on("prompt 1", Failure(400, "invalid_request_error"))
        script.on("prompt 2", Failure(500, "api_error"))
        script.on("prompt 3", text("", stop_reason="refusal"))
        with rig.host.interactive() as terminal:
            for number in (1, 2, 3):
                terminal.submit(f"prompt {number}")
                rig.wait_for_number("turn_failed", number)
            terminal.exit()
        assert rig.daemon.of("turn_ended") == []

    def test_a_refusal_after_which_the_client_asks_again(self, rig: Rig, script: Script) -> None:
        script.on("refuse", text("no", stop_reason="refusal"))
        with rig.host.interactive() as terminal:
            terminal.submit("refuse")
            rig.wait_for_number("turn_ended", 1)
            terminal.exit()
        assert len(rig.api.messages) == 2
        assert rig.daemon.of("turn_failed") == []

    def test_a_closed_terminal(self, rig: Rig) -> None:
        with rig.host.interactive() as terminal:
            terminal.submit("hello")
            terminal.wait_for("the answer")
        rig.daemon.wait_for(lambda arrivals: arrivals[-1].route == "session_ended")
        assert rig.heard()[-1] == ("session_ended", "other")

    def test_a_plugin_folder_deleted_meanwhile_blocks_no_prompt(self, rig: Rig) -> None:
        with rig.host.interactive() as terminal:
            assert rig.host.plugin is not None
            shutil.rmtree(rig.host.plugin)
            terminal.submit("hello")
            terminal.wait_for("the answer")
            terminal.exit()
        assert rig.heard() == [("session_started", "startup")]


class TestFiftyThousandCharacters:
    parts = tuple(memory_part(number) for number in range(1, LOAD_PARTS + 1))

    def whole_in_order(self, texts: list[str]) -> bool:
        """Whether some text holds all parts, in order, each once."""
        holding = [words for words in texts if self.parts[0] in words]
        if len(holding) != 1:
            return False
        places = [holding[0].find(part) for part in self.parts]
        return -1 not in places and places == sorted(places)

    @pytest.fixture
    def rig(self, tmp_path: Path, script: Script) -> Iterator[Rig]:
        answers = [session_start_answer(part) for part in self.parts]
        with serve(tmp_path, script, answer_in_order(answers)) as made:
            yield made

    def test_in_print_mode(self, rig: Rig) -> None:
        assert sum(len(part.encode("utf-16-le")) // 2 for part in self.parts) > 50_000
        for _ in range(3):
            rig.host.print_mode("a prompt")
        assert [self.whole_in_order(call.texts) for call in rig.api.messages] == [True] * 3

    def test_after_clear_and_after_compact(self, rig: Rig) -> None:
        with rig.host.interactive() as terminal:
            self.ask(rig, terminal, "first")
            terminal.submit("/clear")
            self.ask(rig, terminal, "second")
            terminal.submit("/compact")
            self.ask(rig, terminal, "third")
            terminal.exit()

    def ask(self, rig: Rig, terminal: Terminal, prompt: str) -> None:
        """The request of a prompt, sent once the session has started anew, holds the parts."""
        number = len(rig.daemon.of("turn_ended")) + 1
        rig.wait_for_number("session_started", number * LOAD_PARTS)
        terminal.submit(prompt)
        call = rig.api.wait_for(lambda call: prompt in call.new_texts)
        assert self.whole_in_order(call.texts)
        rig.wait_for_number("turn_ended", number)


class TestNothingToSay:
    def test_hooks_leave_no_trace_in_the_conversation(self, rig: Rig, script: Script) -> None:
        script.on("use a tool", tool("Bash", command="true", description="nothing"))
        rig.host.print_mode("use a tool", *ALLOW_BASH)
        assert not any(call.holds("hook additional context") for call in rig.api.messages)
        (transcript,) = rig.host.transcripts()
        rows = [json.loads(line) for line in transcript.read_text().split("\n") if line]
        attached = [row["attachment"]["type"] for row in rows if row["type"] == "attachment"]
        assert not any("hook" in kind for kind in attached)


class TestNoDaemon:
    def test_the_session_is_as_ever_and_its_events_are_kept(self, tmp_path: Path) -> None:
        plugin = render(
            tmp_path / "plugin",
            interpreter=hook_interpreter(),
            socket=tmp_path / "s",
            spool=tmp_path / "spool",
        )
        with ScriptedApi(Script(text("the answer"))) as api:
            done = Host.make(tmp_path / "host", api.url, plugin=plugin).print_mode("a prompt")
        assert (done.returncode, done.stdout, done.stderr) == (0, "the answer\n", "")
        kept = sorted((tmp_path / "spool").iterdir())
        routes = [path.read_bytes().split(b" ")[1] for path in kept]
        assert routes == [
            b"/v1/session_started",
            b"/v1/prompt_submitted",
            b"/v1/turn_ended",
            b"/v1/session_ended",
        ]


class TestValidate:
    @pytest.mark.parametrize("rendered", [True, False])
    def test_the_client_accepts_the_folder(self, tmp_path: Path, *, rendered: bool) -> None:
        host = Host.make(tmp_path / "host", "http://127.0.0.1:1")
        folder = template()
        if rendered:
            places = {"socket": tmp_path / "s", "spool": tmp_path / "spool"}
            folder = render(tmp_path / "plugin", interpreter=hook_interpreter(), **places)
        done = subprocess.run(
            [str(find_client()), "plugin", "validate", "--strict", str(folder)],
            env=host.environment,
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
        assert (done.returncode, "Validation passed" in done.stdout) == (0, True), done.stdout
