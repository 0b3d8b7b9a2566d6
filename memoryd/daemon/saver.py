"""A save: load, repair, gate, fork, read, apply, check, commit, report.

Owns the story of one save and what each way of ending does to the owed turn. When a save runs is
`backlog`'s, how files are written is `commit`'s, how a fork is made is a backend's.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from memoryd.core import failure, redact, turns
from memoryd.core.memory import prompt, report
from memoryd.core.memory import reply as replies
from memoryd.core.memory.ops import Terms
from memoryd.core.transcript.render import render
from memoryd.daemon.change import ReplyChange
from memoryd.daemon.commit import Outcome, Unit
from memoryd.daemon.sessions import is_headless, reference, turn_of
from memoryd.errors import MemorydError, TranscriptError
from memoryd.ports import ForkFailure, ForkRequest
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memoryd.core.transcript import Reading
    from memoryd.daemon.memories import Memory
    from memoryd.daemon.projects import Project
    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import ForkBackend, ForkReply, Ledger, Owed, Park, SessionRow

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Taken:
    """An owed turn that a save took."""

    owed: Owed
    session: SessionRow
    project: Project
    run: RunRecord


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn stays owed. `cause` stands behind `error: ` on the status line; empty: no error."""

    cause: str
    park: Park = "turn"
    event: str = ""
    fork: ForkFailure | None = None
    run: RunRecord | None = None
    """The run as far as it got, where that is further than when it was taken."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """There was nothing to read: nobody is told, the next save reads it too."""


@dataclass(frozen=True, slots=True)
class Later:
    """It may not start before that time."""

    not_before: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The turn can't be saved any more."""

    cause: str


Ending = Outcome | Failed | Skipped | Later | Lost


@dataclass(frozen=True, slots=True)
class _Forked:
    """A reply, and the text that the model saw when it gave it."""

    run: RunRecord
    text: str
    seen: str | None
    cut: bool = False

    def __repr__(self) -> str:
        return f"_Forked({self.run.id!r}, {len(self.text)} characters)"


