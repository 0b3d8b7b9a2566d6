"""Loading memory into a session: the block in parts, each after the one before.

The host cuts a long hook value, runs the hooks of one event in parallel and keeps the order in which
their processes end. So each part's answer is held until the process of the part before it has ended.
Owns which hooks belong to one start of a session.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from memoryd.core.memory import load, prompt
from memoryd.core.memory.document import shown
from memoryd.errors import MemorydError
from memoryd.protocol import LOAD_PARTS, PART_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.config import Config
    from memoryd.core.memory.load import Load
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.memories import Memories, Memory
    from memoryd.daemon.projects import Project
    from memoryd.ports import Clock, LedgerThread
    from memoryd.protocol import SessionStarted

ORDER_LIMIT = 1.5
"""Seconds that a part waits for the one before it: the shim gives up at 2."""

RECENT = 10.0
"""Seconds in which a second registration's hooks count as doubles of the first's."""


@dataclass(slots=True)
class _Start:
    """One start of a session: the block, and which of its hooks have come."""

    key: tuple[str, ...]
    origin: str
    at: float
    ready: anyio.Event = field(default_factory=anyio.Event)
    making: bool = False
    load: Load | None = None
    came: set[int] = field(default_factory=set)
    answered: int = 0
    callers: dict[int, Caller] = field(default_factory=dict)
    arrived: dict[int, anyio.Event] = field(default_factory=dict)

    def arrive(self, caller: Caller, number: int) -> None:
        self.came.add(number)
        self.callers[number] = caller
        caller.pin()
        self.arrived.setdefault(number, anyio.Event()).set()

    async def text(self, number: int) -> str:
        """The part, once the one before it was delivered."""
        parts: tuple[str, ...] = ()
        with anyio.move_on_after(ORDER_LIMIT):
            await self.ready.wait()
            parts = self.load.parts if self.load is not None else ()
            if 1 < number <= len(parts):
                await self.arrived.setdefault(number - 1, anyio.Event()).wait()
                await self.callers[number - 1].gone()
        return parts[number - 1] if number <= len(parts) else ""

    def leave(self) -> None:
        """A hook has its text; once all have, the block is not kept."""
        self.answered += 1
        if self.answered == LOAD_PARTS:
            self.release()

    def release(self) -> None:
        self.load = None
        for caller in self.callers.values():
            caller.unpin()
        self.callers.clear()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a project's last load was: lines that reached the model, and the size of the block."""

    lines: int
    total: int
    characters: int


class Loads:
    """The loads of all sessions."""

    def __init__(
        self,
        config: Callable[[], Config],
        memories: Memories,
        ledger: LedgerThread,
        clock: Clock,
    ) -> None:
        self._config = config
        self._memories = memories
        self._ledger = ledger
        self._clock = clock
        self._starts: deque[_Start] = deque()
        self.last: dict[str, Loaded] = {}
        self.faults: dict[str, tuple[float, str]] = {}
        """Why a project's last load failed, and when."""

    def expected(self, project: Project, memory: Memory) -> int:
        """Characters of the block that a session would get now."""
        return len(self._block(project, memory))

    async def part(self, event: SessionStarted, caller: Caller, project: Project) -> str:
        """The text for the hook that calls; empty where it has none to bring."""
        number = caller.shim.part or 1
        start = self._join(event, caller, number)
        if start is None:
            return ""
        try:
            if not start.making:
                start.making = True
                try:
                    start.load = await self._make(project)
                finally:
                    start.ready.set()
            return await start.text(number)
        finally:
            start.leave()

    def _join(self, event: SessionStarted, caller: Caller, number: int) -> _Start | None:
        """The start that this hook belongs to; None for another registration's double."""
        shim, now = caller.shim, self._clock.monotonic()
        key = (event.session_id, event.source, event.prompt_id, str(shim.pid))
        for start in reversed(self._starts):
            if start.key != key or now - start.at > RECENT:
                continue
            if start.origin != shim.origin:
                return None
            if number not in start.came:
                start.arrive(caller, number)
                return start
            break
        while self._starts and now - self._starts[0].at > RECENT + ORDER_LIMIT:
            self._starts.popleft().release()  # nobody can wait for a part of it any more
        start = _Start(key, shim.origin, now)
        self._starts.append(start)
        start.arrive(caller, number)
        return start

    async def _make(self, project: Project) -> Load | None:
        """The block of the project as its file is now; None where it could not be read."""
        now = self._clock.now()
        try:
            memory = await self._read(project)
        except MemorydError as error:
            self.faults[project.name] = (now, str(error))
            return None
        self.faults.pop(project.name, None)
        block = self._block(project, memory)
        made = load.split(
            block,
            "" if memory.text is None else shown(memory.text),
            str(project.directory / "MEMORY.md"),
            project=project.name,
            most=LOAD_PARTS,
            limit=PART_LIMIT,
        )
        self.last[project.name] = Loaded(made.loaded, made.total, len(block))
        with suppress(
            MemorydError
        ):  # a full disk can't count, and takes no memory from the session
            await self._ledger.commit(lambda ledger: ledger.count_start(project.name, now))
        return made

    def _block(self, project: Project, memory: Memory) -> str:
        return prompt.block(
            project.name,
            None if memory.text is None else shown(memory.text),
            memory.topics,
            str(project.directory),
            language_note=self._config().settings.language_note,
        )

    async def _read(self, project: Project) -> Memory:
        """The memory in its shape; as it stands, where a full disk does not let us put it there."""
        try:
            return await self._memories.in_shape(project)
        except MemorydError:
            return await self._memories.read(project)
