"""Beginning with an owed turn, and what the ledger then knows of it.

Owns which run a try belongs to: a crash, or a failure behind the reply, leaves a reply that is paid for
and files that are half in place, which the next try takes over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from memoryd.daemon.sessions import turn_of
from memoryd.protocol import RunRecord, Usage

if TYPE_CHECKING:
    from memoryd.daemon.projects import Project
    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import Ledger, Owed, SessionRow

PAID = frozenset({"read", "apply", "commit"})
"""States of a run that has its reply: it is gone on with, not asked for again."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An owed turn that a save took."""

    owed: Owed
    session: SessionRow
    project: Project
    run: RunRecord


@dataclass(frozen=True, slots=True)
class Forked:
    """A reply, and the text that the model saw when it gave it."""

    run: RunRecord
    text: str
    seen: str | None
    cut: bool = False

    def __repr__(self) -> str:
        return f"Forked({self.run.id!r}, {len(self.text)} characters)"


async def take(rooms: Rooms, owed: Owed, project: Project) -> Taken | None:
    """Begin with a turn if it is still owed; a run that a crash cut off is gone on with."""
    fresh = RunRecord(
        id=rooms.new_id(),
        project=project.name,
        session=owed.session,
        state="gate",
        started_at=rooms.clock.now(),
    )

    def work(ledger: Ledger) -> Taken | None:
        found, session = ledger.owed_by(owed.session), ledger.session(owed.session)
        if found is None or session is None:
            return None
        run = _begun(ledger, found, fresh)
        found = msgspec.structs.replace(found, run=run.id)
        ledger.put_owed(found)
        return Taken(found, session, project, run)

    return await rooms.ledger.commit(work)


def cover(ledger: Ledger, *, taken: Taken, since: int, end: int) -> None:
    """What was read counts as asked for now, and the turn as sure to be worth a save."""
    session = ledger.session(taken.session.id)
    owed = ledger.owed_by(taken.session.id)
    if session is None or owed is None:
        return
    turn = replace(turn_of(session), unread=False)
    ledger.put_session(
        msgspec.structs.replace(
            session, read_offset=max(session.read_offset, end), turn=asdict(turn)
        )
    )
    ledger.put_owed(msgspec.structs.replace(owed, sure=True, since=since))


def stored(ledger: Ledger, *, run: RunRecord) -> Forked | None:
    """The reply of a run that a crash cut off, and the text that the model saw."""
    text = ledger.reply(run.id)
    seen = ledger.version(run.before) if run.before else None
    if text is None or (run.before and seen is None):
        return None
    return Forked(run, text, None if seen is None else seen.decode())


def _begun(ledger: Ledger, owed: Owed, fresh: RunRecord) -> RunRecord:
    """The run of an owed turn, stored.

    One that a crash cut off, or a new one, which goes on with the reply of a try that failed behind it.
    """
    old = ledger.run(owed.run) if owed.run else None
    if old is not None and not old.ended_at and old.state in PAID:
        return old
    run = msgspec.structs.replace(
        fresh,
        id=fresh.id if old is None or old.ended_at else old.id,
        reason=owed.reason,
        asked=owed.asked,
        owed_at=owed.first_at,
        attempts=owed.attempts + 1,
    )
    reply = ledger.reply(old.id) if old is not None and old.ended_at else None
    if old is None or reply is None:
        ledger.put_run(run)
        return run
    run = msgspec.structs.replace(
        run,
        state="read",
        asked=old.asked,
        backend_reason=f"the reply of run {old.id}",
        model=old.model,
        before=old.before,
        leaf=old.leaf,
    )
    ledger.put_run(run)
    ledger.put_reply(run.id, reply)
    _take_over(ledger, old, run)
    return run


def _take_over(ledger: Ledger, old: RunRecord, run: RunRecord) -> None:
    """The files that an earlier run began to write are `run`'s now; its tokens are counted there."""
    intent = ledger.intent(old.id)
    if intent is None:
        return
    record = msgspec.structs.replace(
        intent.record,
        id=run.id,
        started_at=run.started_at,
        attempts=run.attempts,
        backend="",
        backend_reason=run.backend_reason,
        usage=Usage(),
    )
    ledger.close_intent(old.id)
    ledger.put_intent(msgspec.structs.replace(intent, run=run.id, record=record))
