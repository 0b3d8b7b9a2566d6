"""What the outside owes the daemon, as Protocols, with the values that cross them.

The daemon knows these shapes only; `daemon/app.py` puts the adapters behind them. Every call here that
may block is either `async` or says that it belongs in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import msgspec

from memoryd.protocol import OpRecord, OwedReason, RunRecord, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from memoryd.core.failure import FailureKind
    from memoryd.core.project import Identity, Repository
    from memoryd.core.transcript import Reading

T = TypeVar("T")


# ── clock ──────────────────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def hhmm(self, at: float) -> str:
        """Local time of day of Unix seconds, `09:14`."""

    def day(self, at: float) -> str:
        """Local day of Unix seconds, `11-29`."""

    def day_start(self, at: float) -> float:
        """Unix seconds of the local midnight before `at`."""


# ── transcripts and repositories (blocking: call in a thread) ──────────────────────────────────────


class Transcripts(Protocol):
    def read(self, path: Path, root: Path, *, since: int) -> Reading:
        """The live branch of the transcript at `path` from its last compaction on.

        `root` is the host's projects folder that must really hold it; `since` the byte offset from
        which its activity counts. Reads only what was appended since the last call for this path.
        Raises TranscriptError.
        """

    def size(self, path: Path) -> int:
        """Bytes now; 0 where there is no file."""

    def forget(self, path: Path) -> None:
        """Drop what is remembered of it."""


class Repositories(Protocol):
    def look(self, directory: Path) -> Repository | None:
        """What the files around `directory` say of its repository; no git process runs.

        None where it is no absolute path: then there is no memory. Raises nothing.
        """

    def still_there(self, identity: Identity) -> bool:
        """Whether the place of an identity is still the recorded one: for `core/project.resolve`."""


# ── memory files ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """One file as it was read: `data` its bytes, `digest` their sha256 in hex."""

    name: str
    data: bytes
    digest: str

    def __repr__(self) -> str:
        return f"MemoryFile({self.name!r}, {len(self.data)} bytes, {self.digest[:8]})"


@dataclass(frozen=True, slots=True)
class MemoryState:
    """A project's directory as it was read; `memory` is None where there is no MEMORY.md."""

    directory: Path
    memory: MemoryFile | None
    topics: tuple[str, ...]
    """Names of the topic files, by code points."""


@dataclass(frozen=True, slots=True)
class FileWrite:
    """One file of a unit: `before` is the digest it was merged from, None where there was no file."""

    name: str
    data: bytes
    before: str | None

    def __repr__(self) -> str:
        return f"FileWrite({self.name!r}, {len(self.data)} bytes)"


class MemoryDir(Protocol):
    """The one writer of memory files. All calls block: call in a thread, one at a time per project.

    A name is that of a file directly in the directory. Raises StorageError (NotUtf8Error never: bytes
    in, bytes out).
    """

    def read(self, directory: Path) -> MemoryState: ...

    def read_file(self, directory: Path, name: str) -> MemoryFile | None: ...

    def stage(self, directory: Path, writes: list[FileWrite], run: str) -> list[StagedFile]:
        """Write each file's new text, synced, under a temporary name beside its target."""

    def publish(self, directory: Path, staged: StagedFile) -> bool:
        """Rename it into place if the target still has the digest `before`; else False."""

    def discard(self, directory: Path, staged: StagedFile) -> None:
        """Delete the temporary file; a missing one is fine."""

    def staged_exists(self, directory: Path, staged: StagedFile) -> bool: ...

    def back_up(self, directory: Path, data: bytes) -> None:
        """Keep the text before a rearrangement as MEMORY.pre-migration.md, older ones aside."""

    def keep_failed_reply(self, directory: Path, text: str) -> None: ...

    def sweep(self, directory: Path, keep: frozenset[str]) -> None:
        """Delete temporary files that a killed daemon left, but those named in `keep`."""


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A written temporary file that waits for its rename; stored in the ledger as the intent."""

    name: str
    temporary: str
    before: str | None
    after: str


class Watcher(Protocol):
    def watch(self, directory: Path) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Yields when something in `directory` may have changed: a hint, never a proof."""


