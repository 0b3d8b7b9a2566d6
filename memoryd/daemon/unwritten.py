"""Events that the ledger could not take: kept in memory, in order, until it can.

Owns how many are kept and what is told of them. Knows nothing of what an event makes of its session.
It is the last resort on a full disk: the shim is told of the failure and leaves its event in the spool
where there is room, and whichever of the two comes second is dropped as a double.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec

from memoryd.core.text import plural
from memoryd.daemon import log
from memoryd.errors import MemorydError, UnwrittenError
from memoryd.protocol import ToolsRan, Warned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from memoryd.daemon.caller import Caller
    from memoryd.protocol import HookEvent

T = TypeVar("T")

MOST = 8 * 1024 * 1024
"""Bytes of events that are kept, a hundred long turns at least; what comes then is counted."""

OVERHEAD = 2000
"""Bytes that an event takes beside its own, generously."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An event that waits, and what is to be done with it."""

    event: HookEvent
    work: Callable[[], Awaitable[object]]
    size: int


class Unwritten:
    """The events of this daemon that are nowhere but here."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: deque[_Kept] = deque()
        self._size = 0
        self._dropped = 0
        self._fault = ""
        self._lock = anyio.Lock()

    async def take(self, event: HookEvent, caller: Caller, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` makes of `event`, once those before it are in the ledger.

        Raises UnwrittenError where the ledger takes none: the event then waits here, but one that lies
        in the spool already.
        """
        try:
            await self.write()
            return await work()
        except UnwrittenError as error:
            if not caller.spooled:
                self._keep(event, work, error)
            raise

    async def write(self) -> None:
        """Put into the ledger what waits. Raises UnwrittenError where it still takes nothing."""
        if not self._waiting:
            return
        async with self._lock:
            while self._waiting:
                await self._write(self._waiting[0])

    async def end(self) -> None:
        """The daemon stops: the last try."""
        try:
            await self.write()
        except UnwrittenError as error:
            count = len(self._waiting)
            log.warning("events that waited in memory are lost", events=count, why=str(error))

    def warnings(self) -> list[Warned]:
        """What waits, and what found no room."""
        found = []
        if self._waiting:
            count = len(self._waiting)
            sentence = (
                f"{plural(count, 'event')} of sessions {'waits' if count == 1 else 'wait'} in memory, "
                f"where a stop of the daemon loses them: {self._fault}; make room, then save"
            )
            found.append(Warned(code="ledger_full", sentence=sentence, hint="memoryctl save"))
        if self._dropped:
            sentence = (
                f"{plural(self._dropped, 'event')} of sessions found no room in memory while the "
                "ledger could not be written; turns that no hook could leave in the spool are lost"
            )
            found.append(Warned(code="events_lost", sentence=sentence))
        return found

    async def _write(self, kept: _Kept) -> None:
        """The oldest; whatever else than the disk is wrong with it, it does not hold up the others."""
        waits = False
        try:
            await kept.work()
        except (UnwrittenError, anyio.get_cancelled_exc_class()):
            waits = True
            raise
        except MemorydError as error:
            log.failure("an event that waited in memory was refused", error)
        finally:
            if not waits:
                self._waiting.popleft()
                self._size -= kept.size

    def _keep(
        self, event: HookEvent, work: Callable[[], Awaitable[object]], error: UnwrittenError
    ) -> None:
        self._fault = str(error)
        if self._tells_nothing_new(event):
            return
        size = len(msgspec.json.encode(event)) + OVERHEAD
        if self._size + size > self._most:
            self._dropped += 1
            return
        self._waiting.append(_Kept(event, work, size))
        self._size += size

    def _tells_nothing_new(self, event: HookEvent) -> bool:
        """Tools run by the hundred in a turn, and only the first of them is news."""
        if not isinstance(event, ToolsRan):
            return False
        same = [kept.event for kept in self._waiting if kept.event.session_id == event.session_id]
        return bool(same) and isinstance(same[-1], ToolsRan)
