"""The backlog of owed turns: which save starts when, and what its end does to the turn.

Owns the queue in memory, waits between tries, and what a parked turn waits for. What is owed stands in
the ledger; a kill at any time leaves it there.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED, to_thread

from memoryd.core import failure, redact
from memoryd.core.memory import report
from memoryd.core.queue import Job, Queue
from memoryd.daemon import log
from memoryd.daemon.commit import Outcome
from memoryd.daemon.saver import Failed, Later, Lost, Skipped, reference
from memoryd.daemon.sessions import turn_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from memoryd.daemon.projects import Projects
    from memoryd.daemon.saver import Ending, Rooms, Saver, Taken
    from memoryd.ports import Ledger, Owed, Park, SessionRow
    from memoryd.protocol import RunRecord

PARKED = 1e11
"""Unix seconds of a turn that the clock does not start: the year 5138, which SQLite and JSON can hold."""

CLOSE_LIMIT = 5.0
"""Seconds that the end of a save may take to reach the ledger when the daemon stops."""


class Backlog:
    """Starts saves. `jitter` gives numbers from 0 to 1."""

    def __init__(
        self, saver: Saver, rooms: Rooms, projects: Projects, jitter: Callable[[], float]
    ) -> None:
        self._saver = saver
        self._rooms = rooms
        self._projects = projects
        self._jitter = jitter
        self._queue = Queue(rooms.config().settings.max_parallel_saves)
        self._wake = anyio.Event()
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._network_parked = False

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def owe(self, owed: Owed) -> None:
        """A turn is owed, and in the ledger already."""
        self._queue.owe(Job(owed.session, owed.project, owed.asked, owed.not_before))
        self._network_parked |= owed.parked == "network"
        self._wake.set()

    async def hasten(self, project: str, session: str = "") -> int:
        """Start what the project (or session) owes without waiting; how many turns that are."""
        freed = await self._free(
            lambda owed: owed.project == project and session in ("", owed.session)
        )
        return len(freed)

    def cancel(self, project: str) -> bool:
        """Stop the project's save while it forks; whether there was one."""
        scope = self._scopes.get(project)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def pause(self, project: str, until: float) -> None:
        """Start no save of the project (core/queue's `ALL`: of any) before `until`."""
        self._queue.pause(project, until)

    def resume(self, project: str) -> None:
        """End a pause."""
        self._queue.resume(project)
        self._wake.set()

    def configure(self) -> None:
        """The config changed: credentials may work now."""
        self._queue.parallel = self._rooms.config().settings.max_parallel_saves
        self._wake.set()

    def waiting(self, project: str) -> int:
        return self._queue.waiting(project)

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
        await self._free(lambda owed: owed.parked == "network")
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                self._wake = anyio.Event()
                now = self._rooms.clock.now()
                for job in self._queue.start(now):
                    tasks.start_soon(self._work, job)
                with anyio.move_on_after(self._queue.next_start(now) - now):
                    await self._wake.wait()

    async def retry_credentials(self) -> None:
        """Let turns that wait for a login or a key start where a backend can work now."""
        for row in await self._rooms.ledger.commit(_waiting_for_credentials):
            choice = await to_thread.run_sync(self._rooms.chooser.choose, reference(row))
            if choice.backend is not None:
                await self._free(partial(_is_of, row.id))

    async def _work(self, job: Job) -> None:
        """One save from its start to its end. The one place where an unexpected error of a save ends."""
        taken: Taken | None = None
        scope = anyio.CancelScope()
        self._scopes[job.project] = scope
        try:
            taken = await self._take(job)
            if taken is not None:
                ending: Ending = Failed("cancelled")
                with scope:
                    ending = await self._saver.save(taken)
                del self._scopes[job.project]
                await self._close(taken, ending)
        except Exception as error:  # noqa: BLE001  see above
            log.failure("save failed", error)
            if taken is not None:
                await self._close(taken, Failed(f"not saved: {type(error).__name__}, see the log"))
        finally:
            self._scopes.pop(job.project, None)
            self._rooms.runs.leave(job.project)
            self._queue.finish(job.project)
            self._wake.set()

    async def _take(self, job: Job) -> Taken | None:
        owed = await self._rooms.ledger.commit(lambda ledger: ledger.owed_by(job.session))
        if owed is None:
            return None
        return await self._saver.take(owed, self._projects.named(owed.project))

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────

    async def _close(self, taken: Taken, ending: Ending) -> None:
        """Put the end into the ledger; tell the person and the queue."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_LIMIT):
            record = await self._ended(taken, ending)
            if record.ended_at and record.state != "skipped":
                self._rooms.runs.tell(record)
                self._rooms.runs.tell_event(record)
                log.save_ended(record)
            owed = await self._rooms.ledger.commit(lambda ledger: ledger.owed_by(record.session))
            if owed is not None:
                self.owe(owed)
            if isinstance(ending, Outcome):
                await self._got_through(record.backend)

    async def _ended(self, taken: Taken, ending: Ending) -> RunRecord:
        """The run's record, its end stored."""
        match ending:
            case Outcome():
                return msgspec.structs.replace(ending.record, ops=ending.ops)
            case Skipped():
                work = partial(_skip, taken=taken, at=self._rooms.clock.now())
            case Later():
                work = partial(_delay, taken=taken, until=ending.not_before)
            case Lost():
                work = partial(self._lose, taken=taken, cause=ending.cause)
            case Failed():
                work = partial(
                    self._fail, taken=taken, ending=ending, wait=self._wait(taken, ending)
                )
            case _:
                assert_never(ending)
        return await self._rooms.ledger.commit(work)

    def _wait(self, taken: Taken, ending: Failed) -> tuple[float, Park]:
        """When a failed turn may start again, or what it waits for."""
        if ending.fork is None or ending.fork.kind != "transient" or ending.run is None:
            return PARKED, ending.park
        now, holds, backend = self._rooms.clock.now(), self._rooms.holds, ending.run.backend
        tries = max(taken.owed.attempts + 1, holds.failed(backend))
        delay = failure.next_delay(tries, ending.fork.retry_after, self._jitter())
        if ending.fork.status in _HOLDING:
            holds.hold(backend, now + delay)
        last = (taken.owed.retry_since or now) + self._rooms.config().settings.retry_for
        if now + delay > last and not ending.fork.retry_after:
            return PARKED, "network"
        return now + delay, ""

    def _fail(
        self, ledger: Ledger, *, taken: Taken, ending: Failed, wait: tuple[float, Park]
    ) -> RunRecord:
        ended = ledger.run(taken.run.id)
        if ended is not None and ended.ended_at:
            return ended  # cancelled while its commit went on to the end
        now = self._rooms.clock.now()
        cause = redact.mask(ending.cause, self._rooms.secrets())
        record = msgspec.structs.replace(
            ending.run or taken.run,
            state="failed",
            ended_at=now,
            status=report.error(cause) if cause else "",
            failure=cause or ending.event.removeprefix(report.FRONT),
            event=ending.event,
        )
        ledger.put_run(record)
        self._rooms.runs.record_event(ledger, record)
        owed = ledger.owed_by(record.session)
        if owed is not None:
            not_before, park = wait
            asked_again = owed.asked > taken.owed.asked and park in ("turn", "network")
            ledger.put_owed(
                msgspec.structs.replace(
                    owed,
                    run="",
                    attempts=owed.attempts + 1,
                    retry_since=owed.retry_since or now,
                    not_before=0.0 if asked_again else not_before,
                    parked="" if asked_again else park,
                )
            )
        return record

    def _lose(self, ledger: Ledger, *, taken: Taken, cause: str) -> RunRecord:
        record = msgspec.structs.replace(
            taken.run,
            state="failed",
            ended_at=self._rooms.clock.now(),
            status=report.error(cause),
            failure=cause,
            event=f"{report.FRONT}a turn is lost: {cause}",
        )
        ledger.put_run(record)
        self._rooms.runs.record_event(ledger, record)
        ledger.settle(record.session, taken.owed.asked)
        return record

    async def _got_through(self, backend: str) -> None:
        """A save reached its end: what waits for the network may try again."""
        self._rooms.holds.clear(backend)
        if self._network_parked:
            self._network_parked = False
            await self._free(lambda owed: owed.parked == "network")

    async def _free(self, chosen: Callable[[Owed], bool]) -> list[Owed]:
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


_HOLDING = frozenset({429, 529})
"""Statuses by which a backend asks everybody to wait."""


def _waiting_for_credentials(ledger: Ledger) -> list[SessionRow]:
    rows = (ledger.session(owed.session) for owed in ledger.owed() if owed.parked == "credentials")
    return [row for row in rows if row is not None]


def _is_of(session: str, owed: Owed) -> bool:
    return owed.session == session


def _skip(ledger: Ledger, *, taken: Taken, at: float) -> RunRecord:
    """Nothing to read: the turn waits, unread, for one that has something."""
    record = msgspec.structs.replace(taken.run, state="skipped", ended_at=at)
    ledger.put_run(record)
    session = ledger.session(record.session)
    if ledger.settle(record.session, taken.owed.asked) and session is not None:
        turn = replace(turn_of(session), unread=True)
        ledger.put_session(msgspec.structs.replace(session, turn=asdict(turn)))
    return record


def _delay(ledger: Ledger, *, taken: Taken, until: float) -> RunRecord:
    record = msgspec.structs.replace(taken.run, state="owed")
    ledger.put_run(record)
    owed = ledger.owed_by(record.session)
    if owed is not None:
        ledger.put_owed(msgspec.structs.replace(owed, not_before=until))
    return record
