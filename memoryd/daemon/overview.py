"""What stands where: the status of projects and of the daemon, put together from all rooms.

Owns no state. Reads only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from memoryd.core import statusline
from memoryd.core.memory import report
from memoryd.core.memory.document import size
from memoryd.core.queue import ALL
from memoryd.daemon.runs import last_save
from memoryd.errors import MemorydError
from memoryd.protocol import BackendStatus, ProjectStatus, RunRecord, Usage

if TYPE_CHECKING:
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.loads import Loads
    from memoryd.daemon.projects import Project, Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import Ledger

SHOWN_STATES = frozenset({"fork", "read", "apply", "commit"})
"""States in which a save shows as running: before, it may turn out that there is nothing to read."""

CHARACTERS_PER_TOKEN = 4
"""Rule of thumb for English text, for the estimate of what a load costs."""


@dataclass(frozen=True, slots=True)
class Line:
    """The status line's text without front and clock, and its time; empty where nothing happened yet."""

    text: str
    at: float

    def __repr__(self) -> str:
        return f"Line({len(self.text)} characters, {self.at})"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the ledger knows of a project."""

    last: RunRecord | None
    event: str
    failures: tuple[int, float, str]
    usage: Usage
    starts: int

    def __repr__(self) -> str:
        return f"_Kept({self.last!r}, event of {len(self.event)}, {self.starts} starts)"


class Overview:
    """Answers what a person or a status line asks."""

    def __init__(self, rooms: Rooms, projects: Projects, backlog: Backlog, loads: Loads) -> None:
        self._clock = rooms.clock
        self._ledger = rooms.ledger
        self._memories = rooms.memories
        self._holds = rooms.holds
        self._runs = rooms.runs
        self._chooser = rooms.chooser
        self._projects = projects
        self._backlog = backlog
        self._loads = loads

    async def line(self, project: str) -> Line:
        """The project's status line."""
        last = await self._ledger.commit(lambda ledger: last_save(ledger, project))
        return self._line(project, last)

    async def text(self, project: str, *, colour: bool, off: bool = False) -> str:
        """The project's status line as it is shown; `off`: to a session that is switched off."""
        line = Line("off", self._clock.now()) if off else await self.line(project)
        return statusline.line(line.text, self._clock.hhmm(line.at), colour=colour)

    async def project(self, project: Project, directory: str = "") -> ProjectStatus:
        """The project at a glance; a file that can't be read shows as its failure.

        `directory` is where somebody asks, without it where the project was first seen.
        """
        name, now = project.name, self._clock.now()
        day = self._clock.day_start(now)
        kept = await self._ledger.commit(lambda ledger: _kept(ledger, name, day))
        line = self._line(name, kept.last)
        fault, hint, lines, characters, load = "", "", 0, 0, 0
        try:
            memory = await self._memories.read(project)
            measured = size(memory.text or "")
            lines, characters = measured.lines, measured.characters
            load = self._loads.expected(project, memory)
        except MemorydError as error:
            fault, hint = str(error), error.hint
        live, loaded = self._runs.live(name), self._loads.last.get(name)
        failures, since, cause = kept.failures
        place = directory or self._projects.seen_in(name)
        paused = self._backlog.paused_until(name)
        return ProjectStatus(
            name=name,
            directory=str(project.directory),
            fault=fault,
            fault_hint=hint,
            lines=lines,
            characters=characters,
            loaded_lines=loaded.lines if loaded else 0,
            load_lines=loaded.total if loaded else 0,
            last_save=kept.last.ended_at if kept.last else 0.0,
            status=line.text,
            status_at=line.at,
            event=report.second_line(kept.event),
            owed=self._backlog.waiting(name),
            running=live.state if live and live.state in SHOWN_STATES else None,
            failures=failures,
            failing_since=since,
            failure=cause,
            paused_until=paused if paused > now else 0.0,
            off=self._projects.is_off(name),
            excluded=await self._projects.excludes(place),
            headless=await self._projects.headless(place),
            tokens_today=kept.usage,
            session_starts_today=kept.starts,
            load_tokens=math.ceil((loaded.characters if loaded else load) / CHARACTERS_PER_TOKEN),
        )

    def paused_until(self) -> float:
        """Until when all projects are paused; 0 where they are not."""
        until = self._backlog.paused_until(ALL)
        return until if until > self._clock.now() else 0.0

    async def backends(self) -> list[BackendStatus]:
        """Which ways to fork can work here, and why not."""
        statuses = []
        now = self._clock.now()
        for backend in self._chooser.backends():
            fault = await to_thread.run_sync(backend.fault, None)
            until = self._holds.until(backend.name)
            statuses.append(
                BackendStatus(
                    name=backend.name,
                    works=not fault,
                    reason=fault,
                    waits_until=until if until > now else 0.0,
                )
            )
        return statuses

    def _line(self, project: str, last: RunRecord | None) -> Line:
        live, now = self._runs.live(project), self._clock.now()
        if live is not None and live.state in SHOWN_STATES:
            return Line(report.SAVING, live.started_at)
        if self._projects.is_off(project):
            return Line("off", now)
        ended = last.ended_at if last else 0.0
        at, fault = self._loads.faults.get(project, (0.0, ""))
        if fault and at >= ended:
            return Line(report.error(f"memory not loaded: {fault}"), at)
        if self._backlog.paused_until(project) > now:
            return Line("paused", now)
        return Line(last.status, ended) if last else Line("", 0.0)


def _kept(ledger: Ledger, project: str, day: float) -> _Kept:
    event = ledger.last_event(project)
    return _Kept(
        last=last_save(ledger, project),
        event=event[1] if event else "",
        failures=ledger.failures(project),
        usage=ledger.usage_since(project, day),
        starts=ledger.starts_since(project, day),
    )
