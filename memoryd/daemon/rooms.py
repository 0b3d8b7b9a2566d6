"""What the rooms of the daemon share; `app` makes each once.

Those that a start does not need are made, and their modules loaded, at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from memoryd.config import Config
    from memoryd.daemon.holds import Holds
    from memoryd.daemon.memories import Memories
    from memoryd.daemon.runs import Runs
    from memoryd.ports import Chooser, Clock, LedgerThread, MemoryDir, Transcripts, Watcher


class Rooms(Protocol):
    """Where a room finds the others."""

    @property
    def clock(self) -> Clock: ...

    @property
    def ledger(self) -> LedgerThread: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def holds(self) -> Holds: ...

    @property
    def files(self) -> MemoryDir: ...

    @property
    def memories(self) -> Memories: ...

    @property
    def transcripts(self) -> Transcripts: ...

    @property
    def watcher(self) -> Watcher: ...

    @property
    def chooser(self) -> Chooser: ...

    def config(self) -> Config:
        """The settings as they are now."""

    def new_id(self) -> str:
        """For a run, an attempt: ten hex digits."""

    async def reachable(self) -> bool:
        """Whether there is a network to send requests over."""

    def secrets(self) -> tuple[str, ...]:
        """Exact values that may stand nowhere: the daemon's own."""
