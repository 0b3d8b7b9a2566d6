"""Sessions: what each event makes of one, and what it then owes.

Owns the transaction of an event: seen before or not, the session's state, the owed turn. The ledger is
the truth, so that a kill between two events loses nothing.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memoryd.core import redact
from memoryd.core.text import storable
from memoryd.core.turns import Turn
from memoryd.ports import Owed, SessionRef, SessionRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.core.turns import Ask
    from memoryd.ports import Clock, Ledger, LedgerThread

Step = tuple[Turn, "Ask | None"]

REMEMBERED = 512
"""Sessions that are kept in memory too; the others are looked up."""

ANSWER_LIMIT = 20_000
"""Characters of a last assistant message that are kept with its owed turn."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A session after an event; `owed` where a save is wanted now."""

    row: SessionRow
    owed: Owed | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """What an owed turn needs to know beside its session."""

    project: str
    last_answer: str = ""
    last_prompt: str = ""

    def __repr__(self) -> str:
        return f"Asking({self.project!r}, answer of {len(self.last_answer)} characters)"


@dataclass(frozen=True, slots=True)
class Known:
    """A session as its last event left it; a save may have read on since."""

    row: SessionRow

    @property
    def directory(self) -> str:
        """Where it started: no event changes it."""
        return self.row.directory

    @property
    def off(self) -> bool:
        """Switched off by the person."""
        return self.row.off


