"""The daemon's sockets in the file system: bound safely, found missing, bound again, taken away.

Owns the socket file and the kernel's word on who connected. Knows no request. The instance's lock has
to be held first: a stale socket is replaced, and only the lock says that nobody else is about to.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

from memoryd import paths
from memoryd.daemon.caller import Peer
from memoryd.errors import AlreadyRunningError, StorageError, UnsafePathError

BACKLOG = 4096
"""Connections that the kernel keeps for a busy daemon (Linux allows as many)."""

SOL_LOCAL = 0
LOCAL_PEERCRED = 1
LOCAL_PEERPID = 2
"""macOS, <sys/un.h>: the level, and what to ask for."""

UCRED = struct.Struct("3i")
"""Linux: pid, uid, gid."""

XUCRED_HEAD = struct.Struct("=II")
"""macOS: version, uid; groups follow."""

XUCRED_SIZE = 76

Found = Literal["nothing", "stale", "alive"]
"""What is at a socket's path: no file, a socket that nobody listens on, or one that somebody does."""


class Listener:
    """A listening socket and its file. `adopted`: a supervisor's, never unlinked nor bound again."""

    def __init__(self, path: Path, sock: socket.socket, *, adopted: bool = False) -> None:
        self.path = path
        self.adopted = adopted
        self.socket = sock
        self._identity = None if adopted else _identity(path)

    def accept(self) -> tuple[socket.socket, Peer] | None:
        """The next connection, not blocking, and whose it is; None for another uid's, closed unread.

        Raises BlockingIOError where nobody waits, OSError where the system has no room.
        """
        sock, _ = self.socket.accept()
        try:
            sock.setblocking(False)
            peer = peer_of(sock)
        except OSError:
            sock.close()
            return None
        if peer.uid != os.geteuid():
            sock.close()
            return None
        return sock, peer

    def is_ours(self) -> bool:
        """The file at the path is still this socket's: clients find it."""
        return self.adopted or _identity(self.path) == self._identity

    def rebound(self) -> Listener:
        """A new listener at the same path, after the file or its directory was deleted.

        This one stays open for what had connected before. Raises as `bind` does: where another
        daemon listens there meanwhile, AlreadyRunningError.
        """
        return bind(self.path)

    def unlink(self) -> None:
        """Take the file away, where it is ours: nobody connects from now on."""
        if not self.adopted and self.is_ours():
            with suppress(OSError):
                self.path.unlink()

    def close(self) -> None:
        """Stop listening; take the file away first."""
        self.unlink()
        self.socket.close()


def bind(path: Path) -> Listener:
    """Listen on `path`, mode 0600, in a private directory of ours that is made where it is missing.

    A stale socket of ours is replaced. Raises UnsafePathError (the directory, or a file there that is
    no socket of ours), AlreadyRunningError (somebody listens there), StorageError.
    """
    paths.require_safe_parents(path)
    paths.require_private_dir(path.parent)
    if look(path) == "alive":
        raise AlreadyRunningError("another process", path)
    # Made beside its place and renamed: clients find the old socket or the new one, never none; and
    # nobody can connect before its mode is set, since it does not listen until then.
    beside = path.with_name(f"{path.name[:-1]}{'_' if path.name.endswith('~') else '~'}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        beside.unlink(missing_ok=True)
        sock.bind(os.fspath(beside))
        beside.chmod(0o600)
        sock.listen(BACKLOG)
        beside.rename(path)
        return Listener(path, sock)
    except OSError as error:
        sock.close()
        beside.unlink(missing_ok=True)
        raise StorageError(path, "bind", error.strerror or str(error)) from error


def adopt(descriptor: int) -> Listener:
    """The listening Unix socket that a supervisor opened; raises OSError where it is something else."""
    sock = socket.socket(fileno=descriptor)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        sock.detach()
        raise OSError(errno.EPROTOTYPE, "no Unix stream socket", str(descriptor))
    sock.setblocking(False)
    sock.set_inheritable(False)
    return Listener(Path(os.fsdecode(sock.getsockname())), sock, adopted=True)


def look(path: Path) -> Found:
    """What is at a socket's path. Raises UnsafePathError for anything but a socket of ours."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return "nothing"
    except OSError as error:
        raise UnsafePathError(path, error.strerror or "not readable") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise UnsafePathError(path, "is no socket", hint=f"mv '{path}' '{path}.aside'")
    if found.st_uid != os.geteuid():
        raise UnsafePathError(path, f"belongs to uid {found.st_uid}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return _verdict(path, probe.connect_ex(os.fspath(path)))


def peer_of(sock: socket.socket) -> Peer:
    """The process at the other end when it connected; raises OSError where the system won't say."""
    if sys.platform == "darwin":
        raw = sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_SIZE)
        _, uid = XUCRED_HEAD.unpack_from(raw)
        try:
            return Peer(uid, sock.getsockopt(SOL_LOCAL, LOCAL_PEERPID))
        except OSError:
            return Peer(uid)
    pid, uid, _ = UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    return Peer(uid, pid)


def _verdict(path: Path, code: int) -> Found:
    if code in (0, errno.EAGAIN, errno.EINPROGRESS):
        # EAGAIN: its queue is full, so somebody listens.
        return "alive"
    if code == errno.ECONNREFUSED:
        return "stale"
    if code == errno.ENOENT:
        return "nothing"
    raise UnsafePathError(path, f"is a socket of another kind ({os.strerror(code)})")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
