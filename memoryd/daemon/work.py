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
from memoryd.daemon.taking import take
from memoryd.ports import CANCELLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.core.queue import Job
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.projects import Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.saver import Ending
    from memoryd.daemon.silence import Silence
    from memoryd.daemon.taking import Taken
    from memoryd.ports import Ledger, Owed, Park
    from memoryd.protocol import RunRecord

CLOSE_LIMIT = 5.0
"""Seconds that the end of a save may take to reach the ledger when the daemon stops."""

HOLDING = frozenset({429, 529})
"""Statuses by which a backend asks everybody to wait."""

LEDGER_RETRY = 60.0
"""Seconds after which a turn is tried again that the ledger itself could not deal with."""


class SaveWork:
    """Implements backlog.Work. `jitter` gives numbers from 0 to 1."""

    def __init__(
        self,
        rooms: Rooms,
        projects: Projects,
        backlog: Backlog,
        silence: Silence,
        jitter: Callable[[], float],
    ) -> None:
        self._rooms = rooms
        self._projects = projects
        self._backlog = backlog
        self._silence = silence
        self._jitter = jitter
        self._saver = Saver(rooms)

    async def run(self, job: Job, cancelled: anyio.CancelScope) -> None:
        """One save. The one place where an unexpected error of a save ends."""
        taken: Taken | None = None
        try:
            taken = await self._take(job)
            if taken is not None:
                await self._close(taken, await self._ending(taken, cancelled))
        except Exception as error:  # noqa: BLE001  see above
            # the ledger may be what failed: what is owed stands in it, or else in the queue
            log.failure("save failed", error)
            self._backlog.owe_again(job, self._rooms.clock.now() + LEDGER_RETRY)

    async def _take(self, job: Job) -> Taken | None:
        """The job's turn, if it is still owed and its memory is not off."""
        owed = await self._rooms.ledger.commit(lambda ledger: ledger.owed_by(job.session))
        if owed is None:
            return None
        if await self._is_off(owed):
            await self._backlog.park(owed.session, "off")
            return None
        project = self._projects.named(owed.project)
        if owed.project not in self._projects.names():
            # killed between the turn's end and this: its name has to stay taken
            await self._projects.of(owed.directory, store=True)
        return await take(self._rooms, owed, project)

    async def _is_off(self, owed: Owed) -> bool:
        """Nothing more is sent to a model where a person switched it off, whenever the turn ended."""
        if self._projects.is_off(owed.project):
            return True
        if await self._projects.excludes(owed.directory):
            return True
        row = await self._rooms.ledger.commit(lambda ledger: ledger.session(owed.session))
        return row is not None and row.off

    async def _ending(self, taken: Taken, cancelled: anyio.CancelScope) -> Ending:
        ending: Ending = Failed(CANCELLED)
        try:
            with cancelled:
                ending = await self._saver.save(taken)
        except Exception as error:  # noqa: BLE001  as in `run`
            log.failure("save failed", error)
            return Failed(f"not saved: {_type(error)}, see the log")
        return ending

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────

    async def _close(self, taken: Taken, ending: Ending) -> None:
        """Put the end into the ledger; tell the person and the queue."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_LIMIT):
            record = await self._ended(taken, ending)
            if record.ended_at and record.state != "skipped":
                self._rooms.runs.tell(record)
                self._rooms.runs.tell_event(record)
                log.save_ended(record)
            owed, row = await self._rooms.ledger.commit(
                lambda ledger: (ledger.owed_by(record.session), ledger.session(record.session))
            )
            if owed is not None:
                self._backlog.owe(owed)
            if row is not None and isinstance(ending, Skipped):
                self._silence.note(row)  # its end may be all that is still to come
            if behind := self._heard(ending, record.backend):
                await self._backlog.free(lambda owed: owed.session in behind and not owed.parked)
            if isinstance(ending, Outcome):
                await self._backlog.network_is_back()

    def _heard(self, ending: Ending, backend: str) -> set[str]:
        """Sessions that waited for this save to hear from the backend, and need not any more."""
        if isinstance(ending, Failed) and ending.fork and ending.fork.kind == "transient":
            return set()
        if isinstance(ending, Outcome) or (isinstance(ending, Failed) and ending.run):
            return self._rooms.holds.heard(backend)
        return self._rooms.holds.unheard(backend)

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
        now, tries, asked = self._rooms.clock.now(), taken.owed.attempts + 1, 0.0
        if ending.fork and ending.fork.kind == "transient" and ending.run:
            tries = max(tries, self._rooms.holds.failed(ending.run.backend))
            asked = ending.fork.retry_after
        elif not ending.again:
            return PARKED, ending.park
        delay = failure.next_delay(tries, asked, self._jitter())
        if ending.fork and ending.run and ending.fork.status in HOLDING:
            self._rooms.holds.hold(ending.run.backend, now + delay)
        last = (taken.owed.retry_since or now) + self._rooms.config().settings.retry_for
        # A wait longer than any of ours is until a limit's reset.
        if now + delay > last and asked <= failure.LONGEST_DELAY:
            return PARKED, "network"
        return now + delay, ""

    def _fail(
        self, ledger: Ledger, *, taken: Taken, ending: Failed, wait: tuple[float, Park]
    ) -> RunRecord:
        stored = ledger.run(taken.run.id)
        if stored is not None and stored.ended_at:
            return stored  # cancelled while its commit went on to the end
        now = self._rooms.clock.now()
        cause = redact.mask(ending.cause, self._rooms.secrets())
        record = msgspec.structs.replace(
            ending.run or stored or taken.run,
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
                    run=record.id if ending.good_reply else "",
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


def _type(error: BaseException) -> str:
    """Of the error itself, where a task group has wrapped it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return type(error).__name__


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
