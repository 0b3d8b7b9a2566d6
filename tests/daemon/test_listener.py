from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wire import short_dir

from memoryd.daemon import listener
from memoryd.daemon.caller import Peer
from memoryd.daemon.listener import Listener, adopt, bind, look, peer_of
from memoryd.errors import AlreadyRunningError, StorageError, UnsafePathError
from memoryd.paths import SOCKET_PATH_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as directory:
        yield directory


def leave_stale(path: Path) -> None:
    """What a killed daemon leaves."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_the_socket_is_private_and_listens(folder: Path) -> None:
    bound = bind(folder / "run" / "memoryd.sock")
    assert stat.S_IMODE(bound.path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(bound.path.parent.lstat().st_mode) == 0o700
    assert connects(bound.path)
    assert [each.name for each in bound.path.parent.iterdir()] == ["memoryd.sock"]
    bound.close()
    assert not list(bound.path.parent.iterdir())


def test_it_never_blocks(folder: Path) -> None:
    bound = bind(folder / "s")
    with pytest.raises(BlockingIOError):
        bound.accept()
    bound.close()


def test_a_stale_socket_is_replaced(folder: Path) -> None:
    leave_stale(folder / "s")
    leave_stale(folder / "~")
    assert look(folder / "s") == "stale"
    bound = bind(folder / "s")
    assert look(folder / "s") == "alive"
    assert bound.is_ours()
    bound.close()
    assert look(folder / "s") == "nothing"


def test_a_live_socket_is_left_alone(folder: Path) -> None:
    first = bind(folder / "s")
    with pytest.raises(AlreadyRunningError):
        bind(folder / "s")
    assert connects(folder / "s")
    first.close()


def test_a_socket_with_a_full_queue_is_alive(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(folder / "s"))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(folder / "s"))
            assert look(folder / "s") == "alive"
            assert look(folder / "s") == "alive"


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling", "datagram"])
def test_what_is_no_socket_of_ours_stays(folder: Path, kind: str) -> None:
    path = folder / "s"
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    match kind:
        case "file":
            path.write_text("kept")
        case "directory":
            path.mkdir()
        case "datagram":
            other.bind(str(path))
        case _:
            if kind == "link":
                leave_stale(folder / "target")
            path.symlink_to(folder / "target")
    before = path.lstat()
    with other, pytest.raises(UnsafePathError):
        bind(path)
    assert path.lstat() == before


def test_a_folder_of_others_is_refused(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(UnsafePathError, match="open to others"):
        bind(folder / "s")
    folder.chmod(0o777)
    (folder / "mine").mkdir(mode=0o700)
    with pytest.raises(UnsafePathError, match="writable by everybody"):
        bind(folder / "mine" / "s")


def test_a_path_that_is_too_long_is_told(folder: Path) -> None:
    longest = folder / ("s" * (SOCKET_PATH_LIMIT - len(str(folder)) - 1))
    bind(longest).close()
    with pytest.raises(StorageError, match="cannot bind"):
        bind(folder / ("s" * 120))


def test_only_our_own_file_is_taken_away(folder: Path) -> None:
    first = bind(folder / "s")
    first.path.unlink()
    assert not first.is_ours()
    second = first.rebound()
    first.close()
    assert second.is_ours()
    assert connects(second.path)
    second.close()


def test_an_adopted_socket_is_never_taken_away(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(folder / "s"))
        passed.listen()
        adopted = adopt(os.dup(passed.fileno()))
    assert adopted.path == folder / "s"
    assert adopted.is_ours()
    assert not adopted.socket.get_inheritable()
    assert connects(folder / "s")
    adopted.close()
    assert (folder / "s").exists()


def test_only_a_unix_stream_socket_is_adopted(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        with pytest.raises(OSError, match="no Unix stream socket"):
            adopt(other.fileno())
        other.bind(str(folder / "s"))


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_of(ours) == Peer(os.geteuid(), os.getpid())


def test_a_peer_that_is_gone_is_still_known(folder: Path) -> None:
    bound = bind(folder / "s")
    code = f"import socket; s=socket.socket(socket.AF_UNIX); s.connect({str(bound.path)!r}); s.send(b'x')"
    subprocess.run([sys.executable, "-c", code], check=True)
    accepted = bound.accept()
    assert accepted is not None
    sock, peer = accepted
    assert peer.uid == os.geteuid()
    assert sock.recv(9) == b"x"
    sock.close()
    bound.close()


def test_another_uid_is_closed_unread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind(folder / "s")
    monkeypatch.setattr(listener, "peer_of", lambda _: Peer(os.geteuid() + 1))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(bound.path))
        assert bound.accept() is None
        assert client.recv(9) == b""
    bound.close()


def test_a_peer_that_the_system_does_not_name_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: socket.socket) -> Peer:
        raise OSError

    bound = bind(folder / "s")
    monkeypatch.setattr(listener, "peer_of", silent)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(bound.path))
        assert bound.accept() is None
    bound.close()


def test_the_record_of_macos_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mac:
        def getsockopt(self, level: int, option: int, size: int = 0) -> bytes | int:
            assert level == 0
            if option == listener.LOCAL_PEERPID:
                return 31
            assert (option, size) == (listener.LOCAL_PEERCRED, 76)
            return (0).to_bytes(4, sys.byteorder) + (501).to_bytes(4, sys.byteorder) + bytes(68)

    monkeypatch.setattr(sys, "platform", "darwin")
    assert peer_of(Mac()) == Peer(501, 31)  # type: ignore[arg-type]


def test_a_failed_bind_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, _mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "chmod", full)
    with pytest.raises(StorageError, match="No space left"):
        bind(folder / "s")
    assert not list(folder.iterdir())


def test_listeners_are_compared_by_being_the_same(folder: Path) -> None:
    bound = bind(folder / "s")
    assert len({bound, Listener(bound.path, bound.socket)}) == 2
    bound.close()
