from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import answers
import msgspec
import pytest
from answering import AnsweringDaemon, Reply, daemon, of
from shells import CWD, Typed, process

from memoryd import protocol
from memoryd.core.text import hazard

if TYPE_CHECKING:
    from answering import Asked

DONE = protocol.Done(sentence="alpha: as you say")


class TestWhatIsAsked:
    @pytest.mark.parametrize(
        ("words", "route", "message"),
        [
            ("save", "save", {"cwd": CWD}),
            ("save --project beta", "save", {"project": "beta"}),
            ("save --session s1", "save", {"cwd": CWD, "session": "s1"}),
            ("cancel", "cancel", {"cwd": CWD}),
            ("pause", "pause", {"seconds": 0.0}),
            ("pause --for 2h", "pause", {"seconds": 7200.0}),
            ("pause --project", "pause", {"cwd": CWD, "seconds": 0.0}),
            ("pause --project beta --for 90s", "pause", {"project": "beta", "seconds": 90.0}),
            ("resume", "resume", {}),
            ("resume --project beta", "resume", {"project": "beta"}),
            ("off", "off", {"cwd": CWD}),
            ("off --session s1", "off", {"session": "s1"}),
            ("off --project beta", "off", {"project": "beta"}),
            ("on --project", "on", {"cwd": CWD}),
        ],
    )
    def test_commands(
        self, typed: Typed, folder: Path, words: str, route: str, message: dict[str, Any]
    ) -> None:
        with daemon(folder, DONE) as asked:
            assert typed(*words.split()) == 0
        assert asked.only == (route, message)
        assert typed.out == "alpha: as you say\n"

    @pytest.mark.parametrize(
        ("words", "reply", "route", "message"),
        [
            ("status", answers.calm(), "status", {"cwd": CWD}),
            ("status --project beta", answers.calm(), "status", {"project": "beta"}),
            ("log", protocol.RunList(runs=answers.runs()), "log", {}),
            ("log --project -n 5", protocol.RunList(runs=[]), "log", {"cwd": CWD, "limit": "5"}),
            ("log --skipped", protocol.RunList(runs=[]), "log", {"skipped": "true"}),
            ("show", answers.full_run(), "run", {"cwd": CWD}),
            ("show 01J --json", answers.full_run(), "run", {"run": "01J"}),
            (
                "statusline",
                protocol.Statusline(text="memory: +1 · 09:15"),
                "statusline",
                {"cwd": CWD},
            ),
        ],
    )
    def test_reads(
        self,
        typed: Typed,
        folder: Path,
        words: str,
        reply: protocol.Message,
        route: str,
        message: dict[str, Any],
    ) -> None:
        with daemon(folder, reply) as asked:
            assert typed(*words.split()) == 0
        assert asked.only == (route, message)
        assert typed.out
        assert not typed.err

    def test_inside_a_session_the_session_is_known(self, typed: Typed, folder: Path) -> None:
        typed.env = {**typed.env, "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s9"}
        with daemon(folder, DONE) as asked:
            assert typed("off", "--session") == 0
        assert asked.only == ("off", {"session": "s9"})

    def test_inside_a_session_cd_does_not_change_the_project(
        self, typed: Typed, folder: Path
    ) -> None:
        typed.env = {**typed.env, "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s9"}
        with daemon(folder, DONE) as asked:
            assert typed("save") == 0
        assert asked.only == ("save", {"inside": "s9", "cwd": "/home/user/alpha"})

    def test_outside_of_a_session_there_is_none_to_mean(self, typed: Typed) -> None:
        assert typed("off", "--session") == 1
        assert typed.err == (
            "memoryctl: this was not typed inside a coding session\n"
            "try: memoryctl off --session ID\n"
        )

    def test_from_a_directory_that_is_gone_no_project_is_guessed(
        self, typed: Typed, folder: Path
    ) -> None:
        typed.directory = ""
        with daemon(folder, DONE) as asked:
            assert typed("pause", "--project") == 1
        assert not asked.asked
        assert "try: memoryctl pause --project NAME" in typed.err

    @pytest.mark.parametrize(
        "command", ["save", "off", "memory", "show", "statusline", "log --project"]
    )
    def test_a_directory_that_is_not_utf8_is_none_that_can_be_meant(
        self, typed: Typed, folder: Path, command: str
    ) -> None:
        typed.directory = "/home/user/caf\udce9"
        with daemon(folder, DONE) as asked:
            assert typed(*command.split()) == 1
        assert not asked.asked
        assert typed.err == (
            "memoryctl: the name of the directory that this was typed in is not UTF-8\n"
            f"try: memoryctl {command.split(maxsplit=1)[0]} --project NAME\n"
        )

    def test_the_status_says_so_there(self, typed: Typed, folder: Path) -> None:
        typed.directory = "/home/user/caf\udce9"
        with daemon(folder, answers.calm()) as asked:
            assert typed("status") == 0
        assert asked.only == ("status", {})
        assert typed.out.startswith("the name of the directory that this was typed in is not UTF-8")

    def test_inside_a_session_the_directory_is_not_needed(self, typed: Typed, folder: Path) -> None:
        typed.env = {**typed.env, "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s9"}
        typed.directory = "/home/user/caf\udce9"
        with daemon(folder, DONE) as asked:
            assert typed("save") == 0
        assert asked.only == ("save", {"inside": "s9"})

    @pytest.mark.parametrize("words", ["save --project", "off --session", "status --project"])
    def test_a_word_that_is_not_utf8_is_said(self, typed: Typed, folder: Path, words: str) -> None:
        with daemon(folder, DONE) as asked:
            assert typed(*words.split(), "caf\udce9") == 1
        assert not asked.asked
        assert typed.err.startswith("memoryctl: not UTF-8: caf")

    def test_the_status_shows_where_no_project_can_be(self, typed: Typed, folder: Path) -> None:
        no = protocol.Problem(code="no_project", sentence="no project")

        def answer(asked: Asked) -> Reply:
            return of(no, 400) if asked.message else of(answers.calm())

        with AnsweringDaemon(folder / "s", answer) as asked:
            assert typed("status") == 0
        assert len(asked.asked) == 2
        assert typed.out.startswith("memoryd works; nothing is owed\n")


