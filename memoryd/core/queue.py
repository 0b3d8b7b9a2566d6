"""The save queue: who may start now. Times come from outside, nothing here waits.

Holds: one save at a time for a project, one pending save for a session, at most `parallel` in all, in the
order in which they were first asked for; a job may have to wait until a time, a project may be paused.
What is owed stands in the ledger too; this is its order in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALL = ""
"""The project name under which a pause holds for all."""


@dataclass(frozen=True, slots=True)
class Job:
    """A session's owed save. `asked` grows with each turn that asks."""

    session: str
    project: str
    asked: int
    not_before: float = 0.0


class Queue:
    """Sessions that wait and sessions that are being saved."""

    def __init__(self, parallel: int) -> None:
        self.parallel = parallel
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._paused: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Queue({len(self._waiting)} waiting, {len(self._running)} running)"

    def owe(self, job: Job) -> None:
        """The session asks for a save: the pending one takes it in and keeps its place."""
        self._waiting[job.session] = job

    def start(self, now: float) -> list[Job]:
        """The jobs that start at `now`; they count as running until `finish`."""
        started = []
        for job in list(self._waiting.values()):
            if len(self._running) >= self.parallel:
                break
            if job.project in self._running or self._opens(job) > now:
                continue
            del self._waiting[job.session]
            self._running[job.project] = job
            started.append(job)
        return started

    def finish(self, project: str) -> None:
        """The project's save is over, however it ended."""
        self._running.pop(project, None)

    def pause(self, project: str, until: float) -> None:
        """No save of the project (of any: `ALL`) starts before `until`."""
        self._paused[project] = until

    def resume(self, project: str) -> float:
        """End a pause; until when it would have been, 0 where there was none."""
        return self._paused.pop(project, 0.0)

    def paused(self, now: float) -> list[str]:
        """The names that a pause holds for at `now`, `ALL` among them."""
        return [project for project, until in self._paused.items() if until > now]

    def paused_until(self, project: str) -> float:
        """When the project's saves may start again; 0 where it is not paused."""
        return max(self._paused.get(ALL, 0.0), self._paused.get(project, 0.0))

    def waiting(self, project: str) -> int:
        """How many sessions of the project wait."""
        return sum(job.project == project for job in self._waiting.values())

    def next_start(self, now: float) -> float:
        """When a waiting job could start next by the clock alone; infinity where none could."""
        if len(self._running) >= self.parallel:
            return math.inf
        idle = (job for job in self._waiting.values() if job.project not in self._running)
        return max(now, min((self._opens(job) for job in idle), default=math.inf))

    def _opens(self, job: Job) -> float:
        return max(job.not_before, self.paused_until(job.project))
