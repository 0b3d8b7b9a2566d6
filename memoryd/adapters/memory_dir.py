"""The one writer of memory files: reading a project's directory, staging and publishing texts.

Bytes in, bytes out; what they mean is core's. Every call blocks and belongs in a thread, one at a time
for a project. A text is written under a temporary name beside its target, synced, and renamed onto it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.core.memory.files import BACKUP_FILE, FAILED_REPLY_FILE, MEMORY_FILE
from memoryd.errors import StorageError
from memoryd.ports import FileWrite, MemoryFile, MemoryState, StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_LIMIT = 4 * 1024 * 1024
"""Bytes of a memory file that are read; the caps keep ours far below."""

NEW_FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_BACKUP = re.compile(r"MEMORY\.pre-migration(?:-(\d+))?\.md\Z")
_TEMPORARY = ".memoryd-"
_BEING_BACKED_UP = f"{_TEMPORARY}backup.tmp"
_BEING_KEPT = f"{_TEMPORARY}failed-reply.tmp"


class MemoryFiles:
    """Implements ports.MemoryDir. `home` bounds where a symbolic link may lead."""

    def __init__(self, home: Path) -> None:
        self._home = Path(os.path.realpath(home))

    def read(self, directory: Path) -> MemoryState:
        """MEMORY.md and the names of what lies beside it; a missing directory is an empty one."""
        self._follow(directory)
        topics = tuple(
            name
            for name in sorted(_names(directory))
            if not _BACKUP.match(name) and _is_topic(directory / name)
        )
        return MemoryState(directory, self.read_file(directory, MEMORY_FILE), topics)

    def read_file(self, directory: Path, name: str) -> MemoryFile | None:
        """One file's bytes, or None where there is none. Raises StorageError."""
        path = self._target(directory, name)
        with _told(path, "read"):
            data = _read_regular(path)
        if data is None:
            return None
        if len(data) > FILE_LIMIT:
            raise StorageError(path, "read", f"over {FILE_LIMIT} bytes", hint=_aside(path))
        return MemoryFile(name, data, sha256(data).hexdigest())

    def stage(self, directory: Path, writes: list[FileWrite], run: str) -> list[StagedFile]:
        """Write each text, synced, beside its target; nothing stays where one fails."""
        self._make(directory)
        staged: list[StagedFile] = []
        try:
            for number, write in enumerate(writes):
                staged.append(self._stage(directory, write, f"{_TEMPORARY}{run}-{number}.tmp"))
            for parent in {self._target(directory, file.name).parent for file in staged}:
                _sync_directory(parent)
        except BaseException:
            for file in staged:
                with suppress(StorageError):
                    self.discard(directory, file)
            raise
        return staged

    def publish(self, directory: Path, staged: StagedFile) -> bool:
        """Rename a staged text onto its target, unless that is no longer what it was made from."""
        target = self._target(directory, staged.name)
        found = self.read_file(directory, staged.name)
        if (found.digest if found else None) != staged.before:
            return False
        with _told(target, "replace"):
            (target.parent / staged.temporary).rename(target)
        _sync_directory(target.parent)
        return True

    def discard(self, directory: Path, staged: StagedFile) -> None:
        """Delete a staged text; a missing one is fine."""
        path = self._target(directory, staged.name).parent / staged.temporary
        with _told(path, "delete"):
            path.unlink(missing_ok=True)

    def staged_exists(self, directory: Path, staged: StagedFile) -> bool:
        """Whether a staged text still waits for its rename."""
        path = self._target(directory, staged.name).parent / staged.temporary
        with _told(path, "look at"):
            return path.exists()

    def back_up(self, directory: Path, data: bytes) -> None:
        """Keep a text before its rearrangement; an older backup moves aside first."""
        self._follow(directory)
        path = directory / BACKUP_FILE
        with _told(path, "write"):
            if os.path.lexists(path):
                if path.is_file() and path.read_bytes() == data:
                    return
                path.rename(directory / _next_backup(_names(directory)))
        _replace(path, directory / _BEING_BACKED_UP, data)
        _sync_directory(directory)

    def keep_failed_reply(self, directory: Path, text: str) -> None:
        """Keep a reply that could not be read, in place of the one before."""
        self._make(directory)
        path = directory / FAILED_REPLY_FILE
        _replace(path, directory / _BEING_KEPT, text.encode("utf-8", "replace"))

    def sweep(self, directory: Path, keep: frozenset[str]) -> None:
        """Delete the temporary files of a killed daemon, but for those in `keep`."""
        self._follow(directory)
        places = {directory}
        for name in _names(directory):
            if (directory / name).is_symlink():
                with suppress(StorageError):
                    places.add(self._target(directory, name).parent)
        for place in places:
            for name in _names(place):
                if name.startswith(_TEMPORARY) and name.endswith(".tmp") and name not in keep:
                    with _told(place / name, "delete"):
                        (place / name).unlink(missing_ok=True)

    def _stage(self, directory: Path, write: FileWrite, temporary: str) -> StagedFile:
        target = self._target(directory, write.name)
        path = target.parent / temporary
        with _told(path, "write"):
            path.unlink(missing_ok=True)
            try:
                _write_new(path, write.data, _mode(target))
                _keep_owner_and_attributes(target, path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return StagedFile(
            name=write.name,
            temporary=temporary,
            before=write.before,
            after=sha256(write.data).hexdigest(),
        )

    def _make(self, directory: Path) -> None:
        self._follow(directory)
        with _told(directory, "make"):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)

    def _target(self, directory: Path, name: str) -> Path:
        """The file of that name, through its links; raises StorageError where one leads astray."""
        self._follow(directory)
        return self._follow(directory / name)

    def _follow(self, path: Path) -> Path:
        """Where `path` leads: itself where it is no link.

        A link may lead to a place inside the person's own home, and that has to be there: writing
        through a dangling link would make a file where nobody looks for it.
        """
        with _told(path, "follow"):
            if not path.is_symlink():
                return path
            target = Path(os.path.realpath(path))
            if self._home not in target.parents:
                fact = f"the link leads out of the home directory, to {target}"
                raise StorageError(path, "follow", fact, hint=_aside(path))
            if not target.exists():
                fact = f"the link leads nowhere: {target}"
                raise StorageError(path, "follow", fact, hint=_aside(path))
        return target


