"""One daemon per state directory and memory root: locks on both, held for the process's life.

Owns who may run. It comes before the sockets and before what is slow to import. The lock alone
decides: the file that names its holder is for people, and nobody is signalled by what it says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memoryd import __version__, paths
from memoryd.core.text import printable
from memoryd.errors import AlreadyRunningError, StorageError, UnsafePathError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from memoryd.protocol import Warned

HOLDER: Final = "daemon"
"""In the state directory: pid, version and program of the holder, as a second start shows them."""

HOLDER_LIMIT = 1000
"""Characters of it."""

NO_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system says that can't lock a directory (NFS: EBADF or ENOLCK)."""


class Instance:
    """The right to be the daemon; `close` or the process's end gives it up."""

    def __init__(self, state: Path, locks: list[Lock]) -> None:
        self._state = state
        self._locks = locks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """One for each directory where locks do not work; the socket then says who runs."""
        return tuple(_no_locks_on(lock.directory) for lock in self._locks if not lock.works)

    def renew(self) -> None:
        """Lock a directory again that was deleted and made anew. Meant for once a minute.

        Raises AlreadyRunningError where another daemon was quicker, UnsafePathError, StorageError.
        """
        for lock in self._locks:
            if lock.lost():
                _made(lock.directory, private=lock.directory == self._state)
                lock.take()
        self._introduce()

    def close(self) -> None:
        if _read_holder(self._state) == _ourselves():
            with suppress(OSError):
                (self._state / HOLDER).unlink()
        for lock in self._locks:
            lock.close()

    def _introduce(self) -> None:
        if _read_holder(self._state) == _ourselves():
            return
        beside = self._state / f"{HOLDER}.new"
        # A full disk stops no start: the kernel knows the holder too.
        with suppress(OSError):
            beside.write_text(_ourselves())
            beside.replace(self._state / HOLDER)


class Lock:
    """An flock on a directory itself, so that deleting what lies in it frees nothing.

    Where the directory's file system can't, on a file for it in a private directory of this machine,
    and `works` is False.
    """

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory = directory
        self.works = True
        self._state = state
        self._descriptor = -1
        self._identity = (0, 0)

    def take(self) -> None:
        """Raises AlreadyRunningError with who holds it, StorageError."""
        descriptor = _opened(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        found = os.fstat(descriptor)
        try:
            _flock(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise self._held(found) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in NO_LOCKS:
                raise StorageError(self.directory, "lock", error.strerror or str(error)) from error
            self.works = False
            descriptor = _host_lock(self.directory, self._state)
        self.close()
        self._descriptor = descriptor
        self._identity = found.st_dev, found.st_ino

    def _held(self, directory: os.stat_result) -> AlreadyRunningError:
        if self.directory == self._state:
            holder = _read_holder(self._state) or _holder_by_kernel(directory)
            return AlreadyRunningError(holder, self.directory)
        # Our own state directory is free: who has this one keeps its state elsewhere, and what lies in
        # ours was left by somebody who died.
        holder = _holder_by_kernel(directory)
        pid = holder.partition(",")[0].removeprefix("pid ")
        holder = f"{holder or 'unknown process'}, a daemon with another state directory,"
        return AlreadyRunningError(holder, self.directory, hint=f"kill {pid}" if pid else "")

    def lost(self) -> bool:
        """The path no longer leads to the directory that is locked."""
        try:
            found = self.directory.stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def hold(state: Path, memory_root: Path) -> Instance:
    """The locks on both directories, which are made where they are missing.

    Raises AlreadyRunningError with pid, version and program of the holder; UnsafePathError where
    others could swap or write a directory; StorageError.
    """
    locks: list[Lock] = []
    try:
        for directory in dict.fromkeys((state, memory_root)):
            _made(directory, private=directory == state)
            lock = Lock(directory, state)
            locks.append(lock)
            lock.take()
        instance = Instance(state, locks)
        instance._introduce()  # noqa: SLF001  the maker of the value
    except BaseException:
        for lock in locks:
            lock.close()
        raise
    return instance


def _made(directory: Path, *, private: bool) -> None:
    if private:
        paths.require_safe_parents(directory)
        paths.require_private_dir(directory)
        return
    try:
        paths.make_dir(directory)
    except OSError as error:
        raise StorageError(directory, "make", error.strerror or str(error)) from error
    # The memory may be linked into dotfiles: what counts is where the link leads.
    for path in {directory, directory.resolve()}:
        paths.require_safe_parents(path / "any file")


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise StorageError(path, "open", error.strerror or str(error)) from error


def _flock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _host_locks() -> Path:
    return Path(f"/tmp/memoryd-{os.geteuid()}")  # noqa: S108  checked private


def _host_lock(directory: Path, state: Path) -> int:
    """The lock that stands for `directory` among this machine's processes; -1 where there is none."""
    private = _host_locks()
    name = sha256(os.fsencode(directory.resolve())).hexdigest()[:12]
    try:
        paths.require_private_dir(private)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = _opened(private / f"{name}.lock", flags)
    except (UnsafePathError, StorageError):
        return -1
    try:
        _flock(descriptor)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise AlreadyRunningError(_read_holder(state), directory) from None
        return -1
    return descriptor


def _ourselves() -> str:
    return printable(f"pid {os.getpid()}, version {__version__}, {sys.executable}")[:HOLDER_LIMIT]


def _read_holder(state: Path) -> str:
    """What the holder says of itself, or empty."""
    try:
        return printable((state / HOLDER).read_text()[:HOLDER_LIMIT])
    except (OSError, ValueError):
        return ""


def _holder_by_kernel(directory: os.stat_result) -> str:
    """The same from Linux's list of locks, where the file is gone or in another state directory."""
    where = f"{os.major(directory.st_dev):02x}:{os.minor(directory.st_dev):02x}:{directory.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().split("\n")
        fields = [line.split() for line in lines if f" {where} " in line and "FLOCK" in line]
        pid = next((words[4] for words in fields if words[1] == "FLOCK"), "")
        return f"pid {pid}, {Path(f'/proc/{pid}/exe').readlink()}" if pid else ""
    except OSError:
        return ""


def _no_locks_on(directory: Path) -> Warned:
    # msgspec is not loaded for the sake of a second start that ends at once.
    from memoryd.protocol import Warned  # noqa: PLC0415

    sentence = f"locks do not work on {directory}: the socket alone says whether a daemon runs"
    return Warned(code="no_locks", sentence=sentence)