class Saver:
    """Saves an owed turn. One save at a time for a project: `backlog` sees to that."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def take(self, owed: Owed, project: Project) -> Taken | None:
        """Begin with a turn if it is still owed; a run that a crash cut off is gone on with."""
        rooms = self._rooms
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
            run = ledger.run(found.run) if found.run else None
            if run is None or run.ended_at:
                run = msgspec.structs.replace(
                    fresh,
                    reason=found.reason,
                    asked=found.asked,
                    owed_at=found.first_at,
                    attempts=found.attempts + 1,
                )
            found = msgspec.structs.replace(found, run=run.id)
            ledger.put_run(run)
            ledger.put_owed(found)
            return Taken(found, session, project, run)

        return await rooms.ledger.commit(work)

    async def save(self, taken: Taken) -> Ending:
        """The whole save. Each expected end is a value; what was written is in the ledger already."""
        try:
            reading = await self._load(taken)
            if isinstance(reading, Skipped | Failed | Lost):
                return reading
            memory = await self._rooms.memories.in_shape(taken.project)
            forked = await self._fork(taken, reading, memory)
            if isinstance(forked, Failed | Later):
                return forked
            reply = replies.read(forked.text)
            if isinstance(reply, replies.Unreadable):
                return await self._unreadable(taken, forked, reply)
            return await self._write(taken, reading, forked, reply)
        except MemorydError as error:
            return Failed(f"not saved: {error}")

    # ── load ───────────────────────────────────────────────────────────────────────────────────────

    async def _load(self, taken: Taken) -> Reading | Skipped | Failed | Lost:
        """The conversation, where it holds something that no save was asked for yet."""
        session, owed = taken.session, taken.owed
        path, root = Path(session.transcript), Path(session.config_dir) / "projects"
        read = partial(self._rooms.transcripts.read, path, root, since=session.read_offset)
        try:
            reading = await to_thread.run_sync(read)
        except TranscriptError as error:
            if error.fact == "missing" and owed.transcript_seen:
                return Lost("the transcript was deleted before it was read")
            return Failed(f"transcript {error.fact}")
        worth = turns.worth_reading(
            owed.reason,
            sure=owed.sure,
            prompts=reading.activity.prompts,
            tools=reading.activity.tools,
            news=_has_news(reading, session.read_offset),
        )
        if not worth and taken.run.state == "gate":
            return Skipped()
        await self._rooms.ledger.commit(partial(_cover, taken=taken, end=reading.end))
        return reading

    # ── fork ───────────────────────────────────────────────────────────────────────────────────────

    async def _fork(
        self, taken: Taken, reading: Reading, memory: Memory
    ) -> _Forked | Failed | Later:
        """The reply: one that a crash left unread, or a new one."""
        if taken.run.state in {"read", "apply", "commit"}:
            found = await self._rooms.ledger.commit(partial(_stored, run=taken.run))
            if found is not None:
                return found
        chosen = await self._choose(taken)
        if isinstance(chosen, Failed | Later):
            return chosen
        backend, reason = chosen
        run = msgspec.structs.replace(
            taken.run, backend=backend.name, backend_reason=reason, leaf=reading.leaf
        )
        run = await self._rooms.runs.enter(run, "fork")
        request = await self._request(taken, reading, memory)
        async with self._watched(run, memory):
            answer = await backend.fork(request)
            if isinstance(answer, ForkFailure) and answer.kind == "too_long":
                answer = await backend.fork(replace(request, shrunk=True))
        if isinstance(answer, ForkFailure):
            cause = failure.sentence(answer.kind, answer.status, answer.type)
            run = msgspec.structs.replace(run, model=answer.model, usage=answer.usage)
            return Failed(cause, _PARKS.get(answer.kind, "turn"), fork=answer, run=run)
        return await self._keep_reply(run, answer, memory)

    async def _choose(self, taken: Taken) -> tuple[ForkBackend, str] | Failed | Later:
        """The backend and why it was taken. Where none can work the turn waits for a login or key."""
        rooms = self._rooms
        choice = await to_thread.run_sync(rooms.chooser.choose, reference(taken.session))
        backend = choice.backend
        if backend is None:
            return Failed(choice.reason, park="credentials")
        now = rooms.clock.now()
        if rooms.holds.until(backend.name) > now:
            return Later(rooms.holds.until(backend.name))
        if backend.on_subscription:
            limit = rooms.config().settings.max_saves_per_hour
            made = await rooms.ledger.commit(
                lambda ledger: ledger.forks_since(backend.name, now - HOUR)
            )
            if made >= limit:
                return Later(now + HOUR / limit)
        return backend, choice.reason

    @asynccontextmanager
    async def _watched(self, run: RunRecord, memory: Memory) -> AsyncIterator[None]:
        """Tell who follows when the memory is edited while the fork runs: it will be merged."""

        async def watch() -> None:
            async with self._rooms.watcher.watch(memory.project.directory) as hints:
                async for _ in hints:
                    found = await self._rooms.memories.digest(memory.project)
                    if found != memory.digest:
                        self._rooms.runs.tell(msgspec.structs.replace(run, merged=True))
                        return

        async with anyio.create_task_group() as tasks:
            if memory.digest:
                tasks.start_soon(watch)
            yield
            tasks.cancel_scope.cancel()

    async def _request(self, taken: Taken, reading: Reading, memory: Memory) -> ForkRequest:
        rooms, settings = self._rooms, self._rooms.config().settings
        notices = await rooms.ledger.commit(lambda ledger: ledger.notices(taken.project.name))
        mask = partial(redact.mask, exact=rooms.secrets())
        told = memory.text is not None and not is_headless(taken.session)
        ask = prompt.Ask(
            project=taken.project.name,
            memory=memory.text,
            topics=memory.topics,
            language=settings.memory_language,
            skipped=tuple(notices.skipped) if told else (),
            refused=tuple(notices.refused) if told else (),
        )
        rendered = await to_thread.run_sync(
            partial(
                render,
                reading.conversation,
                mask=mask,
                last_answer=taken.owed.last_answer,
                prompt=taken.owed.last_prompt,
            )
        )
        return ForkRequest(
            attempt=rooms.new_id(),
            session=reference(taken.session),
            message=mask(prompt.message(ask)),
            conversation=rendered,
            deadline=float(settings.fork.deadline),
        )

    async def _keep_reply(self, run: RunRecord, reply: ForkReply, memory: Memory) -> _Forked:
        """Paid for once: a crash from here on goes on with this reply."""
        rooms = self._rooms
        run = msgspec.structs.replace(
            run, model=reply.model, usage=reply.usage, before=memory.digest, state="read"
        )
        masked = redact.mask(reply.text, rooms.secrets())

        def work(ledger: Ledger) -> None:
            ledger.put_run(run)
            ledger.put_reply(run.id, masked)
            if memory.text is not None:
                ledger.put_version(memory.text.encode())

        await rooms.ledger.commit(work)
        rooms.runs.tell(run)
        return _Forked(run, reply.text, memory.text, cut=reply.stop == "cut")

    # ── read, apply, check, commit ─────────────────────────────────────────────────────────────────

    async def _unreadable(self, taken: Taken, forked: _Forked, found: replies.Unreadable) -> Failed:
        masked = redact.mask(forked.text, self._rooms.secrets())
        await self._rooms.memories.keep_failed_reply(taken.project, masked)
        if forked.cut:
            return Failed(failure.sentence("cut", 0, ""), run=forked.run)
        event = report.unreadable_event(found, forked.run.usage.output)
        return Failed("", event=event, run=forked.run)

    async def _write(
        self, taken: Taken, reading: Reading, forked: _Forked, reply: replies.Reply
    ) -> Outcome:
        rooms, settings = self._rooms, self._rooms.config().settings
        project = taken.project
        run = await rooms.runs.enter(forked.run, "apply")
        change = ReplyChange(
            reply=reply,
            terms=Terms(
                project=project.name,
                typed=reading.typed if settings.critical_rules_need_quote else None,
                max_removal=settings.max_removal,
                secrets=rooms.secrets(),
            ),
            seen=forked.seen,
            run=run,
            notices=await rooms.ledger.commit(lambda ledger: ledger.notices(project.name)),
            clock=rooms.clock,
            record_event=rooms.runs.record_event,
            drop_on_edit=settings.on_concurrent_edit == "drop",
            headless=is_headless(taken.session),
        )
        async with rooms.memories.writing(project):
            unit = Unit(rooms.memories, rooms.files, rooms.ledger, project, run.id)
            return await unit.write(change)


_PARKS: dict[str, Park] = {"transient": "network", "credentials": "credentials"}


def _has_news(reading: Reading, since: int) -> bool:
    return any(row.offset >= since for turn in reading.conversation.turns for row in turn.rows)


def _cover(ledger: Ledger, *, taken: Taken, end: int) -> None:
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
    ledger.put_owed(msgspec.structs.replace(owed, sure=True))


def _stored(ledger: Ledger, *, run: RunRecord) -> _Forked | None:
    """The reply of a run that a crash cut off, and the text that the model saw."""
    text = ledger.reply(run.id)
    seen = ledger.version(run.before) if run.before else None
    if text is None or (run.before and seen is None):
        return None
    return _Forked(run, text, None if seen is None else seen.decode())
