"""The backlog of owed turns: which save starts when.

Owns the queue in memory and the freeing of turns that wait for something. What is owed stands in the
ledger; a kill at any time leaves it there. What a save does and how it ends is `work`'s, which is loaded
with the first of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED, to_thread

from memoryd.core.queue import Job, Queue
from memoryd.daemon import log
from memoryd.daemon.sessions import reference
from memoryd.errors import MemorydError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import Ledger, Owed, Park, SessionRow

PARKED = 1e11
"""Unix seconds of a turn that the clock does not start: the year 5138, which SQLite and JSON can hold."""


class Work(Protocol):
    """What the backlog starts."""

    async def run(self, job: Job, cancelled: anyio.CancelScope) -> None:
        """Save the job's turn; `cancelled` is the scope of what a person may stop."""


class Backlog:
    """Starts saves; `work` loads what they need with the first of them."""

    def __init__(self, rooms: Rooms, work: Callable[[], Work]) -> None:
        self._rooms = rooms
        self._work = work
        self._queue = Queue(rooms.config().settings.max_parallel_saves)
        self._wake = anyio.Event()
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._network_parked = False
        self._network_unseen = False
        self._network_gone = False
        self._credentials_parked = False
        self._changed = False

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def owe(self, owed: Owed) -> None:
        """A turn is owed, and in the ledger already."""
        self._queue.owe(Job(owed.session, owed.project, owed.asked, owed.not_before))
        if owed.parked == "network":
            self._network_parked = self._network_unseen = True
        self._credentials_parked |= owed.parked == "credentials"
        self._wake.set()

    def owe_again(self, job: Job, not_before: float) -> None:
        """The ledger could not be asked about a turn: the queue keeps it until it can."""
        self._queue.owe(replace(job, not_before=not_before))
        self._wake.set()

    async def park(self, session: str, park: Park) -> None:
        """Let a session's turn wait for something."""

        def work(ledger: Ledger) -> Owed | None:
            owed = ledger.owed_by(session)
            if owed is not None:
                owed = msgspec.structs.replace(owed, not_before=PARKED, parked=park)
                ledger.put_owed(owed)
            return owed

        if (owed := await self._rooms.ledger.commit(work)) is not None:
            self.owe(owed)

    async def hasten(self, project: str, session: str = "") -> int:
        """Start what the project (or session) owes without waiting; how many turns that are."""
        freed = await self.free(
            lambda owed: owed.project == project and session in ("", owed.session)
        )
        return len(freed)

    async def last_try(self, session: str) -> None:
        """The session is over: what waits for its next turn is tried once more."""
        await self.free(lambda owed: owed.session == session and owed.parked == "turn")

    def cancel(self, project: str) -> bool:
        """Stop the project's save while it forks; whether there was one."""
        scope = self._scopes.get(project)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def pause(self, project: str, until: float) -> None:
        """Start no save of the project (core/queue's `ALL`: of any) before `until`."""
        self._queue.pause(project, until)

    def resume(self, project: str) -> bool:
        """End a pause; whether there was one."""
        until = self._queue.resume(project)
        self._wake.set()
        return until > self._rooms.clock.now()

    def paused(self) -> list[str]:
        """The names that a pause holds for now."""
        return self._queue.paused(self._rooms.clock.now())

    def configure(self) -> None:
        """The config changed: credentials may work now, what was excluded may not be."""
        self._queue.parallel = self._rooms.config().settings.max_parallel_saves
        self._changed = True
        self._wake.set()

    async def switched_on(self) -> None:
        """Memory was switched on somewhere: what waited for that may start."""
        await self.free(lambda owed: owed.parked == "off")

    def waiting(self, project: str) -> int:
        return self._queue.waiting(project)

    def saving(self, project: str) -> bool:
        """Whether a save of the project was started and has not ended."""
        return project in self._scopes

    def paused_until(self, project: str) -> float:
        return self._queue.paused_until(project)

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Start saves for as long as the daemon lives; first what an earlier one left."""
        pauses = await self._rooms.ledger.commit(lambda ledger: ledger.pauses())
        for project, until in pauses.items():
            self._queue.pause(project, until)
        for owed in await self._rooms.ledger.commit(lambda ledger: ledger.owed()):
            self.owe(owed)
        await self.free(lambda owed: owed.parked in ("network", "off"))
        self._network_parked = self._network_unseen = False
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                self._wake = anyio.Event()
                if self._changed:
                    await self._look_again()
                if self._network_unseen:
                    self._network_unseen = False
                    tasks.start_soon(self._see_network)
                now = self._rooms.clock.now()
                for job in self._queue.start(now):
                    tasks.start_soon(self._start, job)
                with anyio.move_on_after(self._queue.next_start(now) - now):
                    await self._wake.wait()

    async def _look_again(self) -> None:
        """After a change of the config."""
        self._changed = False
        try:
            await self.switched_on()
            await self.retry_credentials()
        except MemorydError as error:
            log.failure("owed turns were not looked at", error)

    async def _see_network(self) -> None:
        """A turn waits for the network from now on: it may be there, and the API overloaded."""
        self._network_gone = not await self._rooms.reachable()

    async def retry_network(self) -> None:
        """Let turns that wait for the network start where it was gone and is there again."""
        if self._network_parked:
            was_gone = self._network_gone
            await self._see_network()
            if was_gone and not self._network_gone:
                await self.network_is_back()

    async def network_is_back(self) -> None:
        """What waits for the network may try again: it is there, or a save got through."""
        if self._network_parked:
            self._network_parked = False
            await self.free(lambda owed: owed.parked == "network")

    async def retry_credentials(self) -> None:
        """Let turns that wait for a login or a key start where a backend can work now."""
        if not self._credentials_parked:
            return
        waiting = await self._rooms.ledger.commit(_waiting_for_credentials)
        self._credentials_parked = bool(waiting)
        for row in waiting:
            choice = await to_thread.run_sync(self._rooms.chooser.choose, reference(row))
            if choice.backend is not None:
                await self.free(partial(_is_of, row.id))

    async def _start(self, job: Job) -> None:
        """One save, from its start to its end."""
        scope = anyio.CancelScope()
        self._scopes[job.project] = scope
        try:
            await self._work().run(job, scope)
        finally:
            self._scopes.pop(job.project, None)
            self._rooms.runs.leave(job.project)
            self._queue.finish(job.project)
            self._wake.set()

    async def free(self, chosen: Callable[[Owed], bool]) -> list[Owed]:
        """Let the chosen of the turns that wait for something start at once."""

        def work(ledger: Ledger) -> list[Owed]:
            freed = [
                msgspec.structs.replace(
                    owed, not_before=0.0, parked="", attempts=0, retry_since=0.0
                )
                for owed in ledger.owed()
                if chosen(owed) and (owed.parked or owed.not_before)
            ]
            for owed in freed:
                ledger.put_owed(owed)
            return freed

        freed = await self._rooms.ledger.commit(work)
        for owed in freed:
            self.owe(owed)
        return freed


def _waiting_for_credentials(ledger: Ledger) -> list[SessionRow]:
    rows = (ledger.session(owed.session) for owed in ledger.owed() if owed.parked == "credentials")
    return [row for row in rows if row is not None]


def _is_of(session: str, owed: Owed) -> bool:
    return owed.session == session