# ── the fork ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SessionRef:
    """Where a session is, for a backend."""

    id: str
    transcript: Path
    config_dir: Path
    cwd: Path
    pid: int = 0
    executable: str = ""
    entrypoint: str = ""
    effort: str = ""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """One attempt. `conversation` is the canonical rendering, a text per turn, secrets masked."""

    attempt: str
    session: SessionRef
    message: str
    conversation: tuple[str, ...]
    deadline: float
    """Seconds."""
    shrunk: bool = False
    """The last attempt was too long: send at most half of it."""

    def __repr__(self) -> str:
        size = sum(len(part) for part in self.conversation)
        return (
            f"ForkRequest({self.attempt!r}, conversation of {size}, message of {len(self.message)})"
        )


@dataclass(frozen=True, slots=True)
class ForkReply:
    """The model's text and what it cost."""

    text: str
    model: str
    usage: Usage = field(default_factory=Usage)
    stop: Literal["end", "cut"] = "end"
    """`cut`: the model reached its limit; a text that can't be read then failed as `cut`."""

    def __repr__(self) -> str:
        return f"ForkReply({self.model!r}, {len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class ForkFailure:
    """Why there is no reply; classified by status and type, never by words in a text."""

    kind: FailureKind
    status: int = 0
    """HTTP status; 0 where no response came."""
    type: str = ""
    retry_after: float = 0.0
    """Seconds the server asked for; 0 where it did not."""
    usage: Usage = field(default_factory=Usage)
    model: str = ""


class ForkBackend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def on_subscription(self) -> bool:
        """Whether a fork takes from the person's own limit: then saves give way (5.5)."""

    def fault(self, session: SessionRef | None) -> str:
        """Why it can't work (for this session, or at all), or an empty string.

        A credential that was refused is a fault until the config or the login changes. Looks at
        files: call in a thread.
        """

    def warm(self) -> None:
        """A save is owed: start what takes long (the worker), without waiting."""

    def release(self) -> None:
        """The person asked (`save`, `resume`): try credentials that were refused again."""

    async def fork(self, request: ForkRequest) -> ForkReply | ForkFailure:
        """One attempt; cancelling it ends its process or request."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend that a save takes, and why; None: none can work, for the reasons given."""

    backend: ForkBackend | None
    reason: str


class Chooser(Protocol):
    def choose(self, session: SessionRef) -> Choice:
        """The first backend without a fault for this session. Looks at files: call in a thread."""

    def backends(self) -> tuple[ForkBackend, ...]: ...

    def release(self) -> None:
        """Of all backends."""


# ── the ledger ─────────────────────────────────────────────────────────────────────────────────────


class SessionRow(msgspec.Struct, kw_only=True):
    """A session as the ledger keeps it; the flags are those of core/turns."""

    id: str
    directory: str
    """Where the session started: fixes its project."""
    transcript: str = ""
    config_dir: str = ""
    pid: int = 0
    executable: str = ""
    entrypoint: str = ""
    attended: bool = True
    off: bool = False
    ended: bool = False
    effort: str = ""
    read_offset: int = 0
    """Bytes of the transcript that the last asked-for save covers."""
    asked: int = 0
    """How often a save was asked for, ever."""
    turn: dict[str, str | bool] = {}
    """core/turns flags, by name."""
    seen_at: float = 0.0


CANCELLED = "cancelled"
"""Failure of a run that a person stopped: nothing is wrong, and it counts as none."""

Park = Literal["", "turn", "network", "credentials", "off"]
"""A save that is not tried again by the clock: it waits for the session's next turn or end, for any save
that gets through, for a change of config or login, or until memory is on again."""


class Owed(msgspec.Struct, kw_only=True):
    """A turn (or several of one session) that waits for its save; one per session."""

    session: str
    project: str
    directory: str
    asked: int
    """Grows with each turn that asks: a save that took an older number leaves the turn owed."""
    reason: OwedReason = "answer"
    sure: bool = False
    """A prompt or a tool was seen; else the transcript has to show that there is something to read."""
    first_at: float = 0.0
    not_before: float = 0.0
    parked: Park = ""
    """What it waits for beside a time; empty: for nothing."""
    attempts: int = 0
    retry_since: float = 0.0
    transcript_seen: bool = False
    """The transcript was there when the turn asked."""
    last_answer: str = ""
    """The last assistant message, where the transcript may not hold it yet."""
    last_prompt: str = ""
    """Prompt id of the turn that it ended."""
    since: int = -1
    """Offset from which its transcript counts, once a save began to read it; a later try starts there."""
    run: str = ""
    """The run that took it, for a finished reply that is not to be paid for twice."""

    def __repr__(self) -> str:
        return f"Owed({self.session!r}, {self.project!r}, asked {self.asked})"