class TestColour:
    @pytest.mark.parametrize(
        ("terminal", "changed", "coloured"),
        [
            (True, {}, True),
            (True, {"NO_COLOR": "1"}, False),
            (True, {"TERM": "dumb"}, False),
            (False, {}, False),
        ],
    )
    def test_only_on_a_terminal_that_may_have_it(
        self, typed: Typed, folder: Path, *, terminal: bool, changed: dict[str, str], coloured: bool
    ) -> None:
        typed.terminal, typed.env = terminal, {**typed.env, **changed}
        with daemon(folder, answers.busy()):
            assert typed("status") == 0
        assert ("\x1b[" in typed.out) == coloured


class TestJson:
    def test_is_the_message_as_it_is(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, answers.busy()):
            assert typed("status", "--json") == 0
        assert typed.out.encode() == msgspec.json.encode(answers.busy()) + b"\n"

    def test_is_the_same_value_and_harmless_on_a_terminal(self, typed: Typed, folder: Path) -> None:
        typed.terminal = True
        reply = protocol.MemoryText(project="a", path="/p", text="\u202e\x9b\U000e0041ä\n")
        with daemon(folder, reply):
            assert typed("memory", "--json") == 0
        assert not hazard(typed.out, layout=True)
        assert msgspec.json.decode(typed.out, type=protocol.MemoryText) == reply


class TestMemory:
    TEXT = "# alpha\r\n\r\n- A rule\u200b.\r\n"

    def reply(self, text: str | None) -> protocol.MemoryText:
        return protocol.MemoryText(project="alpha", path="/m/alpha/MEMORY.md", text=text)

    def test_is_byte_for_byte_in_a_pipe(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, self.reply(self.TEXT)):
            assert typed("memory") == 0
        assert typed.out == self.TEXT

    def test_is_harmless_on_a_terminal(self, typed: Typed, folder: Path) -> None:
        typed.terminal = True
        with daemon(folder, self.reply(self.TEXT)):
            assert typed("memory") == 0
        assert typed.out == "# alpha\n\n- A rule\\u{200b}.\n"

    def test_none_is_said_beside_the_output(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, self.reply(None)):
            assert typed("memory") == 0
        assert (typed.out, typed.err) == ("", "alpha: no MEMORY.md yet (/m/alpha/MEMORY.md)\n")


