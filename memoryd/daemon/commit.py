"""Writing a save's files as one unit, over whatever a person wrote meanwhile.

Owns the order: the new texts stand synced beside their targets, the ledger knows of them, then each is
renamed onto its target, topics first; a target that changed is merged again. After a crash at any point
the same call goes on where the unit stood: an append is never made twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from anyio import to_thread

from memoryd.core.memory.appends import appended
from memoryd.core.memory.files import MEMORY_FILE
from memoryd.daemon.memories import Memories, decoded
from memoryd.errors import MemorydError, StorageError
from memoryd.ports import FileWrite, Intent, StagedFile

if TYPE_CHECKING:
    from pathlib import Path

    from memoryd.core.memory.edit import Applied
    from memoryd.daemon.memories import Memory
    from memoryd.daemon.projects import Project
    from memoryd.ports import Ledger, LedgerThread, MemoryDir, Notices
    from memoryd.protocol import OpRecord, RunRecord

ATTEMPTS = 50
"""Edits in a row that a unit merges before it gives up: somebody writes without a pause."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run ends with once its files are in place."""

    record: RunRecord
    ops: list[OpRecord]
    notices: Notices

    def __repr__(self) -> str:
        return f"Outcome({self.record.id!r}, {self.record.state!r})"


class Change(Protocol):
    """What a unit asks the saver."""

    def apply(self, current: str | None, *, begun: bool) -> Applied:
        """The reply applied to the file as it is now; `begun`: topics of it are in place."""

    def begin(self, ledger: Ledger) -> None:
        """The unit is staged: note that it is being written."""

    def outcome(self, applied: Applied, current: str | None, after: str) -> Outcome:
        """How the run ends where this is written; `after` is the digest of MEMORY.md then."""

    def finish(self, ledger: Ledger, outcome: Outcome) -> None:
        """End the run, in the transaction that closes the unit."""


class BusyError(StorageError):
    """MEMORY.md changed at each try."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "write", "file busy, it changed at each try")


@dataclass(frozen=True, slots=True)
class _Step:
    """One file's new text, and the one that it replaces."""

    write: FileWrite
    old: bytes | None

    def __repr__(self) -> str:
        return f"_Step({self.write!r}, old of {len(self.old or b'')} bytes)"


