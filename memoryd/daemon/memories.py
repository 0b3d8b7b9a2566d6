"""A project's memory as text: read, and put into shape.

Owns the lock that makes writes of one project follow each other, and the repair of a file that lost its
shape. What a save writes is `commit`'s.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from memoryd.core.memory import report
from memoryd.core.memory.document import repair
from memoryd.core.memory.files import MEMORY_FILE
from memoryd.daemon import log
from memoryd.errors import MemorydError, NotUtf8Error, StorageError
from memoryd.ports import FileWrite
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memoryd.daemon.projects import Project
    from memoryd.daemon.runs import Runs
    from memoryd.ports import Clock, Ledger, LedgerThread, MemoryDir, MemoryFile

ATTEMPTS = 10
"""Edits in a row over which a file is put into shape; then it is taken as it stands."""


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
        if _has_shape(memory):
            return memory
        async with self._locks[project.name]:
            return await self.put_in_shape(project)

    async def put_in_shape(self, project: Project) -> Memory:
        """As `in_shape`, for who holds the project's lock."""
        memory = await self.read(project)
        for _ in range(ATTEMPTS):
            if _has_shape(memory):  # who held the lock before may have put it there
                break
            await self._rearrange(project)
            memory = await self.read(project)
        return memory

    async def keep_failed_reply(self, project: Project, text: str) -> None:
        """Keep a reply that could not be read; secrets are masked already."""
        async with self._locks[project.name]:
            await to_thread.run_sync(self._files.keep_failed_reply, project.directory, text)

    def writing(self, project: Project) -> anyio.Lock:
        """Held while files of the project are written."""
        return self._locks[project.name]

    async def sweep(self, project: Project) -> None:
        """Clear up behind a killed daemon; a directory that can't be read is left as it is.

        Temporary files that no open intent names go, a rearrangement that nobody was told of is told.
        """
        try:
            async with self._locks[project.name]:
                intents = await self._ledger.commit(lambda ledger: ledger.intents())
                kept = frozenset(file.temporary for intent in intents for file in intent.files)
                await to_thread.run_sync(self._files.sweep, project.directory, kept)
                runs = await self._ledger.commit(lambda ledger: ledger.unfinished_runs())
                for run in runs:
                    if run.reason == "rearranged" and run.project == project.name:
                        await self._end_rearranged(project, run, done=None)
        except MemorydError as error:
            log.failure("not cleared up", error)

    async def _rearrange(self, project: Project) -> None:
        """Put the file into its shape, the former text kept beside it and in the ledger."""
        found = await to_thread.run_sync(self._files.read_file, project.directory, MEMORY_FILE)
        if found is None:
            return
        before = decoded(project.directory, found)
        text = repair(before, project.name)
        if text == before:
            return
        now = self._clock.now()
        run = RunRecord(
            id=self._new_id(),
            project=project.name,
            session="",
            state="commit",
            reason="rearranged",
            owed_at=now,
            started_at=now,
            event=report.REARRANGED,
            before=found.digest,
            after=sha256(text.encode()).hexdigest(),
        )
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._files.back_up, project.directory, found.data)
            keep = partial(_begin, run=run, before=found.data, after=text.encode())
            await self._ledger.commit(keep)
            done = None
            try:
                # edited meanwhile: it is looked at again, what a person wrote then is kept too
                write = FileWrite(MEMORY_FILE, text.encode(), found.digest)
                done = await self._replaced(project, write, run.id)
            finally:
                await self._end_rearranged(project, run, done=done)

    async def _replaced(self, project: Project, write: FileWrite, run: str) -> bool:
        """Whether the file was still what the new text was made from."""
        directory = project.directory
        (staged,) = await to_thread.run_sync(self._files.stage, directory, [write], run)
        done = False
        try:
            done = await to_thread.run_sync(self._files.publish, directory, staged)
        finally:
            if not done:
                with suppress(StorageError):
                    await to_thread.run_sync(self._files.discard, directory, staged)
        return done

    async def _end_rearranged(self, project: Project, run: RunRecord, *, done: bool | None) -> None:
        """Tell of it, or drop its record; what became of it shows in the file where nobody saw."""
        if done is None:
            done = await self.digest(project) == run.after
        now = self._clock.now()
        if done:
            ended = msgspec.structs.replace(run, state="done", ended_at=now)
            await self._runs.happened(ended, partial(_keep_version, run=ended))
        else:
            dropped = msgspec.structs.replace(run, state="skipped", ended_at=now, event="")
            await self._ledger.commit(lambda ledger: ledger.put_run(dropped))


def _has_shape(memory: Memory) -> bool:
    return memory.text is None or repair(memory.text, memory.project.name) == memory.text


def _begin(ledger: Ledger, *, run: RunRecord, before: bytes, after: bytes) -> None:
    ledger.put_version(before)
    ledger.put_version(after)
    ledger.put_run(run)


def _keep_version(ledger: Ledger, *, run: RunRecord) -> None:
    ledger.put_file_version(run.id, MEMORY_FILE, run.before, run.after)


def decoded(directory: Path, file: MemoryFile) -> str:
    """A memory file's text; raises NotUtf8Error."""
    try:
        return file.data.decode()
    except UnicodeDecodeError as error:
        path = directory / file.name
        # The encoding is a guess; the file as it was stays beside it.
        aside = f"{path}.aside"
        hint = f"cp '{path}' '{aside}' && iconv -f WINDOWS-1252 -t UTF-8 '{aside}' > '{path}'"
        raise NotUtf8Error(path, error.start, hint=hint) from error
