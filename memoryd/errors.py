"""The exception tree.

Says who must act and carries the facts as attributes; each class builds its own sentence.
An expected outcome (skipped, refused, unreadable reply) is a value and has no exception here.

    MemorydError
    ├── ConfigError           the person mends config.toml
    ├── UnsafePathError       the person mends a directory (exit 78)
    ├── AlreadyRunningError   nobody: another daemon serves (exit 75)
    ├── NotRunningError       the person starts the daemon (exit 3)
    ├── StorageError          a file could not be read or written: path and verb
    │   ├── NotUtf8Error      the person mends the file's encoding
    │   └── UnwrittenError    the person makes room: the ledger's file can't be written
    ├── LedgerError           the ledger can't be used
    │   └── NewerLedgerError  the person updates memoryd
    ├── TranscriptError       the named transcript is missing or not to be trusted
    └── RequestError          the client sent something wrong (4xx)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class MemorydError(Exception):
    """Any error of ours; `str()` is one sentence, `hint` the command to type or empty."""

    hint: str = ""


class ConfigError(MemorydError):
    """A setting is unknown, of a wrong type or out of range; or the file can't be read."""

    def __init__(self, path: Path, line: int, fact: str, *, hint: str = "") -> None:
        self.path = path
        self.line = line
        self.fact = fact
        self.hint = hint or f"${{EDITOR:-vi}} '{path}'"
        super().__init__(path, line, fact)

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{where}: {self.fact}"


class UnsafePathError(MemorydError):
    """A directory or socket that others could write to, or that is not ours."""

    def __init__(self, path: Path, fact: str, *, hint: str = "") -> None:
        self.path = path
        self.fact = fact
        self.hint = hint
        super().__init__(path, fact)

    def __str__(self) -> str:
        return f"{self.path}: {self.fact}"


class AlreadyRunningError(MemorydError):
    """Another daemon holds the lock."""

    def __init__(self, holder: str, lock: Path, *, hint: str = "memoryctl status") -> None:
        self.holder = holder
        self.lock = lock
        self.hint = hint
        super().__init__(holder, lock)

    def __str__(self) -> str:
        return f"already running: {self.holder or 'unknown process'} holds {self.lock}"


class NotRunningError(MemorydError):
    """No daemon answers on the socket; `fact` says what is there instead."""

    hint = "memoryctl start"

    def __init__(self, path: Path, fact: str) -> None:
        self.path = path
        self.fact = fact
        super().__init__(path, fact)

    def __str__(self) -> str:
        return f"memoryd does not answer: {self.fact} ({self.path})"


class StorageError(MemorydError):
    """A file call failed; `verb` is what was tried, `cause` the system's words."""

    def __init__(self, path: Path | str, verb: str, cause: str, *, hint: str = "") -> None:
        self.path = path
        self.verb = verb
        self.cause = cause
        self.hint = hint
        super().__init__(path, verb, cause)

    def __str__(self) -> str:
        return f"cannot {self.verb} {self.path}: {self.cause}"


class NotUtf8Error(StorageError):
    """A memory file is not UTF-8; `offset` is that of its first bad byte, from 0."""

    def __init__(self, path: Path | str, offset: int, *, hint: str = "") -> None:
        self.offset = offset
        super().__init__(path, "read", f"not UTF-8 at byte {offset}", hint=hint)


class UnwrittenError(StorageError):
    """The ledger's file could not be read or written: a full disk, one that fails.

    Nothing of what was to be stored is, and the same will work once the disk does.
    """

    def __init__(self, path: Path, verb: str, cause: str) -> None:
        super().__init__(path, verb, cause, hint=f"df -h '{path.parent}'")


class LedgerError(MemorydError):
    """The ledger can't be used."""

    def __init__(self, path: Path, fact: str) -> None:
        self.path = path
        self.fact = fact
        super().__init__(path, fact)

    def __str__(self) -> str:
        return f"ledger {self.path}: {self.fact}"


class NewerLedgerError(LedgerError):
    """The ledger was written by a newer memoryd; it is left untouched."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            path, f"schema {found} is newer than this memoryd's {known}: update memoryd"
        )


class TranscriptError(MemorydError):
    """A transcript is missing, or lies where no transcript of the host can lie."""

    def __init__(self, path: Path | str, fact: str) -> None:
        self.path = path
        self.fact = fact
        super().__init__(path, fact)

    def __str__(self) -> str:
        return f"transcript {self.fact}: {self.path}"


class RequestError(MemorydError):
    """A request the client must mend: an HTTP status from 400, a code, a sentence, a hint."""

    def __init__(self, status: int, code: str, sentence: str, hint: str) -> None:
        self.status = status
        self.code = code
        self.sentence = sentence
        self.hint = hint
        super().__init__(status, code, sentence)

    def __str__(self) -> str:
        return self.sentence