def _names(directory: Path) -> list[str]:
    with _told(directory, "list"):
        try:
            return [path.name for path in directory.iterdir()]
        except FileNotFoundError:
            return []


def _is_topic(path: Path) -> bool:
    """A Markdown file other than MEMORY.md. A name that is not UTF-8 could stand in no message."""
    name = path.name
    if not name.endswith(".md") or name.casefold() == MEMORY_FILE.casefold():
        return False
    return name.isprintable() and path.is_file()


def _read_regular(path: Path) -> bytes | None:
    """A regular file's bytes, at most one more than FILE_LIMIT; None where there is no file."""
    try:
        # a pipe that nobody writes to would be waited for
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(path, "read", "no regular file", hint=_aside(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_LIMIT + 1)
    finally:
        os.close(descriptor)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # the umask must not take from a mode that is kept
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, temporary: Path, data: bytes) -> None:
    """A file of our own, whole at every instant."""
    with _told(path, "write"):
        temporary.unlink(missing_ok=True)
        try:
            _write_new(temporary, data, NEW_FILE_MODE)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _mode(target: Path) -> int:
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return NEW_FILE_MODE


def _keep_owner_and_attributes(target: Path, path: Path) -> None:
    """Group and extended attributes as they were, as far as we may set them."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.chown(path, -1, found.st_gid)
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        for name in os.listxattr(target):
            with suppress(OSError):  # those of the system are not ours to set
                os.setxattr(path, name, os.getxattr(target, name))


def _next_backup(names: list[str]) -> str:
    found = (_BACKUP.match(name) for name in names)
    numbers = [int(match[1] or 1) for match in found if match]
    return f"MEMORY.pre-migration-{max(numbers, default=1) + 1}.md"


def _sync_directory(directory: Path) -> None:
    with _told(directory, "sync"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without it
                raise
        finally:
            os.close(descriptor)


@contextmanager
def _told(path: Path, verb: str) -> Iterator[None]:
    """Turn an OSError into a StorageError with path and verb."""
    try:
        yield
    except OSError as error:
        room = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"df -h '{path.parent}'" if room else f"ls -ld '{path}'"
        raise StorageError(path, verb, error.strerror or str(error), hint=hint) from error


def _aside(path: Path) -> str:
    """The command that makes room for a file of the name, and deletes nothing."""
    return f"mv '{path}' '{path}.aside'"
