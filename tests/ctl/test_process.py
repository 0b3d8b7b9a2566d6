from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from answering import AnsweringDaemon, Reply
from shells import Typed
from wire import short_dir

import memoryd
from memoryd import __version__
from memoryd.ctl import commands_life, process
from memoryd.ctl.client import Client
from memoryd.ctl.process import LastWord, StartError
from memoryd.errors import NotRunningError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = str(Path(memoryd.__file__).parents[1])


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as path:
        (path / "home").mkdir(mode=0o700)
        yield path


@pytest.fixture
def env(folder: Path) -> Iterator[dict[str, str]]:
    """A person's environment of its own; a daemon that is still there at the end is stopped."""
    found = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    yield found
    with suppress(NotRunningError):
        process.stop(found)


class TestEnvironment:
    PERSON: ClassVar = {
        "HOME": "/home/user",
        "PATH": "/bin",
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "XDG_STATE_HOME": "/s",
        "MEMORYD_SOCKET": "/s/socket",
        "HTTPS_PROXY": "http://proxy",
        "ANTHROPIC_API_KEY": "made-up",
        "ANTHROPIC_BASE_URL": "http://gateway",
        "CLAUDE_CONFIG_DIR": "/home/user/.claude-work",
        "CLAUDE_CODE_USE_BEDROCK": "1",
    }
    SESSION: ClassVar = {
        "CLAUDECODE": "1",
        "CLAUDE_PID": "7",
        "CLAUDE_CODE_SESSION_ID": "s1",
        "CLAUDE_CODE_SESSION_ATTENDED": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "CLAUDE_CODE_CHILD_SESSION": "1",
        "CLAUDE_CODE_MESSAGING_TOKEN": "made-up",
        "CLAUDE_PROJECT_DIR": "/p",
        "CLAUDE_PLUGIN_ROOT": "/r",
        "CLAUDE_EFFORT": "high",
        "CLAUDE_ENV_FILE": "/e",
        "AI_AGENT": "x",
    }
    NOT_FOR_US: ClassVar = {"MEMORYD_CHILD": "1", "MEMORYD_DISABLE": "1", "PYTHONPATH": "/x"}

    def test_a_person_s_own_goes_on(self) -> None:
        found = process.environment({**self.PERSON, **self.NOT_FOR_US})
        assert found == {**self.PERSON, "PYTHONPATH": CHECKOUT}

    def test_what_describes_a_session_does_not(self) -> None:
        session = {name: value for name, value in self.SESSION.items() if name != "CLAUDECODE"}
        found = process.environment({**self.PERSON, **session})
        assert found == {**self.PERSON, "PYTHONPATH": CHECKOUT}

    def test_inside_a_session_only_what_it_needs(self) -> None:
        found = process.environment({**self.PERSON, **self.SESSION, **self.NOT_FOR_US})
        kept = ("HOME", "PATH", "LANG", "LC_TIME", "XDG_STATE_HOME", "MEMORYD_SOCKET")
        wanted = {name: self.PERSON[name] for name in kept}
        assert found == {**wanted, "PYTHONPATH": CHECKOUT}

    def test_an_installed_memoryd_is_found_by_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = "/venv/lib/python3.11/site-packages/memoryd/__init__.py"
        monkeypatch.setattr(memoryd, "__file__", installed)
        assert process.environment(self.PERSON) == self.PERSON


class TestLastWord:
    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("", LastWord("")),
            ('{"event": "stopped"}\n', LastWord("stopped")),
            ('{"event": "x", "fact": "the disk is full"}\n', LastWord("the disk is full")),
            ("Traceback\nImportError: no h11\n", LastWord("ImportError: no h11")),
            ("memoryd: /c:3: a fact\ntry: a b\n", LastWord("/c:3: a fact", "a b")),
            ("[1]\n", LastWord("[1]")),
        ],
    )
    def test_is_a_sentence_and_a_command(self, tmp_path: Path, text: str, word: LastWord) -> None:
        earlier = '{"event": "earlier"}\n'
        log = tmp_path / "log"
        log.write_text(earlier + text)
        assert process.last_word(log, len(earlier)) == word

    def test_of_no_log_is_nothing(self, tmp_path: Path) -> None:
        assert process.last_word(tmp_path / "none", 0) == LastWord("")


