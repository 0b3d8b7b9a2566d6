"""A save: load, repair, gate, fork, read, apply, check, commit, report.

Owns the story of one save. When a save runs is `backlog`'s, what each way of ending does to the owed turn
`work`'s, how files are written `commit`'s, how a fork is made a backend's.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
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
from memoryd.core.transcript import Activity, Conversation, Reading
from memoryd.core.transcript.render import render
from memoryd.daemon.change import ReplyChange
from memoryd.daemon.commit import Outcome, Unit
from memoryd.daemon.sessions import is_headless, reference
from memoryd.daemon.taking import PAID, Forked, Taken, cover, stored
from memoryd.errors import MemorydError, NotUtf8Error, StorageError, TranscriptError
from memoryd.ports import ForkFailure, ForkRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memoryd.daemon.memories import Memory
    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import ForkBackend, ForkReply, Ledger, Park
    from memoryd.protocol import RunRecord

HOUR = 3600.0

GOING_FIRST = 60.0
"""Seconds beside its deadline that a save has, where others wait for what it hears from a backend."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn stays owed. `cause` stands behind `error: ` on the status line; empty: no error."""

    cause: str
    park: Park = "turn"
    event: str = ""
    again: bool = False
    """It may pass: the clock tries again."""
    fork: ForkFailure | None = None
    run: RunRecord | None = None
    """The run as the backend's answer left it, where there was one."""
    good_reply: bool = False
    """What failed came after the reply: the next try goes on with that."""

    def __repr__(self) -> str:
        return f"Failed({self.cause!r}, event of {len(self.event)})"


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


class Saver:
    """Saves an owed turn. One save at a time for a project: `backlog` sees to that."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def save(self, taken: Taken) -> Ending:
        """The whole save. Each expected end is a value; what was written is in the ledger already."""
        forked: Forked | Failed | Later | None = None
        try:
            if taken.owed.sure and taken.run.state not in PAID:
                await self._warm(taken)
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
            return _not_saved(error, forked)

    async def _warm(self, taken: Taken) -> None:
        """Have what the fork will need started, beside the reading of the transcript.

        Only as a hint: the choice that counts is made when it is forked.
        """
        rooms = self._rooms
        choice = await to_thread.run_sync(rooms.chooser.choose, reference(taken.session))
        backend = choice.backend
        if backend is not None and rooms.holds.until(backend.name) <= rooms.clock.now():
            backend.warm()

    # ── load ───────────────────────────────────────────────────────────────────────────────────────

    async def _load(self, taken: Taken) -> Reading | Skipped | Failed | Lost:
        """The conversation, where it holds something that no save was asked for yet."""
        session, owed = taken.session, taken.owed
        path, root = Path(session.transcript), Path(session.config_dir) / "projects"
        since = session.read_offset if owed.since < 0 else owed.since
        try:
            reading = await to_thread.run_sync(partial(self._read, path, root, since))
        except TranscriptError as error:
            if taken.run.state in PAID:
                return Reading(Conversation(), Activity(), session.read_offset, "")
            if error.fact == "missing" and owed.transcript_seen:
                return Lost("the transcript was deleted before it was read")
            return Failed(f"transcript {error.fact}")
        worth = turns.worth_reading(
            owed.reason,
            sure=owed.sure,
            prompts=reading.activity.prompts,
            tools=reading.activity.tools,
            news=_has_news(reading, since),
        )
        if not worth and taken.run.state not in PAID:
            return Skipped()
        await self._rooms.ledger.commit(partial(cover, taken=taken, since=since, end=reading.end))
        return reading

    def _read(self, path: Path, root: Path, since: int) -> Reading:
        if path == Path():
            raise TranscriptError(path, "missing")  # the host named none
        return self._rooms.transcripts.read(path, root, since=since)

    # ── fork ───────────────────────────────────────────────────────────────────────────────────────

    async def _fork(
        self, taken: Taken, reading: Reading, memory: Memory
    ) -> Forked | Failed | Later:
        """The reply: one that a crash left unread, or a new one."""
        if taken.run.state in PAID:
            found = await self._rooms.ledger.commit(partial(stored, run=taken.run))
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
                shorter = replace(request, attempt=self._rooms.new_id(), shrunk=True)
                answer = await backend.fork(shorter)
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
        now, settings = rooms.clock.now(), rooms.config().settings
        if backend.on_subscription:
            limit = settings.max_saves_per_hour
            made = await rooms.ledger.commit(
                lambda ledger: ledger.forks_since(backend.name, now - HOUR)
            )
            if made >= limit:
                return Later(now + HOUR / limit)
        most = 2 * settings.fork.deadline + GOING_FIRST
        opens = rooms.holds.opens(backend.name, taken.session.id, now, most)
        return Later(opens) if opens else (backend, choice.reason)

    @asynccontextmanager
    async def _watched(self, run: RunRecord, memory: Memory) -> AsyncIterator[None]:
        """Tell who follows when the memory is edited while the fork runs: it will be merged."""

        async def watch() -> None:
            async with self._rooms.watcher.watch(memory.project.directory) as hints:
                async for _ in hints:
                    if await self._edited(memory):
                        self._rooms.runs.tell(msgspec.structs.replace(run, merged=True))
                        return

        async with anyio.create_task_group() as tasks:
            if memory.digest:
                tasks.start_soon(watch)
            yield
            tasks.cancel_scope.cancel()

    async def _edited(self, memory: Memory) -> bool:
        """A hint is no reason to fail: what can't be read now is seen when it is written."""
        with suppress(MemorydError):
            return await self._rooms.memories.digest(memory.project) != memory.digest
        return False

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
            offload=told and notices.offload,
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

    async def _keep_reply(self, run: RunRecord, reply: ForkReply, memory: Memory) -> Forked:
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
        return Forked(run, reply.text, memory.text, cut=reply.stop == "cut")

    # ── read, apply, check, commit ─────────────────────────────────────────────────────────────────

    async def _unreadable(self, taken: Taken, forked: Forked, found: replies.Unreadable) -> Failed:
        masked = redact.mask(forked.text, self._rooms.secrets())
        await self._rooms.memories.keep_failed_reply(taken.project, masked)
        if forked.cut:
            return Failed(failure.sentence("cut", 0, ""), run=forked.run)
        event = report.unreadable_event(found, forked.run.usage.output)
        return Failed("", event=event, run=forked.run)

    async def _write(
        self, taken: Taken, reading: Reading, forked: Forked, reply: replies.Reply
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


def _not_saved(error: MemorydError, forked: Forked | Failed | Later | None) -> Failed:
    """A file or the ledger failed, before the reply or behind it."""
    # what only the person can mend waits for the next turn
    persons = isinstance(error, NotUtf8Error) or (
        isinstance(error, StorageError) and error.verb == "follow"
    )
    run = forked.run if isinstance(forked, Forked) else None
    return Failed(f"not saved: {error}", again=not persons, run=run, good_reply=run is not None)
