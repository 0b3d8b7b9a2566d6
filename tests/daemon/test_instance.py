from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wire import REPOSITORY, DaemonProcess, short_dir

from memoryd import __version__
from memoryd.daemon import instance
from memoryd.daemon.instance import HOLDER, hold
from memoryd.errors import AlreadyRunningError, StorageError, UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RACES = 30
STARTS = 8


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as directory:
        yield directory


def break_flock(monkeypatch: pytest.MonkeyPatch, code: int, *below: Path) -> None:
    """Make flock fail for what lies at or below these paths."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if any(path == each or each in path.parents for each in below):
            raise OSError(code, os.strerror(code))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_one_is_told_who_runs(folder: Path) -> None:
    with hold(folder / "state", folder / "memory") as held:
        assert not held.warnings
        with pytest.raises(AlreadyRunningError) as caught:
            hold(folder / "state", folder / "memory")
    assert str(caught.value) == (
        f"already running: pid {os.getpid()}, version {__version__}, {sys.executable} "
        f"holds {folder / 'state'}"
    )
    hold(folder / "state", folder / "memory").close()


def test_the_directories_are_made_private(folder: Path) -> None:
    with hold(folder / "a" / "state", folder / "b" / "memory"):
        for made in ("a/state", "b/memory"):
            assert (folder / made).stat().st_mode & 0o777 == 0o700


def test_one_memory_root_has_one_daemon_whatever_its_state_directory(folder: Path) -> None:
    with hold(folder / "one", folder / "memory"):
        with pytest.raises(AlreadyRunningError) as caught:
            hold(folder / "two", folder / "memory")
        assert caught.value.lock == folder / "memory"
        assert caught.value.holder.startswith(f"pid {os.getpid()}, ")
        assert "another state directory" in str(caught.value)
        assert caught.value.hint == f"kill {os.getpid()}"
        # The lock that it had got meanwhile is free again.
        hold(folder / "two", folder / "other").close()


def test_what_a_dead_daemon_left_in_our_state_names_nobody(folder: Path) -> None:
    with hold(folder / "one", folder / "memory"):
        (folder / "two").mkdir(mode=0o700)
        (folder / "two" / HOLDER).write_text("pid 99999999, version 0, x")
        with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}, "):
            hold(folder / "two", folder / "memory")


def test_state_and_memory_may_be_one_directory(folder: Path) -> None:
    hold(folder / "x", folder / "x").close()


def test_deleting_what_lies_in_the_directories_frees_nothing(folder: Path) -> None:
    with hold(folder / "state", folder / "memory"):
        (folder / "state" / HOLDER).unlink()
        with pytest.raises(AlreadyRunningError) as caught:
            hold(folder / "state", folder / "memory")
        assert caught.value.holder.startswith(f"pid {os.getpid()}, ")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"\x1b[31m", b"x" * 5000])
def test_the_file_that_names_the_holder_decides_nothing(folder: Path, text: bytes) -> None:
    with hold(folder / "state", folder / "memory") as held:
        (folder / "state" / HOLDER).write_bytes(text)
        with pytest.raises(AlreadyRunningError) as caught:
            hold(folder / "state", folder / "memory")
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 2000
        held.renew()
    with hold(folder / "state", folder / "memory"):
        assert __version__ in (folder / "state" / HOLDER).read_text()
    assert not (folder / "state" / HOLDER).exists()


def test_a_full_disk_stops_no_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with (
        hold(folder / "state", folder / "memory"),
        pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"),
    ):
        hold(folder / "state", folder / "memory")


def test_a_deleted_directory_is_locked_again(folder: Path) -> None:
    state, memory = folder / "state", folder / "memory"
    with hold(state, memory) as held:
        held.renew()
        (state / HOLDER).unlink()
        state.rmdir()
        memory.rmdir()
        held.renew()
        with pytest.raises(AlreadyRunningError):
            hold(state, memory)
        with pytest.raises(AlreadyRunningError):
            hold(folder / "other", memory)


def test_who_lost_its_directory_to_another_daemon_is_told(folder: Path) -> None:
    state, memory = folder / "state", folder / "memory"
    with hold(state, memory) as held:
        for directory in (state, memory):
            directory.rename(directory.with_suffix(".gone"))
        with hold(state, memory), pytest.raises(AlreadyRunningError):
            held.renew()


def test_directories_of_others_are_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(UnsafePathError, match="writable by everybody"):
        hold(folder / "state", folder / "memory")
    folder.chmod(0o700)
    (folder / "memory").mkdir()
    (folder / "memory").chmod(0o777)
    with pytest.raises(UnsafePathError, match="memory: is writable by everybody"):
        hold(folder / "state", folder / "memory")


def test_a_linked_memory_root_is_judged_by_where_it_leads(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "open" / "dotfiles").mkdir()
    (folder / "memory").symlink_to(folder / "open" / "dotfiles")
    with pytest.raises(UnsafePathError, match="open: is writable by everybody"):
        hold(folder / "state", folder / "memory")
    (folder / "open").chmod(0o755)
    with hold(folder / "state", folder / "memory"), pytest.raises(AlreadyRunningError):
        hold(folder / "other", folder / "open" / "dotfiles")


def test_a_memory_root_that_is_a_file_is_told(folder: Path) -> None:
    (folder / "memory").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        hold(folder / "state", folder / "memory")


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK, errno.ENOSYS])
def test_where_locks_do_not_work_there_is_a_warning_and_still_one(
    folder: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "_host_locks", lambda: folder / "host")
    break_flock(monkeypatch, code, folder / "state", folder / "memory")
    with hold(folder / "state", folder / "memory") as held:
        assert [(each.code, str(folder) in each.sentence) for each in held.warnings] == [
            ("no_locks", True)
        ] * 2
        with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"):
            hold(folder / "state", folder / "memory")
    hold(folder / "state", folder / "memory").close()


def test_where_no_lock_works_at_all_the_socket_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "_host_locks", lambda: folder / "host")
    break_flock(monkeypatch, errno.ENOLCK, Path("/"))
    with hold(folder / "state", folder / "memory") as held:
        assert len(held.warnings) == 2
        hold(folder / "state", folder / "memory").close()


def test_another_fault_of_the_lock_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_flock(monkeypatch, errno.EIO, folder)
    with pytest.raises(StorageError, match="cannot lock"):
        hold(folder / "state", folder / "memory")


def test_the_locks_come_before_what_is_slow_to_import() -> None:
    code = "import sys, memoryd.daemon.instance; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"asyncio", "anyio", "msgspec", "h11", "structlog", "logging", "sqlite3", "json"}
    assert not slow & set(done.stdout.split())


@pytest.fixture
def daemon(folder: Path) -> Callable[[], DaemonProcess]:
    return lambda: DaemonProcess(folder / "state", folder / "memory", folder / "run" / "s")


def leave_stale(path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.e2e
@pytest.mark.parametrize("locks", ["", str(errno.EBADF)], ids=["locks", "no locks"])
def test_of_many_starts_on_a_stale_socket_exactly_one_stays(folder: Path, locks: str) -> None:
    leave_stale(folder / "run" / "s")
    where = [str(folder / name) for name in ("state", "memory", "run/s", "host")]
    script = str(REPOSITORY / "tests" / "race.py")
    done = subprocess.run(
        [sys.executable, script, str(RACES), str(STARTS), *where, locks],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:-1] == [f"1 {STARTS - 1}"] * RACES


@pytest.mark.e2e
def test_of_some_daemons_started_at_once_one_stays(daemon: Callable[[], DaemonProcess]) -> None:
    with ExitStack() as stack:
        starts = [stack.enter_context(daemon()) for _ in range(STARTS)]
        ready = [start.wait_ready() for start in starts]
        assert ready.count(True) == 1
        for start, runs in zip(starts, ready, strict=True):
            if not runs:
                assert start.ended() == 75
                assert "already running: pid " in start.words()


@pytest.mark.e2e
def test_a_stopped_daemon_is_still_the_daemon(daemon: Callable[[], DaemonProcess]) -> None:
    with daemon() as first:
        assert first.wait_ready()
        first.signal(signal.SIGSTOP)
        with daemon() as second:
            assert not second.wait_ready()
            assert second.ended() == 75
        first.signal(signal.SIGCONT)
        assert first.ask("GET", "version").status == 200


@pytest.mark.e2e
@pytest.mark.parametrize("times", [1, 2])
def test_a_terminated_daemon_leaves_no_socket(
    folder: Path, daemon: Callable[[], DaemonProcess], times: int
) -> None:
    with daemon() as process:
        assert process.wait_ready()
        for _ in range(times):
            process.signal(signal.SIGTERM)
        assert process.ended() == 0
    assert not (folder / "run" / "s").exists()
    assert not (folder / "state" / "control.sock").exists()
    assert not (folder / "state" / HOLDER).exists()
