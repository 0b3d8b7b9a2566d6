"""Runs and their events: kept in the ledger, told to whoever follows.

Owns what happens when a run enters a state. Knows nothing of how a save works.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from memoryd.protocol import EventShown, RunChanged, RunRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectSendStream

    from memoryd.ports import Clock, Ledger, LedgerThread
    from memoryd.protocol import RunState

Line = RunChanged | EventShown

BACKLOG = 1000
"""Lines that wait for a slow follower before it is let go."""

LOOKED_THROUGH = 20
"""Runs among which the last save is looked for."""


class Runs:
    """The record of each save while it lives."""

    def __init__(self, ledger: LedgerThread, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._followers: set[MemoryObjectSendStream[Line]] = set()
        self._live: dict[str, RunRecord] = {}

    def live(self, project: str) -> RunRecord | None:
        """The run that is being saved now, as it was last told."""
        return self._live.get(project)

    async def enter(self, run: RunRecord, state: RunState) -> RunRecord:
        """The run in a new state, recorded; a crash later finds it there."""
        entered = msgspec.structs.replace(run, state=state)
        await self._ledger.commit(lambda ledger: ledger.put_run(entered))
        self.tell(entered)
        return entered

    def tell(self, run: RunRecord) -> None:
        """Show a run that was recorded to those who follow."""
        if run.ended_at:
            self._live.pop(run.project, None)
        else:
            self._live[run.project] = run
        self._send(RunChanged(run=run))

    def leave(self, project: str) -> None:
        """The project's save ended without an outcome: its turn waits again."""
        self._live.pop(project, None)

    async def happened(self, run: RunRecord, also: Callable[[Ledger], None]) -> None:
        """Record what was done without a save, together with `also`, and show it."""

        def work(ledger: Ledger) -> None:
            also(ledger)
            ledger.put_run(run)
            self.record_event(ledger, run)

        await self._ledger.commit(work)
        self.tell(run)
        self.tell_event(run)

    def record_event(self, ledger: Ledger, run: RunRecord) -> None:
        """Within a transaction: keep the run's sentence for the person."""
        if run.event:
            ledger.add_event(run.project, run.id, self._clock.now(), run.event)

    def tell_event(self, run: RunRecord) -> None:
        """Show the run's sentence to those who follow."""
        if run.event:
            self._send(EventShown(project=run.project, at=self._clock.now(), text=run.event))

    @asynccontextmanager
    async def follow(self, project: str) -> AsyncIterator[AsyncIterator[Line]]:
        """Lines from now on; of one project, or of all where `project` is empty."""
        send, receive = anyio.create_memory_object_stream[Line](BACKLOG)
        self._followers.add(send)
        try:
            async with receive:
                yield (line async for line in receive if _concerns(line, project))
        finally:
            self._followers.discard(send)
            send.close()

    def _send(self, line: Line) -> None:
        for follower in list(self._followers):
            try:
                follower.send_nowait(line)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                self._followers.discard(follower)
                follower.close()


def last_save(ledger: Ledger, project: str) -> RunRecord | None:
    """The project's last run that was a save: what was done without one has no session."""
    found = ledger.runs(project, limit=LOOKED_THROUGH, skipped=False)
    return next((run for run in found if run.session), None)


def _concerns(line: Line, project: str) -> bool:
    if not project:
        return True
    return project == (line.run.project if isinstance(line, RunChanged) else line.project)