@pytest.mark.e2e
class TestARealDaemon:
    def test_starts_answers_and_stops(self, env: dict[str, str], folder: Path) -> None:
        started = process.start(env)
        assert started.fresh
        assert started.version.version == __version__
        assert started.socket == folder / "home/.local/state/memoryd/memoryd.sock"
        again = process.start(env)
        assert not again.fresh
        assert again.version.pid == started.version.pid
        assert process.stop(env) == started.version.pid
        assert not started.socket.exists()
        with pytest.raises(NotRunningError):
            process.stop(env)

    def test_restarts(self, env: dict[str, str]) -> None:
        typed = Typed(env)
        assert typed("restart") == 0
        first = process.start(env).version.pid
        assert typed("restart") == 0
        second = process.start(env).version.pid
        assert first != second
        assert typed.out == (
            f"memoryd {__version__} started, process {second},"
            " on ~/.local/state/memoryd/memoryd.sock\n"
        )
        assert typed("stop") == 0
        assert typed.out == f"memoryd stopped, process {second}\n"

    def test_outlives_the_command_and_its_terminal(self, env: dict[str, str]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "memoryd.ctl.main", "start"],
            env={**env, "PYTHONPATH": CHECKOUT},
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        pid = process.start(env).version.pid
        assert f"process {pid}," in done.stdout
        assert os.getsid(pid) == pid
        assert Path(f"/proc/{pid}/cwd").readlink() == Path(env["HOME"])

    def test_inherits_nothing_of_a_session(self, env: dict[str, str]) -> None:
        env.update(CLAUDECODE="1", ANTHROPIC_API_KEY="made-up", CLAUDE_CODE_SESSION_ID="s1")
        pid = process.start(env).version.pid
        inherited = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = {entry.partition(b"=")[0] for entry in inherited if entry}
        assert names == {b"HOME", b"PATH", b"LANG", b"PYTHONPATH"}

    def test_a_wrong_setting_is_named(self, env: dict[str, str], folder: Path) -> None:
        file = folder / "home/.config/memoryd/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text("headles = 'full'\n")
        typed = Typed(env)
        assert typed("start") == 1
        assert typed.err == (
            f"memoryctl: memoryd did not start: {file}:1: unknown setting `headles`\n"
            f"try: ${{EDITOR:-vi}} '{file}'\n"
        )

    def test_a_second_one_for_the_same_memory_is_named(
        self, env: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "QUICKER_LIMIT", 0.1)
        first = process.start(env).version.pid
        other = {**env, "MEMORYD_SOCKET": str(folder / "s")}
        control = folder / "home/.local/state/memoryd/control.sock"
        control.rename(control.with_name("hidden"))
        with pytest.raises(StartError, match=f"already running: pid {first}, version") as raised:
            process.start(other)
        assert raised.value.hint == "memoryctl status"

    def test_started_several_times_at_once_it_is_one(self, env: dict[str, str]) -> None:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(process.start, [env] * 4))
        assert len({started.version.pid for started in found}) == 1
        assert [started.fresh for started in found].count(True) == 1

    def test_a_missing_module_is_named(
        self, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        package = folder / "memoryd"
        package.mkdir()
        (package / "__init__.py").touch()  # else an installed memoryd would come first
        (package / "__main__.py").write_text("import no_such_module\n")
        monkeypatch.setattr(process, "_checkout", lambda: str(folder))
        with pytest.raises(StartError, match="No module named 'no_such_module'"):
            process.start(env)

    def test_one_that_says_nothing_is_not_left_behind(
        self, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        package = folder / "memoryd"
        package.mkdir()
        (package / "__init__.py").touch()  # else an installed memoryd would come first
        (package / "__main__.py").write_text("import time; time.sleep(60)\n")
        monkeypatch.setattr(process, "_checkout", lambda: str(folder))
        monkeypatch.setattr(process, "START_LIMIT", 0.1)
        with pytest.raises(StartError, match=r"no answer within 0\.1 s"):
            process.start(env)


class TestWhatIsInTheWay:
    def test_a_daemon_that_hangs_is_not_doubled(
        self, env: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        env["MEMORYD_SOCKET"] = str(folder / "s")
        monkeypatch.setattr(process, "Client", partial(Client, limit=0.05))
        with (
            AnsweringDaemon(folder / "s", lambda _: None),
            pytest.raises(NotRunningError, match="gave no answer"),
        ):
            process.start(env)
        assert not process.log_file(env).exists()

    @pytest.mark.parametrize("command", ["stop", "restart"])
    def test_a_socket_that_has_to_be_mended_first_is_not_passed_over(
        self, env: dict[str, str], folder: Path, command: str
    ) -> None:
        env["MEMORYD_SOCKET"] = str(folder / "s")
        typed = Typed(env)
        with AnsweringDaemon(folder / "s", Reply()):
            folder.chmod(0o755)
            assert typed(command) == 3
        assert typed.err.endswith(f"\ntry: chmod 700 '{folder}'\n")

    def test_a_socket_s_folder_that_others_can_enter(
        self, env: dict[str, str], folder: Path
    ) -> None:
        env["MEMORYD_SOCKET"] = str(folder / "s")
        with AnsweringDaemon(folder / "s", Reply()):
            folder.chmod(0o755)
            with pytest.raises(NotRunningError, match="open to others"):
                process.start(env)


class TestLogs:
    LINE = (
        '{"project": "alpha", "ops": ["1 applied"], "event": "save",'
        ' "level": "info", "timestamp": "2026-11-30T09:14:05.5Z"}'
    )

    @pytest.fixture
    def log(self, env: dict[str, str]) -> Path:
        file = process.log_file(env)
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"line {number}\n" for number in range(100)) + self.LINE + "\n")
        return file

    def test_the_last_lines_as_they_are(self, env: dict[str, str], log: Path) -> None:
        assert log.exists()
        typed = Typed(env)
        assert typed("logs", "-n", "2") == 0
        assert typed.out == f"line 99\n{self.LINE}\n"

    def test_all_of_a_short_log(self, env: dict[str, str], log: Path) -> None:
        log.write_text("one\n")
        typed = Typed(env)
        assert typed("logs") == 0
        assert typed.out == "one\n"

    def test_readable_on_a_terminal(self, env: dict[str, str], log: Path, utc: None) -> None:
        assert utc is None
        log.write_text(f"{self.LINE}\nno JSON \x1b[2J\n")
        typed = Typed(env, terminal=True)
        assert typed("logs") == 0
        assert typed.out == (
            "11-30 09:14:05 info     save  project=alpha  ops=1 applied\nno JSON \\u{1b}[2J\n"
        )

    def test_a_long_line_breaks_between_words_on_a_terminal(
        self, env: dict[str, str], log: Path, utc: None
    ) -> None:
        assert utc is None
        log.write_text(f"{self.LINE}\n\nend\n")
        typed = Typed(env, terminal=True, width=45)
        assert typed("logs") == 0
        assert typed.out == (
            "11-30 09:14:05 info     save  project=alpha\n    ops=1 applied\n\nend\n"
        )

    def test_followed_as_lines_are_added(self, log: Path) -> None:
        lines = commands_life._followed(log, 1)
        assert next(lines) == self.LINE
        with log.open("a") as file:
            file.write("new\n")
        assert next(lines) == "new"
        lines.close()

    def test_none_yet(self, env: dict[str, str]) -> None:
        typed = Typed(env)
        assert typed("logs") == 1
        assert typed.err.endswith("\ntry: memoryctl start\n")
