from __future__ import annotations

import os
import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import answers
import pytest
from answering import daemon
from shells import REPOSITORY, Typed, process

from memoryd import __version__, protocol
from memoryd.ctl import main, parser

if TYPE_CHECKING:
    from pathlib import Path

    from memoryd.ctl.shell import Shell

DONE = protocol.Done(sentence="alpha: as you say")
HEAVY = {"anyio", "anthropic", "structlog", "watchfiles", "h11", "asyncio", "rich", "shtab"}


class TestHelp:
    @pytest.mark.parametrize("command", parser.COMMANDS, ids=lambda command: command.name)
    def test_every_command_has_a_page_with_an_example(
        self, command: parser.Command, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            parser.parse([command.name, "--help"])
        page = capsys.readouterr().out
        assert ended.value.code == 0
        assert f"example:\n  {command.example}" in page
        assert command.text in page
        assert command.text.endswith(".")

    @pytest.mark.parametrize("command", parser.COMMANDS, ids=lambda command: command.name)
    def test_every_command_has_its_function(self, command: parser.Command) -> None:
        assert callable(main._function(command.run))

    @pytest.mark.parametrize("command", parser.COMMANDS, ids=lambda command: command.name)
    def test_every_example_can_be_parsed(self, command: parser.Command) -> None:
        words = command.example.replace('claude --plugin-dir "$(', "").replace(')"', "")
        words = words.replace('eval "$(', "").partition(" >")[0]
        assert words.startswith("memoryctl")
        assert parser.parse(words.split()[1:]).run == command.run


class TestWhatIsTyped:
    @pytest.mark.parametrize("words", [[], ["-v"], ["--json"], ["--project", "alpha"]])
    def test_without_a_command_it_is_the_status(self, words: list[str]) -> None:
        assert parser.parse(words).command == "status"

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["stauts"], "no command `stauts`, perhaps `status`"),
            (["\x1b[2J"], "no command `\\u{1b}[2J`"),
            (["save", "--bogus"], "unrecognized arguments: --bogus"),
            (["pause", "--for", "3 weeks"], "expected a duration such as `10 min` or `90 s`"),
            (["log", "-n", "0"], "expected a number from 1, got `0`"),
            (["off", "--session", "--project"], "not allowed with argument"),
        ],
    )
    def test_a_fault_is_one_sentence_and_a_command(
        self, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main.main(words)
        said = capsys.readouterr().err
        assert ended.value.code == parser.USAGE == 2
        assert sentence in said
        assert said.count("\n") == 2
        assert "\ntry: memoryctl" in said


class TestExitCodes:
    def test_the_daemon_said_no(self, typed: Typed, folder: Path) -> None:
        problem = protocol.Problem(code="x", sentence="no save is running", hint="memoryctl log")
        with daemon(folder, problem, 409):
            assert typed("cancel") == 1
        assert typed.err == "memoryctl: no save is running\ntry: memoryctl log\n"
        assert not typed.out

    def test_not_running(self, typed: Typed, folder: Path) -> None:
        assert typed("save") == 3
        assert typed.err == (
            f"memoryctl: memoryd does not answer: there is no socket ({folder}/s)\n"
            "try: memoryctl start\n"
        )

    def test_a_socket_s_directory_that_is_open(self, typed: Typed, folder: Path) -> None:
        with daemon(folder, DONE):
            folder.chmod(0o770)
            assert typed("status") == 3
        assert f"try: chmod 700 '{folder}'\n" in typed.err

    def test_the_status_counts_what_waits_for_a_daemon(self, typed: Typed, folder: Path) -> None:
        spool = folder / "home/.local/state/memoryd/spool"
        spool.mkdir(parents=True)
        for name in ("1.http", "2.http", "3.http.tmp"):
            (spool / name).touch()
        assert typed("status") == 3
        assert typed.err.endswith("\n2 events of sessions kept until it runs\n")

    def test_the_status_says_that_a_disk_is_full(
        self, typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nearly_full(_: Path) -> SimpleNamespace:
            return SimpleNamespace(f_bavail=2, f_frsize=4096)

        monkeypatch.setattr(os, "statvfs", nearly_full)
        sentence = f"the disk of {folder} is full: 8 kB left\n"
        assert typed("status") == 3
        assert f"\nmemoryctl: {sentence}try: df -h\n" in typed.err
        with daemon(folder, answers.calm()):
            assert typed("status") == 0
        assert typed.out.startswith(f"{sentence}  try: df -h\n")

    def test_what_a_file_says_of_a_daemon_counts_for_nothing(
        self, typed: Typed, folder: Path
    ) -> None:
        state = folder / "home/.local/state/memoryd"
        state.mkdir(parents=True)
        (state / "daemon").write_text("pid 1, version 0, /bin/init")
        assert typed("stop") == 3
        assert typed.err.count("\n") == 1

    def test_stop_without_a_daemon_is_one_line(self, typed: Typed) -> None:
        assert typed("stop") == 3
        assert typed.err.count("\n") == 1
        assert typed.err.startswith("memoryctl: nothing to stop: ")

    def test_a_refused_config(self, typed: Typed, folder: Path) -> None:
        file = folder / "home/.config/memoryd/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text("headless = 'full'\nmax_remval = 0.3\n")
        assert typed("config", "check") == 1
        assert typed.err == (
            f"memoryctl: {file}:2: unknown setting `max_remval`\ntry: ${{EDITOR:-vi}} '{file}'\n"
        )

    def test_a_file_that_is_missing(self, typed: Typed, folder: Path) -> None:
        assert typed("apply", str(folder / "M"), str(folder / "gone")) == 1
        assert typed.err == f"memoryctl: {folder}/gone: No such file or directory\n"

    def test_a_fault_of_ours_is_told_without_a_traceback_and_without_words(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(_typed: object, _shell: Shell) -> int:
            raise ValueError("what a person wrote")

        monkeypatch.setattr(main, "_function", lambda _: broken)
        assert typed("version") == 1
        assert typed.err.startswith(
            "memoryctl: memoryctl failed on this: ValueError in test_main.py"
        )
        assert "person" not in typed.err

    def test_ctrl_c_is_silent(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(_: list[str]) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(parser, "parse", interrupted)
        assert main.main([]) == 130
        assert capsys.readouterr() == ("", "")

    def test_a_reader_that_went_away_is_silent(self, env: dict[str, str]) -> None:
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", "memoryd.ctl.main", "config", "show"],
                env={**env, "PYTHONPATH": str(REPOSITORY)},
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=60.0,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize("typed", ["config show", "--help"])
    def test_a_full_disk_is_one_sentence(self, env: dict[str, str], typed: str) -> None:
        done = redirected(env, f"{typed} > /dev/full")
        sentence = b"memoryctl: cannot write the output: No space left on device\n"
        assert (done.returncode, done.stderr) == (1, sentence)

    def test_a_reader_of_a_help_page_that_went_away_is_silent(self, env: dict[str, str]) -> None:
        done = redirected(env, "--help | true")
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_a_closed_stream_is_one_to_nowhere(self, env: dict[str, str], closed: str) -> None:
        done = redirected(env, f"config show {closed}")
        assert (done.returncode, done.stderr) == (0, b"")


def redirected(env: dict[str, str], words: str) -> subprocess.CompletedProcess[bytes]:
    """A memoryctl as a shell starts it."""
    line = f"{shlex.quote(sys.executable)} -m memoryd.ctl.main {words}"
    return subprocess.run(
        ["/bin/sh", "-c", line],
        env={**env, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        timeout=60.0,
        check=False,
    )


class TestStart:
    def test_no_library_of_the_daemon_is_imported(self, env: dict[str, str], folder: Path) -> None:
        code = "print(*sys.modules, file=sys.stderr)"
        reply = protocol.Version(version="9", generation=1, pid=7, started_at=0.0)
        with daemon(folder, reply):
            done = process(env, "version", code=code)
        assert done.stdout.decode() == (
            f"memoryctl {__version__}, protocol 1\nmemoryd 9, protocol 1, pid 7\n"
        )
        assert not HEAVY & set(done.stderr.decode().split())

    def test_version_says_that_none_runs(self, typed: Typed) -> None:
        assert typed("version") == 0
        assert typed.out.endswith("\nmemoryd is not running\n")
        assert typed("version", "--json") == 3

    def test_a_terminal_whose_encoding_can_t_hold_it(
        self, env: dict[str, str], folder: Path
    ) -> None:
        with daemon(folder, protocol.Done(sentence="ä → 漢")):
            done = process({**env, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, "save")
        assert (done.returncode, done.stderr) == (0, b"")