class TestStatusline:
    EVENT = b'{"session_id":"s1","cwd":"/home/user/alpha"}'

    def test_of_the_session_that_the_host_names(self, env: dict[str, str], folder: Path) -> None:
        line = b"memory: \x1b[32m+1\x1b[0m\x1b[2m \xc2\xb7 09:15\x1b[0m\n"
        with AnsweringDaemon(folder / "s", Reply(line)) as asked:
            done = process(env, "statusline", stdin=self.EVENT)
        assert (done.returncode, done.stdout, done.stderr) == (0, line, b"")
        assert [(each.route, each.body) for each in asked.asked] == [("statusline", self.EVENT)]
        assert "no_color" not in asked.asked[0].headers["memoryd-env"]

    def test_plain_where_the_person_wants_no_colour(
        self, env: dict[str, str], folder: Path
    ) -> None:
        with AnsweringDaemon(folder / "s", Reply(status=204)) as asked:
            done = process({**env, "NO_COLOR": "1"}, "statusline", stdin=self.EVENT)
        assert (done.returncode, done.stdout) == (0, b"")
        assert "no_color=31" in asked.asked[0].headers["memoryd-env"].split(";")

    def test_as_a_hook_it_is_silent_without_a_daemon(self, env: dict[str, str]) -> None:
        done = process(env, "statusline", stdin=self.EVENT)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    def test_nothing_on_stdin_means_the_directory(self, env: dict[str, str], folder: Path) -> None:
        with daemon(folder, protocol.Statusline(text="")) as asked:
            done = process(env, "statusline", stdin=b"")
        assert (done.returncode, done.stdout) == (0, b"")
        assert asked.only == ("statusline", {"cwd": str(Path.cwd())})

    def test_the_settings_name_a_command_that_starts_as_a_hook_does(
        self, typed: Typed, folder: Path
    ) -> None:
        assert typed("statusline", "--settings") == 0
        entry = json.loads(typed.out)["statusLine"]
        assert entry["refreshInterval"] == 5  # or the line says `saving…` until the next turn
        command = entry["command"]
        line = b"memory: no change \xc2\xb7 09:15\n"
        with AnsweringDaemon(folder / "s", Reply(line)) as asked:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                input=self.EVENT,
                env={},
                capture_output=True,
                timeout=20.0,
                check=False,
            )
        assert (done.returncode, done.stdout, done.stderr) == (0, line, b"")
        assert [each.route for each in asked.asked] == ["statusline"]


class TestRaw:
    def test_a_short_route_and_a_body(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, DONE) as asked:
            assert typed("raw", "POST", "save", '{"cwd":"/x"}') == 0
        assert asked.only == ("save", {"cwd": "/x"})
        assert typed.out == '{"sentence":"alpha: as you say"}\n'

    def test_a_whole_route(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, DONE) as asked:
            assert typed("raw", "GET", "/v1/log?limit=5") == 0
        assert asked.only == ("log", {"limit": "5"})

    @pytest.mark.parametrize(
        "route", ["status with space", "status\r\nX: y", "status\n", "", "caf\u00e9", "caf\udce9"]
    )
    def test_what_is_no_route_is_not_sent(
        self, typed: Typed, folder: Path, route: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with daemon(folder, DONE) as asked, pytest.raises(SystemExit) as ended:
            typed("raw", "GET", route)
        assert ended.value.code == 2
        assert "no route" in capsys.readouterr().err
        assert not asked.asked

    def test_a_body_from_stdin(self, typed: Typed, folder: Path) -> None:
        typed.stdin = b'{"cwd":"/y"}'
        with daemon(folder, DONE) as asked:
            assert typed("raw", "POST", "save", "-") == 0
        assert asked.only == ("save", {"cwd": "/y"})
