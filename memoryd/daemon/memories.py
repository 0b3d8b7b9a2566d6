"""A project's memory as text: read, and put into shape.

Owns the lock that makes writes of one project follow each other, and the repair of a file that lost its
shape. What a save writes is `commit`'s.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from memoryd.core.memory import report
from memoryd.core.memory.document import repair
from memoryd.core.memory.files import MEMORY_FILE
from memoryd.errors import NotUtf8Error
from memoryd.ports import FileWrite, StagedFile
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memoryd.daemon.projects import Project
    from memoryd.daemon.runs import Runs
    from memoryd.ports import Clock, Ledger, LedgerThread, MemoryDir, MemoryFile


@dataclass(frozen=True, slots=True)
class Memory:
    """A project's memory as it was read; `text` is None where there is no MEMORY.md."""

    project: Project
    text: str | None
    digest: str
    topics: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Memory({self.project.name!r}, {len(self.text or '')} characters)"


class Memories:
    """Reads and writes the memory of all projects; one write at a time for each."""

    def __init__(
        self,
        files: MemoryDir,
        ledger: LedgerThread,
        runs: Runs,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._runs = runs
        self._clock = clock
        self._new_id = new_id
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def read(self, project: Project) -> Memory:
        """As it stands. Raises StorageError; NotUtf8Error names the first bad byte."""
        state = await to_thread.run_sync(self._files.read, project.directory)
        text = None if state.memory is None else decoded(project.directory, state.memory)
        digest = "" if state.memory is None else state.memory.digest
        return Memory(project, text, digest, state.topics)

    async def digest(self, project: Project) -> str:
        """Of MEMORY.md as it stands; empty where there is none. Raises StorageError."""
        found = await to_thread.run_sync(self._files.read_file, project.directory, MEMORY_FILE)
        return found.digest if found else ""

    async def in_shape(self, project: Project) -> Memory:
        """As `read`, after a file without the four sections was put into its shape."""
        memory = await self.read(project)
        if memory.text is None or repair(memory.text, project.name) == memory.text:
            return memory
        async with self._locks[project.name]:
            await self._rearrange(project)
        return await self.read(project)

    async def keep_failed_reply(self, project: Project, text: str) -> None:
        """Keep a reply that could not be read; secrets are masked already."""
        async with self._locks[project.name]:
            await to_thread.run_sync(self._files.keep_failed_reply, project.directory, text)

    def writing(self, project: Project) -> anyio.Lock:
        """Held while files of the project are written."""
        return self._locks[project.name]

    async def sweep(self, project: Project) -> None:
        """Delete what a killed daemon left beside the files, but for what an open intent names."""
        async with self._locks[project.name]:
            intents = await self._ledger.commit(lambda ledger: ledger.intents())
            kept = frozenset(file.temporary for intent in intents for file in intent.files)
            await to_thread.run_sync(self._files.sweep, project.directory, kept)

    async def _rearrange(self, project: Project) -> None:
        """Put the file into its shape, the former text kept beside it and in the ledger."""
        found = await to_thread.run_sync(self._files.read_file, project.directory, MEMORY_FILE)
        if found is None:
            return
        text = repair(decoded(project.directory, found), project.name)
        run = self._new_id()
        write = FileWrite(MEMORY_FILE, text.encode(), found.digest)
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._files.back_up, project.directory, found.data)
            await self._ledger.commit(partial(_keep_both, before=found.data, after=write.data))
            (staged,) = await to_thread.run_sync(self._files.stage, project.directory, [write], run)
            if not await to_thread.run_sync(self._files.publish, project.directory, staged):
                # edited meanwhile: the next load or save looks again
                await to_thread.run_sync(self._files.discard, project.directory, staged)
                return
            await self._record_rearranged(project, run, staged)

    async def _record_rearranged(self, project: Project, run: str, staged: StagedFile) -> None:
        now = self._clock.now()
        record = RunRecord(
            id=run,
            project=project.name,
            session="",
            state="done",
            reason="rearranged",
            owed_at=now,
            started_at=now,
            ended_at=now,
            event=report.REARRANGED,
            before=staged.before or "",
            after=staged.after,
        )

        def keep(ledger: Ledger) -> None:
            ledger.put_run(record)
            ledger.put_file_version(run, MEMORY_FILE, record.before, record.after)
            self._runs.record_event(ledger, record)

        await self._ledger.commit(keep)
        self._runs.tell(record)
        self._runs.tell_event(record)


def _keep_both(ledger: Ledger, *, before: bytes, after: bytes) -> None:
    ledger.put_version(before)
    ledger.put_version(after)


def decoded(directory: Path, file: MemoryFile) -> str:
    """A memory file's text; raises NotUtf8Error."""
    try:
        return file.data.decode()
    except UnicodeDecodeError as error:
        raise NotUtf8Error(directory / file.name, error.start) from error