class Sessions:
    """The sessions of all projects."""

    def __init__(
        self, ledger: LedgerThread, clock: Clock, transcript_size: Callable[[Path], int]
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._transcript_size = transcript_size
        self._known: dict[str, Known] = {}

    async def known(self, session: str) -> Known | None:
        """Where the session started, and whether it is switched off; None for a new one."""
        found = self._known.get(session)
        if found is None and (row := await self.find(session)) is not None:
            return self._remember(row)
        return found

    def remembered(self, session: str) -> Known | None:
        """What is known of the session without asking the ledger."""
        return self._known.get(session)

    def told_before(self, fresh: SessionRow, prompt_id: str) -> bool:
        """Whether another tool's event, which shows the session so, tells nothing new of it.

        Tools run by the hundred in a turn, and only the first of them is news.
        """
        known = self._known.get(fresh.id)
        if known is None or not known.row.turn.get("tools"):
            return False
        if prompt_id != known.row.turn.get("prompt_id"):
            return False
        return _merged(known.row, fresh) == known.row

    async def find(self, session: str) -> SessionRow | None:
        """The session as it is kept."""
        return await self._ledger.commit(lambda ledger: ledger.session(session))

    async def count(self) -> int:
        """Sessions that go on: the host says nothing of an end by a kill, or in print mode."""
        rows = await self._ledger.commit(lambda ledger: ledger.sessions(ended=False))
        return sum(_lives(row.pid) for row in rows)

    async def unread(self) -> list[SessionRow]:
        """Sessions that have not ended and may hold something that nobody asked to save yet."""
        rows = await self._ledger.commit(lambda ledger: ledger.sessions(ended=False))
        return [row for row in rows if pending(row)]

    async def event(
        self,
        event: str,
        fresh: SessionRow,
        step: Callable[[Turn], Step],
        asking: Asking | None = None,
        *,
        from_now: bool = False,
    ) -> Seen | None:
        """Let an event pass through its session; None where it was seen before.

        `fresh` is the session as the event shows it: it is new, or brings what is kept up to date.
        Without `asking` the step asks for nothing; with `from_now` an unknown session's transcript counts
        as read up to here. On return all of it is on disk.
        """
        now = self._clock.now()

        def work(ledger: Ledger) -> Seen | None:
            if event and not ledger.first_seen(event, now):
                return None
            kept = ledger.session(fresh.id)
            row = _merged(kept, fresh) if kept else self._first(fresh, from_now=from_now)
            if row.off:
                return Seen(row)
            before = turn_of(row)
            turn, ask = step(before)
            asked = row.asked + 1 if ask and asking else row.asked
            if turn == before and asked == row.asked and row == kept:
                return Seen(row)
            row = msgspec.structs.replace(row, turn=asdict(turn), asked=asked, seen_at=now)
            ledger.put_session(row)
            if ask is None or asking is None:
                return Seen(row)
            owed = _owed(ledger.owed_by(row.id), row, ask, asking, now)
            if self._transcript_size(Path(row.transcript)):
                owed = msgspec.structs.replace(owed, transcript_seen=True)
            ledger.put_owed(owed)
            return Seen(row, owed)

        seen = await self._ledger.commit(work)
        if seen is not None:
            self._remember(seen.row)
        return seen

    async def rename(self, owed: Owed, project: str) -> Owed:
        """Book a turn to the project that its directory turned out to be."""

        def work(ledger: Ledger) -> Owed:
            named = msgspec.structs.replace(ledger.owed_by(owed.session) or owed, project=project)
            ledger.put_owed(named)
            return named

        return await self._ledger.commit(work)

    async def switch(self, session: str, *, off: bool) -> bool:
        """Turn memory off or on for a session that is known; whether it is."""

        def work(ledger: Ledger) -> bool:
            row = ledger.session(session)
            if row is not None:
                ledger.put_session(msgspec.structs.replace(row, off=off))
            return row is not None

        self._known.pop(session, None)
        return await self._ledger.commit(work)

    def _remember(self, row: SessionRow) -> Known:
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        found = self._known[row.id] = Known(row)
        return found

    def _first(self, fresh: SessionRow, *, from_now: bool) -> SessionRow:
        """A session that was not known: what stands in its transcript already may be old news."""
        if not from_now:
            return fresh
        size = self._transcript_size(Path(fresh.transcript))
        return msgspec.structs.replace(fresh, read_offset=size)


def _lives(pid: int) -> bool:
    """Whether a session's process is there; one without a known process may be."""
    try:
        os.kill(pid or os.getpid(), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def turn_of(row: SessionRow) -> Turn:
    """The session's state for core/turns."""
    return msgspec.convert(row.turn, Turn)


def pending(row: SessionRow) -> bool:
    """Whether an end of the session would ask for a save."""
    turn = turn_of(row)
    return turn.running or turn.unread


def is_headless(row: SessionRow) -> bool:
    """`-p` and SDK sessions: nobody sits in front of them."""
    return not row.attended or row.entrypoint.startswith("sdk")


def reference(session: SessionRow) -> SessionRef:
    """The session as a backend needs to know it."""
    return SessionRef(
        id=session.id,
        transcript=Path(session.transcript),
        config_dir=Path(session.config_dir),
        cwd=Path(session.directory),
        pid=session.pid,
        executable=session.executable,
        entrypoint=session.entrypoint,
        effort=session.effort,
    )


def _merged(kept: SessionRow, fresh: SessionRow) -> SessionRow:
    """What an event says of its session, over what is kept; the directory was fixed at its start."""
    return msgspec.structs.replace(
        kept,
        transcript=fresh.transcript or kept.transcript,
        config_dir=fresh.config_dir or kept.config_dir,
        pid=fresh.pid or kept.pid,
        executable=fresh.executable or kept.executable,
        entrypoint=fresh.entrypoint or kept.entrypoint,
        effort=fresh.effort or kept.effort,
        ended=fresh.ended,
    )


def _owed(old: Owed | None, row: SessionRow, ask: Ask, asking: Asking, now: float) -> Owed:
    """The session's owed turn with one more ask; it keeps its place, and a wait between two tries."""
    answer = redact.mask(storable(asking.last_answer[-ANSWER_LIMIT:]))
    fresh = Owed(
        session=row.id,
        project=asking.project,
        directory=row.directory,
        asked=row.asked,
        reason=ask.reason,
        sure=ask.sure,
        first_at=now,
        last_answer=answer,
        last_prompt=asking.last_prompt,
    )
    if old is None:
        return fresh
    waits = old.parked == ""
    return msgspec.structs.replace(
        fresh,
        sure=ask.sure or old.sure,
        first_at=old.first_at,
        not_before=old.not_before if waits else 0.0,
        attempts=old.attempts if waits else 0,
        retry_since=old.retry_since if waits else 0.0,
        transcript_seen=old.transcript_seen,
        run=old.run,
    )
