"""`memoryd` as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from house import REPOSITORY, adding, house, saying
from wire import short_dir

from memoryd import __main__, __version__
from memoryd.adapters.ledger import Ledger
from memoryd.daemon import instance
from memoryd.demo.script import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from house import House

STOP_LIMIT = 5.0
"""Seconds that a stop may take (5.3)."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as path:
        yield path


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for a daemon in this process; what a start changes of the process is taken back."""
    for name in list(os.environ):
        if name.startswith(("XDG_", "MEMORYD_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    umask = os.umask(0o022)
    yield folder
    os.umask(umask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])


def state(home: Path) -> Path:
    return home / ".local" / "state" / "memoryd"


def memory_root(home: Path) -> Path:
    return home / ".cli-tweaks" / "memory"


def configure(home: Path, toml: str) -> None:
    file = home / ".config" / "memoryd" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(toml)


class TestRefusing:
    """In this process: a refused start ends before anything heavy is loaded."""

    @pytest.mark.parametrize("held", ["state", "memory"])
    def test_another_daemon_runs(
        self, home: Path, capsys: pytest.CaptureFixture[str], held: str
    ) -> None:
        other = (
            (state(home), home / "other") if held == "state" else (home / "s", memory_root(home))
        )
        with instance.hold(*other):
            assert __main__.run([]) == 75
        said = capsys.readouterr().err
        assert said.startswith(f"memoryd: already running: pid {os.getpid()}")
        hint = "memoryctl status" if held == "state" else f"kill {os.getpid()}"
        assert said.endswith(f"try: {hint}\n")

    def test_a_wrong_config(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        configure(home, "retention_days = 0\n")
        assert __main__.run([]) == 78
        said = capsys.readouterr().err
        assert "config.toml:1: `retention_days`: expected `int` >= 1" in said
        assert "try: ${EDITOR:-vi} '" in said
        assert not memory_root(home).exists()

    def test_a_parent_that_everybody_may_write(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (home / ".local").mkdir()
        (home / ".local").chmod(0o777)
        assert __main__.run([]) == 78
        said = capsys.readouterr().err
        assert f"{home}/.local: is writable by everybody\ntry: chmod o-w '{home}/.local'" in said

    def test_a_memory_root_below_such_a_one(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (home / "open").mkdir()
        (home / "open").chmod(0o777)
        configure(home, 'memory_root = "~/open/m"\n')
        assert __main__.run([]) == 78
        assert f"{home}/open: is writable by everybody" in capsys.readouterr().err

    def test_a_memory_root_that_can_not_be_made(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (home / "file").write_text("x")
        configure(home, 'memory_root = "~/file/m"\n')
        assert __main__.run([]) == 1
        assert "memoryd: cannot make" in capsys.readouterr().err

    def test_a_socket_without_an_absolute_path(
        self,
        home: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("MEMORYD_SOCKET", "m.sock")
        assert __main__.run([]) == 78
        assert "MEMORYD_SOCKET must be an absolute path" in capsys.readouterr().err
        assert state(home).exists()

    def test_a_ledger_of_a_newer_version(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        state(home).mkdir(parents=True, mode=0o700)
        path = state(home) / "ledger.sqlite3"
        with sqlite3.connect(path) as newer:
            newer.execute("PRAGMA user_version = 999")
        newer.close()
        path.chmod(0o600)
        assert __main__.run([]) == 1
        assert "is newer than this memoryd's" in capsys.readouterr().err

    def test_what_a_start_takes_from_others(self, home: Path) -> None:
        configure(home, "x = 1\n")
        __main__.run([])
        assert os.umask(0o022) == 0o077
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)

    def test_the_console_script(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        configure(home, "x = 1\n")
        monkeypatch.setattr(sys, "argv", ["memoryd"])
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        assert ended.value.code == 78

    def test_its_options(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            __main__.run(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"memoryd {__version__}\n"
        with pytest.raises(SystemExit) as ended:
            __main__.run(["--no-such"])
        assert ended.value.code == 2


@pytest.mark.e2e
class TestProcess:
    def test_a_stop_ends_with_0_and_takes_the_sockets_along(self) -> None:
        with house() as home:
            assert home.stop() == 0
            assert not list(home.root.glob("run/*"))
            assert not (home.state / "control.sock").exists()
            assert not (home.state / "daemon").exists()
            assert "Traceback" not in home.log

    def test_with_hardly_an_environment(self, folder: Path) -> None:
        """As a supervisor starts it: no XDG_RUNTIME_DIR, no USER, no key."""
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
        with started(folder, env) as process:
            socket = state(folder) / "memoryd.sock"
            wait(socket.exists, process)
            assert memory_root(folder).stat().st_mode & 0o777 == 0o700
            process.terminate()
            assert process.wait(STOP_LIMIT) == 0
            assert not socket.exists()

    def test_a_log_file(self, folder: Path) -> None:
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
        log = folder / "logs" / "memoryd.log"
        with started(folder, env, "--log-file", str(log)) as process:
            wait(lambda: log.exists() and "ready" in log.read_text(), process)
            process.terminate()
            assert process.wait(STOP_LIMIT) == 0
        assert "stopped" in log.read_text()
        assert (folder / "stderr").read_bytes() == b""

    def test_a_deleted_socket_is_back_with_the_next_status(self) -> None:
        with house(lambda _: saying(adding("FACT-1 holds."))) as home:
            session = home.session(home.project())
            session.start()
            home.client.socket.unlink()
            session.turn("the build needs node 20, remember that")
            assert home.status().warnings == []
            assert home.client.socket.exists()
            home.wait_saved()
            assert "FACT-1 holds." in home.memory()

    @pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM] * 2])
    def test_a_stop_while_the_model_thinks(self, signals: list[signal.Signals]) -> None:
        hold = Event()
        with house(lambda _: text("never read", hold=hold)) as home:
            session = home.session(home.project())
            session.start()
            session.turn("the build needs node 20, remember that")
            home.api.wait_for(lambda call: call.is_messages)
            begun = time.monotonic()
            assert home.process is not None
            for number in signals:
                home.process.send_signal(number)
            assert home.process.wait(STOP_LIMIT) == 0
            assert time.monotonic() - begun < STOP_LIMIT
            assert not list(home.root.glob("run/*"))
            assert "Traceback" not in home.log
            assert not alive_below(home)
            hold.set()
            ledger = Ledger.open(home.state / "ledger.sqlite3").ledger
            assert [owed.session for owed in ledger.owed()] == [session.id]
            ledger.close()

    def test_a_stop_that_is_asked_for_until_it_has_ended(self) -> None:
        with house() as home:
            assert home.process is not None
            while home.process.poll() is None:
                home.process.send_signal(signal.SIGTERM)
            assert home.process.returncode == 0
            assert "Traceback" not in home.log

    def test_a_stop_while_it_starts(self, folder: Path) -> None:
        """At whatever instant it comes: no half daemon stays."""
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
        for delay in (0.0, 0.05, 0.1, 0.13, 0.16, 0.2):
            with started(folder, env) as process:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(delay)
                process.terminate()
                assert process.wait(STOP_LIMIT) in (0, -signal.SIGTERM)
                assert not list(state(folder).glob("*.sock"))

    def test_the_socket_can_not_be_bound(self, folder: Path) -> None:
        (folder / "s").mkdir()
        env = {
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(REPOSITORY),
            "MEMORYD_SOCKET": str(folder / "s"),
        }
        with started(folder, env) as process:
            assert process.wait(STOP_LIMIT) in (1, 78)
        said = (folder / "stderr").read_text()
        assert said.startswith("memoryd: ")
        assert "Traceback" not in said
        assert not (state(folder) / "daemon").exists()


class started:  # noqa: N801  used like a function
    """A daemon's process whose stderr is kept in `folder`; killed at the end of the block."""

    def __init__(self, folder: Path, env: dict[str, str], *arguments: str) -> None:
        with (folder / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "memoryd", *arguments],
                env=env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def wait(found: object, process: subprocess.Popen[bytes]) -> None:
    """Until that holds; a daemon that ends meanwhile is a fault."""
    assert callable(found)
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)


def alive_below(home: House) -> list[str]:
    """Processes whose environment names the house: the daemon's children."""
    wanted = f"HOME={home.home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found
