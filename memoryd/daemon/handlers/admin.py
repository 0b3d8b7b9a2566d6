"""Reads for people and programs: status, log, runs, status line, follow; and ending the daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memoryd import __version__
from memoryd.daemon.dispatch import RawAnswer, Stream
from memoryd.daemon.runs import last_save
from memoryd.errors import RequestError
from memoryd.protocol import (
    GENERATION,
    Done,
    ProjectStatus,
    RunList,
    Status,
    Statusline,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from memoryd.daemon.caller import Caller
    from memoryd.daemon.overview import Overview
    from memoryd.daemon.places import Places
    from memoryd.daemon.projects import Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.sessions import Sessions
    from memoryd.daemon.standing import Standing
    from memoryd.ports import Ledger
    from memoryd.protocol import (
        Follow,
        GetLog,
        GetRun,
        GetStatus,
        GetStatusline,
        GetVersion,
        RunRecord,
        Shutdown,
        StatuslineAsked,
    )

LOG_LIMIT = 1000
"""Runs of one answer."""


class AdminHandlers:
    """Handlers that look, and the one that ends.

    `look` mends what can be mended before it is told, `stop` begins the daemon's end.
    """

    def __init__(
        self,
        rooms: Rooms,
        places: Places,
        projects: Projects,
        sessions: Sessions,
        overview: Callable[[], Overview],
        standing: Standing,
        look: Callable[[], Awaitable[None]],
        stop: Callable[[], None],
    ) -> None:
        self._config = rooms.config
        self._ledger = rooms.ledger
        self._runs = rooms.runs
        self._places = places
        self._projects = projects
        self._sessions = sessions
        self._overview = overview
        self._standing = standing
        self._look = look
        self._stop = stop

    async def version(self, _message: GetVersion, _caller: Caller) -> Version:
        """Who answers."""
        return Version(
            version=__version__,
            generation=GENERATION,
            pid=os.getpid(),
            started_at=self._standing.started_at,
        )

    async def status(self, message: GetStatus, _caller: Caller) -> Status:
        """The daemon, its backends, and all projects, the asked one first."""
        await self._look()
        names, found = self._projects.names(), list[ProjectStatus]()
        if await self._places.named(message):
            first = await self._places.chosen(message)
            names = [name for name in names if name != first.name]
            directory = await self._places.directory(message)
            found.append(await self._overview().project(first, directory))
        found += [await self._overview().project(self._projects.named(name)) for name in names]
        standing = self._standing
        return Status(
            version=__version__,
            generation=GENERATION,
            pid=os.getpid(),
            started_at=standing.started_at,
            socket=str(standing.socket),
            memory_root=str(standing.memory_root()),
            sessions=await self._sessions.count(),
            spooled=await standing.spooled(),
            paused_until=self._overview().paused_until(),
            backends=await self._overview().backends(),
            projects=found,
            warnings=standing.warnings(),
        )

    async def log(self, message: GetLog, _caller: Caller) -> RunList:
        """Runs, newest first."""
        name = await self._places.named(message)
        limit = min(max(message.limit, 1), LOG_LIMIT)
        runs = await self._ledger.commit(
            lambda ledger: ledger.runs(name, limit=limit, skipped=message.skipped)
        )
        return RunList(runs=runs)

    async def run(self, message: GetRun, _caller: Caller) -> RunRecord:
        """One run with its ops."""
        name = "" if message.run else await self._places.named(message)

        def work(ledger: Ledger) -> RunRecord | None:
            if message.run:
                return ledger.run(message.run)
            last = last_save(ledger, name)
            return ledger.run(last.id) if last else None

        found = await self._ledger.commit(work)
        if found is None:
            what = f"no run {message.run}" if message.run else "no save yet"
            # without a run the log would say the same
            hint = "memoryctl log" if message.run else "memoryctl status"
            raise RequestError(404, "unknown_run", what, hint)
        return found

    async def statusline(self, message: GetStatusline, _caller: Caller) -> Statusline:
        """The status line of a project."""
        project = await self._places.chosen(message)
        return Statusline(text=await self._overview().text(project.name, colour=message.colour))

    async def statusline_asked(self, message: StatuslineAsked, caller: Caller) -> RawAnswer | None:
        """The status line of the session that the host shows one for."""
        session = await self._sessions.find(message.session_id) if message.session_id else None
        workspace = message.workspace.project_dir if message.workspace else ""
        directory = session.directory if session else workspace or message.cwd
        if not directory.startswith("/") or await self._projects.excludes(directory):
            return None
        project = await self._projects.of(directory, store=False)
        if project is None:
            return None
        off, colour = session is not None and session.off, not caller.shim.no_color
        text = await self._overview().text(project.name, colour=colour, off=off)
        # the shim prints it as it is
        return RawAnswer(f"{text}\n".encode(), "text/plain; charset=utf-8") if text else None

    async def follow(self, message: Follow, _caller: Caller) -> Stream:
        """Runs and events as they happen."""
        return Stream(self._runs.follow(message.project))

    async def shutdown(self, _message: Shutdown, _caller: Caller) -> Done:
        """The daemon ends once this is answered."""
        self._stop()
        return Done(sentence="memoryd stops")
