"""A disk that fails, and a process that dies, at a chosen point of its work.

Points are the system calls on files below a directory, and the ledger's commits (before and after
each). At the chosen one either an OSError comes out, or a `Killed`; a dead process does nothing any
more, so that every point behind it raises `Killed` too.
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import pytest

    from memoryd import ports

T = TypeVar("T")

CALLS = (
    "open",
    "fsync",
    "fchmod",
    "chown",
    "setxattr",
    "getxattr",
    "listxattr",
    "rename",
    "replace",
    "link",
    "unlink",
    "mkdir",
    "listdir",
)


class Killed(BaseException):
    """The process died here."""


class Faults:
    """What goes wrong at which point; nothing does outside of `armed`."""

    def __init__(self, patch: pytest.MonkeyPatch, below: Path) -> None:
        self._below = os.path.realpath(below)
        self._armed = False
        self._at = 0
        self._error: Callable[[], BaseException] = Killed
        self.dead = False
        self.passed: list[str] = []
        """The points of the last time that it was armed."""
        for name in CALLS:
            if hasattr(os, name):
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
        real = os.fdopen
        patch.setattr(os, "fdopen", lambda *args, **more: self._file(real(*args, **more)))

    @contextmanager
    def armed(self, at: int, error: Callable[[], BaseException] = Killed) -> Iterator[None]:
        """Within it `error` comes out of the point with that number, from 1."""
        self._at, self._error, self.passed = at, error, []
        self._armed = True
        try:
            yield
        finally:
            self._armed = self.dead = False

    def each(
        self, error: Callable[[], BaseException] = Killed
    ) -> Iterator[AbstractContextManager[None]]:
        """A way to arm each point in turn, until one was passed by without being reached."""
        for at in count(1):
            yield self.armed(at, error)
            if len(self.passed) < at:
                return

    def point(self, name: str) -> None:
        """Here something may go wrong."""
        if self.dead:
            raise Killed(name)
        if not self._armed:
            return
        self.passed.append(name)
        if len(self.passed) == self._at:
            error = self._error()
            self.dead = isinstance(error, Killed)
            raise error

    def _counted(self, name: str, real: Callable[..., T]) -> Callable[..., T]:
        @wraps(real)
        def call(*args: Any, **more: Any) -> T:
            if self._ours(args[0] if args else "."):
                self.point(name)
            return real(*args, **more)

        return call

    def _ours(self, where: object) -> bool:
        if isinstance(where, int):
            try:
                path = str(Path(f"/proc/self/fd/{where}").readlink())
            except OSError:
                return False
        else:
            path = os.fsdecode(where) if isinstance(where, str | bytes | os.PathLike) else ""
        return path.startswith(self._below) or os.path.realpath(path).startswith(self._below)

    def _file(self, file: Any) -> Any:
        return _File(self, file) if self._ours(file.fileno()) else file


class _File:
    """An open file whose writes and reads are points."""

    def __init__(self, faults: Faults, real: Any) -> None:
        self._faults = faults
        self._real = real

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._real.close()

    def write(self, data: bytes) -> int:
        """Half of it, where the disk is full."""
        try:
            self._faults.point("write")
        except BaseException:
            self._real.write(data[: len(data) // 2])
            self._real.flush()
            raise
        return int(self._real.write(data))

    def read(self, size: int) -> bytes:
        self._faults.point("read")
        return bytes(self._real.read(size))

    def fileno(self) -> int:
        return int(self._real.fileno())

    def flush(self) -> None:
        self._faults.point("flush")
        self._real.flush()


@contextmanager
def disk_full(size: int) -> Iterator[None]:
    """No file of this process grows above `size`."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class FaultyLedger:
    """Implements ports.LedgerThread over the real one: each commit may be the last."""

    def __init__(self, real: ports.LedgerThread, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    async def commit(self, work: Callable[[ports.Ledger], T]) -> T:
        self._faults.point("before commit")
        result = await self._real.commit(work)
        self._faults.point("after commit")
        return result