class Notices(msgspec.Struct, kw_only=True):
    """What the next fork of a project is told once: lines skipped, ops refused with the reason."""

    skipped: list[str] = []
    refused: list[str] = []
    offload: bool = False
    """What it would have written did not fit: make room first."""

    def __repr__(self) -> str:
        return f"Notices({len(self.skipped)} skipped, {len(self.refused)} refused)"


class Intent(msgspec.Struct, kw_only=True):
    """Staged files of a run that are to be published together, topics first.

    A file whose temporary file is gone was published; `published` names those of an earlier try, of which
    nothing waits where `files` is empty. `record`, `ops` and `notices` are what the run ends with.
    """

    run: str
    project: str
    directory: str
    files: list[StagedFile]
    published: list[StagedFile] = []
    record: RunRecord
    ops: list[OpRecord] = []
    notices: Notices = msgspec.field(default_factory=Notices)


class FileVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a run wrote: the digests of its texts, empty where there was no file."""

    name: str
    before: str
    after: str


class Ledger(Protocol):
    """The SQLite ledger, inside its thread: every method blocks and runs in one transaction.

    `put_…` adds or replaces; lists are in the order in which their rows were first put, `runs` newest
    first. What names a run (ops, reply, file version, intent) needs that run to be put before.
    """

    def first_seen(self, event: str, at: float) -> bool: ...
    def session(self, id: str) -> SessionRow | None: ...  # noqa: A002
    def sessions(self, *, ended: bool) -> list[SessionRow]: ...
    def put_session(self, row: SessionRow) -> None: ...
    def identities(self) -> list[Identity]: ...
    def put_identity(self, identity: Identity) -> None: ...
    def owed(self) -> list[Owed]: ...
    def owed_by(self, session: str) -> Owed | None: ...
    def put_owed(self, owed: Owed) -> None: ...
    def settle(self, session: str, asked: int) -> bool: ...
    def put_run(self, run: RunRecord) -> None: ...
    def run(self, id: str) -> RunRecord | None: ...  # noqa: A002
    def runs(self, project: str, *, limit: int, skipped: bool) -> list[RunRecord]: ...
    def unfinished_runs(self) -> list[RunRecord]: ...
    def put_ops(self, run: str, ops: list[OpRecord]) -> None: ...
    def put_reply(self, run: str, text: str) -> None: ...
    def reply(self, run: str) -> str | None: ...
    def put_version(self, data: bytes) -> str: ...
    def version(self, digest: str) -> bytes | None: ...
    def put_file_version(self, run: str, name: str, before: str, after: str) -> None: ...
    def file_versions(self, run: str) -> list[FileVersion]: ...
    def put_intent(self, intent: Intent) -> None: ...
    def close_intent(self, run: str) -> None: ...
    def intent(self, run: str) -> Intent | None: ...
    def intents(self) -> list[Intent]: ...
    def notices(self, project: str) -> Notices: ...
    def put_notices(self, project: str, notices: Notices) -> None: ...
    def add_event(self, project: str, run: str, at: float, text: str) -> None: ...
    def last_event(self, project: str) -> tuple[float, str] | None: ...
    def pauses(self) -> dict[str, float]: ...
    def put_pause(self, project: str, until: float) -> None: ...
    def switched_off(self) -> list[str]: ...
    def switch_project(self, project: str, *, off: bool) -> None: ...
    def failures(self, project: str) -> tuple[int, float, str]: ...
    def forks_since(self, backend: str, at: float) -> int: ...
    def usage_since(self, project: str, at: float) -> Usage: ...
    def count_start(self, project: str, at: float) -> None: ...
    def starts_since(self, project: str, at: float) -> int: ...
    def prune(self, *, older_than: float, max_bytes: int) -> int:
        """Runs that went with their texts: those that ended before, then the oldest above the size."""


class LedgerThread(Protocol):
    """The ledger from the event loop: works that wait together share one commit."""

    async def commit(self, work: Callable[[Ledger], T]) -> T:
        """`work`'s result, once its changes are on disk."""
