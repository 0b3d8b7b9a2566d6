"""The work of one save: the story from its start to its end, and what each end does to the turn.

Owns the failure policy: what waits for the clock, for the session's next turn, for the network or for
credentials. Loaded with the first save: a start of the daemon does not need it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

import anyio
import msgspec

from memoryd.core import failure, redact
from memoryd.core.memory import report
from memoryd.daemon import log
from memoryd.daemon.backlog import PARKED
from memoryd.daemon.commit import Outcome
from memoryd.daemon.saver import Failed, Later, Lost, Saver, Skipped
from memoryd.daemon.sessions import turn_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.core.queue import Job
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.projects import Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.saver import Ending, Taken
    from memoryd.ports import Ledger, Park
    from memoryd.protocol import RunRecord

CLOSE_LIMIT = 5.0
"""Seconds that the end of a save may take to reach the ledger when the daemon stops."""

HOLDING = frozenset({429, 529})
"""Statuses by which a backend asks everybody to wait."""


class SaveWork:
    """Implements backlog.Work. `jitter` gives numbers from 0 to 1."""

    def __init__(
        self, rooms: Rooms, projects: Projects, backlog: Backlog, jitter: Callable[[], float]
    ) -> None:
        self._rooms = rooms
        self._projects = projects
        self._backlog = backlog
        self._jitter = jitter
        self._saver = Saver(rooms)

    async def run(self, job: Job, cancelled: anyio.CancelScope) -> None:
        """One save. The one place where an unexpected error of a save ends."""
        taken: Taken | None = None
        try:
            taken = await self._take(job)
            if taken is not None:
                ending: Ending = Failed("cancelled")
                with cancelled:
                    ending = await self._saver.save(taken)
                await self._close(taken, ending)
        except Exception as error:  # noqa: BLE001  see above
            log.failure("save failed", error)
            if taken is not None:
                await self._close(taken, Failed(f"not saved: {type(error).__name__}, see the log"))

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
                self._backlog.owe(owed)
            if isinstance(ending, Outcome):
                self._rooms.holds.clear(record.backend)
                await self._backlog.network_is_back()

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
        if ending.fork.status in HOLDING:
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
