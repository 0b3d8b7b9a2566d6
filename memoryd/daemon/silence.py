"""Sessions that went silent: their process is gone, or nothing came from them for long.

The host says nothing when it is killed. Owns the waiting for that, without polling: a process's end is
an event of the kernel where it offers one (Linux, pidfd), a silence is one timer for the next of them.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from memoryd.core import turns
from memoryd.daemon.sessions import Asking, pending

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
        self._due: dict[str, float] = {}
        self._processes: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()

    def note(self, row: SessionRow) -> None:
        """An event came from the session: it is not silent now."""
        if pending(row) and not row.off:
            self._due[row.id] = row.seen_at + self._config().settings.idle_save_after
            self._watch(row)
        else:
            self._due.pop(row.id, None)
            if scope := self._processes.pop(row.id, None):
                scope.cancel()
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Wait for silences for as long as the daemon lives."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for row in await self._sessions.unread():
                self.note(row)
            task_status.started()
            while True:
                self._changed = anyio.Event()
                now = self._clock.now()
                for session in [found for found, due in self._due.items() if due <= now]:
                    await self._over(session, "idle")
                next_due = min(self._due.values(), default=math.inf)
                with anyio.move_on_after(next_due - now):
                    await self._changed.wait()

    async def _over(self, session: str, reason: Reason) -> None:
        self._due.pop(session, None)
        row = await self._sessions.find(session)
        if row is None or not pending(row):
            return
        project = await self._projects.of(row.directory, store=True)
        if project is None or self._projects.is_off(project.name):
            return
        seen = await self._sessions.event(
            "", row, lambda turn: turns.over(turn, reason), Asking(project.name)
        )
        if seen is not None and seen.owed is not None:
            self._backlog.owe(seen.owed)

    def _watch(self, row: SessionRow) -> None:
        full = len(self._processes) >= PROCESSES
        if self._tasks is None or row.id in self._processes or full or not row.pid:
            return
        if not hasattr(os, "pidfd_open"):
            return
        scope = anyio.CancelScope()
        self._processes[row.id] = scope
        self._tasks.start_soon(self._until_gone, row.id, row.pid, scope)

    async def _until_gone(self, session: str, pid: int, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                process = -1
            except OSError:
                return  # no such call here, or no descriptor left: the silence is noticed
            if process >= 0:
                try:
                    await anyio.wait_readable(process)
                finally:
                    with suppress(OSError):
                        os.close(process)
            with anyio.CancelScope(shield=True):
                await self._over(session, "process_gone")
        if self._processes.get(session) is scope:
            del self._processes[session]
