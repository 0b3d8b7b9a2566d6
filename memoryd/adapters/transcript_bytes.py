"""The bytes of one transcript: opened where a transcript may lie, read in blocks, searched backwards.

Owns the confinement (a repository's hooks may name any path) and the reading of lines of any length in
bounded memory. It must not know what a line says.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.errors import TranscriptError

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 128 * 1024
"""Bytes read at once: each `pread` lets the daemon's other threads run."""

SEARCH_BLOCK = 1024 * 1024

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes of the longest line that is looked at: images stand in lines of several megabytes."""

NOWHERE = -1

_SUFFIX = ".jsonl"
_SUBAGENTS = "subagents"


class TranscriptBytes:
    """An open transcript. Every call may raise TranscriptError."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self.device = status.st_dev
        self.inode = status.st_ino
        self.size = status.st_size

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset` on, fewer than `size` at the end of the file."""
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def lines(self, start: int, stop: int) -> Iterator[tuple[int, memoryview]]:
        """Each whole line from `start` up to `stop`: its offset and its bytes.

        A half last line is left for later; of a line over LINE_LIMIT there are no bytes. The bytes are
        a view on the block that was read.
        """
        at = position = start
        held = _Held()
        while block := self.read(position, min(BLOCK, stop - position)):
            view = memoryview(block)
            begin = 0
            while (end := block.find(b"\n", begin)) != NOWHERE:
                yield at, held.with_rest(view[begin:end]) if held.size else view[begin:end]
                begin = end + 1
                at = position + begin
            held.add(view[begin:])
            position += len(block)

    def rfind(self, needles: tuple[bytes, ...], before: int, floor: int) -> int:
        """Where the last of any of `needles` starts between `floor` and `before`, or NOWHERE."""
        overlap = max(map(len, needles)) - 1
        later = b""
        while before > floor:
            start = max(floor, before - SEARCH_BLOCK)
            block = self.read(start, before - start) + later
            found = max(block.rfind(needle) for needle in needles)
            if found >= 0:
                return start + found
            later = block[:overlap]
            before = start
        return NOWHERE

    def line_start(self, at: int) -> int:
        """Where the line starts that holds the byte `at`, up to LINE_LIMIT before it."""
        floor = max(0, at - LINE_LIMIT)
        found = self.rfind((b"\n",), at, floor)
        return floor if found == NOWHERE else found + 1

    def whole_end(self, start: int) -> int:
        """The offset behind the last whole line from `start` on."""
        found = self.rfind((b"\n",), self.size, start)
        return start if found == NOWHERE else found + 1

    def next_line(self, at: int) -> int:
        """`at` where a line starts there, else where the next one does; the end where there is none."""
        if at <= 0 or self.read(at - 1, 1) == b"\n":
            return max(0, at)
        while block := self.read(at, BLOCK):
            found = block.find(b"\n")
            if found != NOWHERE:
                return at + found + 1
            at += len(block)
        return self.size


@contextmanager
def opened(path: Path, root: Path) -> Iterator[TranscriptBytes]:
    """The transcript at `path`, a regular file of ours that really lies below `root`."""
    real = _real_path(path, root)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(real, flags)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        _check(path, os.fstat(descriptor))
        yield TranscriptBytes(path, descriptor)
    finally:
        os.close(descriptor)


def size_of(path: Path) -> int:
    """Bytes of the regular file at `path`; 0 where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _real_path(path: Path, root: Path) -> Path:
    try:
        real, top = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    except ValueError as error:
        raise TranscriptError(path, "has no possible path") from error
    if not path.is_absolute():
        raise TranscriptError(path, "has no absolute path")
    if not real.is_relative_to(top):
        raise TranscriptError(path, f"lies outside {root}")
    if real.suffix != _SUFFIX or path.suffix != _SUFFIX:
        raise TranscriptError(path, f"has a name that does not end with {_SUFFIX}")
    if _SUBAGENTS in real.relative_to(top).parts:
        raise TranscriptError(path, "is a subagent's")
    return real


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise TranscriptError(path, "is no regular file")
    if status.st_uid != os.geteuid():
        raise TranscriptError(path, f"belongs to uid {status.st_uid}")


class _Held:
    """The start of a line whose end is in a later block. NULs are dropped: a hole may be gigabytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        """Bytes of the line so far, NULs too."""
        self._kept = 0

    def add(self, view: memoryview) -> None:
        if not view:
            return
        part = bytes(view).replace(b"\0", b"")
        self.size += len(view)
        self._kept += len(part)
        self._parts.append(part)
        if self._kept > LINE_LIMIT:
            self._parts.clear()

    def with_rest(self, view: memoryview) -> memoryview:
        """The whole line; nothing is held from here on."""
        self.add(view)
        whole = b"".join(self._parts) if self._kept <= LINE_LIMIT else b""
        self._parts.clear()
        self.size = self._kept = 0
        return memoryview(whole)


def _unreadable(path: Path, error: OSError) -> TranscriptError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return TranscriptError(path, "missing")
    return TranscriptError(path, f"cannot be read ({error.strerror})")
