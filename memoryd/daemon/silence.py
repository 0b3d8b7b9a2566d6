"""Sessions that went silent: their process is gone, or nothing came from them for long.

The host says nothing when it is killed. Owns the waiting for that, without polling: a process's end is
an event of the kernel where it offers one (Linux, pidfd), a silence is one timer for the next of them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED

from memoryd.core import turns
from memoryd.daemon import log
from memoryd.daemon.sessions import Asking, pending
from memoryd.errors import MemorydError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup, TaskStatus

    from memoryd.config import Config
    from memoryd.core.turns import Reason
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.projects import Projects
    from memoryd.daemon.sessions import Sessions
    from memoryd.ports import Clock, SessionRow

PROCESSES = 200
"""Processes that are watched at once; a further session's end is noticed by its silence."""

RETRY = 60.0
"""Seconds after which a session is looked at again whose end could not be put into the ledger."""


class Silence:
    """Ends what a session left unread once it is silent."""

    def __init__(
        self,
        config: Callable[[], Config],
        clock: Clock,
        sessions: Sessions,
        projects: Projects,
        backlog: Backlog,
    ) -> None:
        self._config = config
        self._clock = clock
        self._sessions = sessions
        self._projects = projects
        self._backlog = backlog
        self._idle = 0.0
        """Seconds, as the settings had them when a session was noted last."""
        self._due: dict[str, float] = {}
        self._processes: dict[str, _Watched] = {}
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()

    def note(self, row: SessionRow) -> None:
        """An event came from the session: it is not silent now."""
        self._expect(row, self._clock.now())

    def heard(self, session: str) -> None:
        """An event came that tells nothing new but that the session, noted before, is not silent."""
        if session in self._due:
            # later than before: whoever waits for it looks again then
            self._due[session] = self._clock.now() + self._idle

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Wait for silences for as long as the daemon lives."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for row in await self._sessions.unread():
                self._expect(row, row.seen_at)
            task_status.started()
            while True:
                self._changed = anyio.Event()
                now = self._clock.now()
                for session in [found for found, due in self._due.items() if due <= now]:
                    await self._over(session, "idle")
                next_due = min(self._due.values(), default=math.inf)
                with anyio.move_on_after(next_due - now):
                    await self._changed.wait()

    async def end(self, session: str, reason: Reason) -> None:
        """Ask for what the session left unread."""
        row = await self._sessions.find(session)
        if row is None or not pending(row) or await self._projects.excludes(row.directory):
            return
        project = await self._projects.of(row.directory, store=True)
        if project is None or self._projects.is_off(project.name):
            return
        row = msgspec.structs.replace(row, ended=row.ended or reason == "process_gone")
        seen = await self._sessions.event(
            "", row, lambda turn: turns.over(turn, reason), Asking(project.name)
        )
        if seen is not None and seen.owed is not None:
            self._backlog.owe(seen.owed)

    async def _over(self, session: str, reason: Reason) -> None:
        self._due.pop(session, None)
        try:
            await self.end(session, reason)
        except MemorydError as error:
            log.failure("what a session left is not asked for yet", error)
            self._due[session] = self._clock.now() + RETRY
            self._changed.set()

    def _expect(self, row: SessionRow, last: float) -> None:
        """Wait for what comes next from the session, whose last event came then."""
        if pending(row) and not row.off:
            self._idle = self._config().settings.idle_save_after
            self._due[row.id] = last + self._idle
            self._watch(row)
        else:
            self._due.pop(row.id, None)
            self._let_go(row.id)
        self._changed.set()

    def _watch(self, row: SessionRow) -> None:
        watched = self._processes.get(row.id)
        if watched is not None and watched.pid != row.pid:
            self._let_go(row.id)  # the session goes on in another process
        elif watched is not None:
            return
        full = len(self._processes) >= PROCESSES
        if self._tasks is None or full or not row.pid or not hasattr(os, "pidfd_open"):
            return
        watched = self._processes[row.id] = _Watched(row.pid, anyio.CancelScope())
        self._tasks.start_soon(self._until_gone, row.id, watched)

    def _let_go(self, session: str) -> None:
        if watched := self._processes.pop(session, None):
            watched.scope.cancel()

    async def _until_gone(self, session: str, watched: _Watched) -> None:
        with watched.scope:
            gone = await _gone(watched.pid)
            with anyio.CancelScope(shield=True):
                if gone:
                    await self._over(session, "process_gone")
        if self._processes.get(session) is watched:
            del self._processes[session]


@dataclass(frozen=True, slots=True)
class _Watched:
    """A session's process, and the scope of the task that waits for its end."""

    pid: int
    scope: anyio.CancelScope


async def _gone(pid: int) -> bool:
    """True once the process has ended; False where the kernel does not tell: a silence is noticed."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        await anyio.wait_readable(process)
    finally:
        os.close(process)
    return True