class Unit:
    """The files of one run; `write` gives how it ended. Hold the project's write lock."""

    def __init__(
        self, memories: Memories, files: MemoryDir, ledger: LedgerThread, project: Project, run: str
    ) -> None:
        self._memories = memories
        self._files = files
        self._ledger = ledger
        self._project = project
        self._run = run
        self._published: dict[str, StagedFile] = {}
        self._intent: Intent | None = None

    async def write(self, change: Change) -> Outcome:
        """Write what `change` makes of the files as they are. Raises StorageError.

        Not to be cancelled in the middle: what was begun is ended.
        """
        outcome: Outcome | None = None
        with anyio.CancelScope(shield=True):
            outcome = await self._resume(change)
            for _ in range(ATTEMPTS):
                if outcome is not None:
                    break
                outcome = await self._attempt(change)
        if outcome is None:
            raise BusyError(self._project.directory / MEMORY_FILE)
        return outcome

    async def _resume(self, change: Change) -> Outcome | None:
        """End a unit that a crash cut off; None where something is left to write."""
        intent = await self._ledger.commit(lambda ledger: ledger.intent(self._run))
        if intent is None:
            return None
        self._intent = intent
        self._published = {file.name: file for file in intent.published}
        if not intent.files:
            return None
        waiting = [file for file in intent.files if await self._waits(file)]
        self._published |= {file.name: file for file in intent.files if file not in waiting}
        if not await self._publish(waiting):
            return None
        return await self._end(change, Outcome(intent.record, intent.ops, intent.notices))

    async def _attempt(self, change: Change) -> Outcome | None:
        memory = await self._memories.put_in_shape(self._project)
        applied = change.apply(memory.text, begun=bool(self._published))
        steps = await self._steps(memory, applied)
        after = _after(steps, memory.digest)
        outcome = change.outcome(applied, memory.text, after)
        if steps and not await self._publish(await self._stage(steps, change, outcome)):
            return None
        return await self._end(change, outcome)

    async def _end(self, change: Change, outcome: Outcome) -> Outcome:
        outcome = self._with_topics_in_place(outcome)

        def end(ledger: Ledger) -> None:
            ledger.close_intent(self._run)
            change.finish(ledger, outcome)
            for file in self._published.values():
                ledger.put_file_version(self._run, file.name, file.before or "", file.after)

        await self._ledger.commit(end)
        return outcome

    def _with_topics_in_place(self, outcome: Outcome) -> Outcome:
        """Also where a person's edit left nothing of the rest."""
        written = [name for name in self._published if name != MEMORY_FILE]
        topics = list(dict.fromkeys((*outcome.record.topics, *written)))
        return replace(outcome, record=msgspec.structs.replace(outcome.record, topics=topics))

    async def _stage(
        self, steps: list[_Step], change: Change, outcome: Outcome
    ) -> list[StagedFile]:
        """The texts beside their targets, and the intent that a crash would be taken up from."""
        directory = self._project.directory
        writes = [step.write for step in steps]
        staged = await to_thread.run_sync(self._files.stage, directory, writes, self._run)
        intent = Intent(
            run=self._run,
            project=self._project.name,
            directory=str(directory),
            files=staged,
            published=list(self._published.values()),
            record=outcome.record,
            ops=outcome.ops,
            notices=outcome.notices,
        )

        def keep(ledger: Ledger) -> None:
            ledger.put_intent(intent)
            for step in steps:
                if step.old is not None:
                    ledger.put_version(step.old)
                ledger.put_version(step.write.data)
            change.begin(ledger)

        try:
            await self._ledger.commit(keep)
        except MemorydError:
            await self._discard(staged)
            raise
        self._intent = intent
        return staged

    async def _publish(self, staged: list[StagedFile]) -> bool:
        """Rename in order until a target is found changed; whether all are in place."""
        if len(staged) > 1 and await self._is_edited(staged[-1]):
            await self._give_up(staged)  # before a topic is in place that the merge may not want
            return False
        directory = self._project.directory
        for number, file in enumerate(staged):
            if not await to_thread.run_sync(self._files.publish, directory, file):
                await self._give_up(staged[number:])
                return False
            self._published[file.name] = file
        return True

    async def _is_edited(self, file: StagedFile) -> bool:
        directory = self._project.directory
        found = await to_thread.run_sync(self._files.read_file, directory, file.name)
        return (found.digest if found else None) != file.before

    async def _give_up(self, waiting: list[StagedFile]) -> None:
        """Take staged texts back. The intent goes first: a missing text would count as in place."""
        assert self._intent is not None  # whatever is staged has one
        published = list(self._published.values())
        rest = msgspec.structs.replace(self._intent, files=[], published=published)
        await self._ledger.commit(lambda ledger: ledger.put_intent(rest))
        await self._discard(waiting)

    async def _discard(self, staged: list[StagedFile]) -> None:
        for file in staged:
            await to_thread.run_sync(self._files.discard, self._project.directory, file)

    async def _steps(self, memory: Memory, applied: Applied) -> list[_Step]:
        """The files that are not in place yet: topics, then MEMORY.md."""
        if applied.outcome != "changed":
            return []
        names = dict.fromkeys(topic.file for topic in applied.topics)
        steps = [
            await self._topic_step(name, applied) for name in names if name not in self._published
        ]
        if MEMORY_FILE not in self._published and applied.text != memory.text:
            old = None if memory.text is None else memory.text.encode()
            write = FileWrite(MEMORY_FILE, applied.text.encode(), memory.digest or None)
            steps.append(_Step(write, old))
        return steps

    async def _topic_step(self, name: str, applied: Applied) -> _Step:
        directory = self._project.directory
        found = await to_thread.run_sync(self._files.read_file, directory, name)
        text = None if found is None else decoded(directory, found)
        for topic in applied.topics:
            if topic.file == name:
                text = appended(name, text, topic, self._project.name)
        assert text is not None  # the append that named it made it
        write = FileWrite(name, text.encode(), found.digest if found else None)
        return _Step(write, found.data if found else None)

    async def _waits(self, file: StagedFile) -> bool:
        directory = self._project.directory
        return await to_thread.run_sync(self._files.staged_exists, directory, file)


def _after(steps: list[_Step], before: str) -> str:
    last = steps[-1].write if steps else None
    return sha256(last.data).hexdigest() if last and last.name == MEMORY_FILE else before
