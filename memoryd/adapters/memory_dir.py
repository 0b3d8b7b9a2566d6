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

_BACKUP = re.compile(r"MEMORY_FILE\.pre-migration(?:-(\d+))?\.md\Z")
_TEMPORARY = ".memoryd-"


class MemoryFiles:
    """Implements ports.MemoryDir. `home` bounds where a symbolic link may lead."""

    def __init__(self, home: Path) -> None:
        self._home = Path(os.path.realpath(home))

    def read(self, directory: Path) -> MemoryState:
        """MEMORY.md and the names of what lies beside it; a missing directory is an empty one."""
        names = sorted(_names(directory))
        backups = tuple(name for name in names if _BACKUP.match(name))
        topics = tuple(
            name
            for name in names
            if name.endswith(".md")
            and name.casefold() != MEMORY_FILE.casefold()
            and name not in backups
        )
        return MemoryState(directory, self.read_file(directory, MEMORY_FILE), topics, backups)

    def read_file(self, directory: Path, name: str) -> MemoryFile | None:
        """One file's bytes, or None where there is none. Raises StorageError."""
        path = self._target(directory / name)
        with _told(path, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise StorageError(path, "read", "no regular file")
                data = file.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            raise StorageError(path, "read", f"over {FILE_LIMIT} bytes")
        return MemoryFile(name, data, sha256(data).hexdigest())

    def stage(self, directory: Path, writes: list[FileWrite], run: str) -> list[StagedFile]:
        """Write each text, synced, beside its target; nothing stays where one fails."""
        with _told(directory, "make"):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        staged: list[StagedFile] = []
        try:
            for number, write in enumerate(writes):
                staged.append(self._stage(directory, write, f"{_TEMPORARY}{run}-{number}.tmp"))
            for parent in {self._target(directory / file.name).parent for file in staged}:
                _sync_directory(parent)
        except BaseException:
            for file in staged:
                with suppress(StorageError):
                    self.discard(directory, file)
            raise
        return staged

    def publish(self, directory: Path, staged: StagedFile) -> bool:
        """Rename a staged text onto its target, unless that is no longer what it was made from."""
        target = self._target(directory / staged.name)
        found = self.read_file(directory, staged.name)
        if (found.digest if found else None) != staged.before:
            return False
        with _told(target, "replace"):
            (target.parent / staged.temporary).rename(target)
        _sync_directory(target.parent)
        return True

    def discard(self, directory: Path, staged: StagedFile) -> None:
        """Delete a staged text; a missing one is fine."""
        path = self._target(directory / staged.name).parent / staged.temporary
        with _told(path, "delete"):
            path.unlink(missing_ok=True)

    def staged_exists(self, directory: Path, staged: StagedFile) -> bool:
        """Whether a staged text still waits for its rename."""
        return (self._target(directory / staged.name).parent / staged.temporary).exists()

    def back_up(self, directory: Path, data: bytes) -> None:
        """Keep a text before its rearrangement; an older backup moves aside first."""
        path = directory / BACKUP_FILE
        with _told(path, "write"):
            if path.exists():
                if path.read_bytes() == data:
                    return
                path.rename(directory / _next_backup(_names(directory)))
            _write_new(path, data, NEW_FILE_MODE)
        _sync_directory(directory)

    def keep_failed_reply(self, directory: Path, text: str) -> None:
        """Keep a reply that could not be read, in place of the one before."""
        path = directory / FAILED_REPLY_FILE
        temporary = directory / f"{_TEMPORARY}failed-reply.tmp"
        with _told(path, "write"):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            _write_new(temporary, text.encode("utf-8", "replace"), NEW_FILE_MODE)
            temporary.rename(path)

    def sweep(self, directory: Path, keep: frozenset[str]) -> None:
        """Delete the temporary files of a killed daemon, but for those in `keep`."""
        places = {directory}
        for name in _names(directory):
            path = directory / name
            if path.is_symlink():
                with suppress(StorageError):
                    places.add(self._target(path).parent)
        for place in places:
            for name in _names(place):
                if name.startswith(_TEMPORARY) and name.endswith(".tmp") and name not in keep:
                    with _told(place / name, "delete"):
                        (place / name).unlink(missing_ok=True)

    def _stage(self, directory: Path, write: FileWrite, temporary: str) -> StagedFile:
        target = self._target(directory / write.name)
        path = target.parent / temporary
        with _told(path, "write"):
            path.unlink(missing_ok=True)
            _write_new(path, write.data, _mode(target))
            _keep_owner_and_attributes(target, path)
        return StagedFile(
            name=write.name,
            temporary=temporary,
            before=write.before,
            after=sha256(write.data).hexdigest(),
        )

    def _target(self, path: Path) -> Path:
        """The file that `path` is, through its links; raises StorageError where one leads astray.

        A link may lead to a file inside the person's own home, and that file has to be there: writing
        through a dangling link would make a file where nobody looks for it.
        """
        if not path.is_symlink():
            return path
        target = Path(os.path.realpath(path))
        if self._home not in target.parents:
            raise StorageError(
                path, "follow", f"the link leads out of the home directory, to {target}"
            )
        if path.is_symlink() and not target.exists():
            raise StorageError(path, "follow", f"the link leads nowhere: {target}")
        return target


def _names(directory: Path) -> list[str]:
    with _told(directory, "list"):
        try:
            return [path.name for path in directory.iterdir()]
        except FileNotFoundError:
            return []


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    with os.fdopen(descriptor, "wb") as file:
        try:
            os.fchmod(descriptor, mode)  # the umask must not take from a mode that is kept
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
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
        raise StorageError(path, verb, error.strerror or str(error)) from error
