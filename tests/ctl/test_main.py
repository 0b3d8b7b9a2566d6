from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import answers
import msgspec
import pytest
from answering import AnsweringDaemon, Reply, of
from shells import Typed
from wire import short_dir

from memoryd import __version__, config, protocol
from memoryd.core.text import hazard
from memoryd.ctl import main, parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from answering import Asked

    from memoryd.ctl.shell import Shell

REPOSITORY = Path(main.__file__).parents[2]
CWD = "/home/user/alpha"
DONE = protocol.Done(sentence="alpha: as you say")
HEAVY = {"anyio", "anthropic", "structlog", "watchfiles", "h11", "asyncio", "rich", "shtab"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as path:
        yield path


@pytest.fixture
def env(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "PATH": os.environ["PATH"],
        "MEMORYD_SOCKET": str(folder / "s"),
    }


@pytest.fixture
def typed(env: dict[str, str]) -> Typed:
    return Typed(env, now=answers.NOW, directory=CWD)


def daemon(folder: Path, message: protocol.Message, status: int = 200) -> AnsweringDaemon:
    """Answers every route with one message."""
    return AnsweringDaemon(folder / "s", of(message, status))


def process(
    env: dict[str, str], *words: str, stdin: bytes | None = None, code: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """memoryctl as a process of its own; `code` runs behind it, in it."""
    script = (
        f"import sys; from memoryd.ctl.main import main; code = main(); {code or 'sys.exit(code)'}"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**env, "PYTHONPATH": str(REPOSITORY)},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=60.0,
        check=False,
    )


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
        typed.env = {**typed.env, "CLAUDECODE": "1", "CLAUDE_PROJECT_DIR": "/home/user/beta"}
        with daemon(folder, DONE) as asked:
            assert typed("save") == 0
        assert asked.only == ("save", {"cwd": "/home/user/beta"})

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

    def test_the_status_shows_where_no_project_can_be(self, typed: Typed, folder: Path) -> None:
        no = protocol.Problem(code="no_project", sentence="no project")

        def answer(asked: Asked) -> Reply:
            return of(no, 400) if asked.message else of(answers.calm())

        with AnsweringDaemon(folder / "s", answer) as asked:
            assert typed("status") == 0
        assert len(asked.asked) == 2
        assert typed.out.startswith("memoryd works; nothing is owed\n")


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
            f"memoryctl: {file}:2: unknown setting `max_remval`\ntry: memoryctl config check\n"
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


class TestStatusline:
    EVENT = b'{"session_id":"s1","cwd":"/home/user/alpha"}'

    def test_of_the_session_that_the_host_names(self, env: dict[str, str], folder: Path) -> None:
        line = b"memory: \x1b[32m+1\x1b[0m\x1b[2m \xc2\xb7 09:15\x1b[0m\n"
        with AnsweringDaemon(folder / "s", Reply(line)) as asked:
            done = process(env, "statusline", stdin=self.EVENT)
        assert (done.returncode, done.stdout, done.stderr) == (0, line, b"")
        assert [(each.route, each.body) for each in asked.asked] == [("statusline", self.EVENT)]
        assert "memoryd-no-color" not in asked.asked[0].headers

    def test_plain_where_the_person_wants_no_colour(
        self, env: dict[str, str], folder: Path
    ) -> None:
        with AnsweringDaemon(folder / "s", Reply(status=204)) as asked:
            done = process({**env, "NO_COLOR": "1"}, "statusline", stdin=self.EVENT)
        assert (done.returncode, done.stdout) == (0, b"")
        assert asked.asked[0].headers["memoryd-no-color"] == b"1".hex()

    def test_nothing_else_that_a_terminal_would_obey(
        self, env: dict[str, str], folder: Path
    ) -> None:
        with AnsweringDaemon(folder / "s", Reply(b"memory: \x1b]0;x\x07\n")):
            done = process({**env, "NO_COLOR": "1"}, "statusline", stdin=self.EVENT)
        assert done.stdout == b"memory: \\u{1b}]0;x\\u{7}\n"

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
        command = json.loads(typed.out)["statusLine"]["command"]
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

    def test_a_body_from_stdin(self, typed: Typed, folder: Path) -> None:
        typed.stdin = b'{"cwd":"/y"}'
        with daemon(folder, DONE) as asked:
            assert typed("raw", "POST", "save", "-") == 0
        assert asked.only == ("save", {"cwd": "/y"})


class TestApply:
    MEMORY = "# alpha\n\n## CRITICAL RULES\n\n## Architecture & Config Facts\n\n- One.\n\n"
    MEMORY += "## Active Warnings\n\n## Topic Files\n"
    ADD = '{"ops":[{"op":"add","section":"Architecture & Config Facts","text":"Two."}],"topics":[]}'

    @pytest.fixture
    def memory(self, folder: Path) -> Path:
        file = folder / "alpha" / "MEMORY.md"
        file.parent.mkdir()
        file.write_text(self.MEMORY)
        return file

    def test_the_new_text_and_the_event(self, typed: Typed, memory: Path) -> None:
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 0
        assert typed.out == self.MEMORY.replace("- One.\n", "- One.\n- Two.\n")
        assert typed.err == "MEMORY.md: 1 added\n"
        assert memory.read_text() == self.MEMORY

    def test_a_file_that_is_not_there_yet(self, typed: Typed, memory: Path) -> None:
        memory.unlink()
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 0
        assert typed.out.startswith("# alpha\n")
        assert typed.err == "MEMORY.md: created, 1 added\n"

    def test_a_reply_that_can_t_be_read(self, typed: Typed, memory: Path) -> None:
        typed.stdin = b"no JSON here"
        assert typed("apply", str(memory), "-") == 1
        assert typed.out == self.MEMORY
        assert typed.err.startswith("MEMORY.md: reply not read (")

    def test_a_rule_that_nobody_typed(self, typed: Typed, memory: Path, folder: Path) -> None:
        (folder / "said").write_text("something else altogether")
        typed.stdin = self.ADD.replace("Architecture & Config Facts", "CRITICAL RULES").encode()
        assert typed("apply", str(memory), "-", "--typed", str(folder / "said")) == 0
        assert typed.out == self.MEMORY
        assert "refused" in typed.err

    def test_the_account_as_json(self, typed: Typed, memory: Path) -> None:
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-", "--json") == 0
        assert json.loads(typed.out)["added"] == 1

    def test_lines_in_and_lines_out(self, typed: Typed) -> None:
        case = json.dumps({"project": "alpha", "memory": self.MEMORY, "reply": self.ADD})
        typed.stdin = f"{case}\nrubbish\n{case}\n".encode()
        assert typed("apply", "--jsonl") == 0
        found = [json.loads(line) for line in typed.out.rstrip("\n").split("\n")]
        assert [answer.get("outcome") for answer in found] == ["changed", None, "changed"]
        assert "line 2" in found[1]["error"]

    def test_lines_of_a_file(self, typed: Typed, folder: Path) -> None:
        (folder / "cases").write_text("{}\n")
        assert typed("apply", "--jsonl", str(folder / "cases")) == 0
        assert "error" in json.loads(typed.out)

    def test_nothing_to_apply(self, typed: Typed) -> None:
        assert typed("apply") == 1
        assert typed.err.endswith("\ntry: memoryctl apply MEMORY.md reply.txt\n")

    def test_a_file_that_is_not_utf8(self, typed: Typed, memory: Path) -> None:
        memory.write_bytes(b"# a\xff")
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 1
        assert typed.err == f"memoryctl: cannot read {memory}: not UTF-8 at byte 3\n"


class TestConfig:
    TEXT = """\
memory_language = "de"
idle_save_after = "90 s"
exclude = ["~/x", "*/\\"q\\""]
[fork]
deadline = "2.5 min"
[projects."~/work/api"]
name = "api"
off = true
"""

    @pytest.fixture
    def file(self, folder: Path) -> Path:
        file = folder / "home/.config/memoryd/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(self.TEXT)
        return file

    def test_show_is_toml_that_means_the_same(
        self, typed: Typed, file: Path, env: dict[str, str]
    ) -> None:
        assert typed("config") == 0
        assert tomllib.loads(typed.out)["fork"]["deadline"] == "150 s"
        shown = config.parse(typed.out.encode(), file, env)
        assert shown.settings == config.load(env).settings

    def test_show_marks_the_defaults(self, typed: Typed, file: Path) -> None:
        assert file.exists()
        assert typed("config", "show") == 0
        assert 'memory_language = "de"\n' in typed.out
        assert 'headless = "full"  # default\n' in typed.out

    def test_show_as_json(self, typed: Typed, file: Path) -> None:
        assert file.exists()
        assert typed("config", "show", "--json") == 0
        assert json.loads(typed.out)["idle_save_after"] == 90.0

    def test_path(self, typed: Typed, file: Path) -> None:
        assert typed("config", "path") == 0
        assert typed.out == f"{file}\n"

    def test_check(self, typed: Typed, file: Path) -> None:
        assert typed("config", "check") == 0
        assert typed.out == f"{file} is right\n"
        file.unlink()
        assert typed("config", "check") == 0
        assert typed.out == f"{file} is not there: the defaults hold\n"


class TestPluginDir:
    def test_prints_a_folder_that_is_there(self, typed: Typed) -> None:
        assert typed("plugin-dir") == 0
        assert (Path(typed.out.rstrip("\n")) / "hooks" / "hooks.json").is_file()


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh"])
    def test_is_a_script_that_knows_every_command(self, typed: Typed, shell: str) -> None:
        assert typed("completion", shell) == 0
        assert all(name in typed.out for name in parser.names())

    def test_bash_can_read_it(self, typed: Typed) -> None:
        assert typed("completion", "bash") == 0
        bash = shutil.which("bash") or "/bin/bash"
        done = subprocess.run([bash, "-n"], input=typed.out.encode(), check=False)
        assert done.returncode == 0
