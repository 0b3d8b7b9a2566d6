"""Commands about memory: save, cancel, pause, resume, off, on, and reading MEMORY.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.queue import ALL
from memoryd.core.text import plural
from memoryd.daemon.backlog import PARKED
from memoryd.errors import RequestError
from memoryd.protocol import Done, MemoryText

if TYPE_CHECKING:
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.memories import Memories
    from memoryd.daemon.projects import Project, Projects
    from memoryd.daemon.sessions import Sessions
    from memoryd.ports import Chooser, Clock, LedgerThread
    from memoryd.protocol import (
        Cancel,
        GetMemory,
        Pause,
        Resume,
        Save,
        SwitchOff,
        SwitchOn,
    )


class MemoryHandlers:
    """Handlers of what a person asks for a project."""

    def __init__(
        self,
        clock: Clock,
        ledger: LedgerThread,
        projects: Projects,
        sessions: Sessions,
        memories: Memories,
        backlog: Backlog,
        chooser: Chooser,
    ) -> None:
        self._chooser = chooser
        self._clock = clock
        self._ledger = ledger
        self._projects = projects
        self._sessions = sessions
        self._memories = memories
        self._backlog = backlog

    async def memory(self, message: GetMemory, _: Caller) -> MemoryText:
        """MEMORY.md of the project."""
        project = await chosen(self._projects, message.project, message.cwd)
        memory = await self._memories.read(project)
        return MemoryText(
            project=project.name,
            path=str(project.directory / "MEMORY.md"),
            text=memory.text,
            topics=list(memory.topics),
        )

    async def save(self, message: Save, _: Caller) -> Done:
        """Owed turns start at once, also those that wait between two tries."""
        project = await chosen(self._projects, message.project, message.cwd)
        waiting = self._backlog.waiting(project.name)
        self._chooser.release()
        await self._backlog.hasten(project.name, message.session)
        if not waiting:
            return Done(sentence=f"{project.name}: nothing is owed")
        return Done(sentence=f"{project.name}: saving {plural(waiting, 'owed turn')} now")

    async def cancel(self, message: Cancel, _: Caller) -> Done:
        """The running save stops; its turn stays owed."""
        project = await chosen(self._projects, message.project, message.cwd)
        if not self._backlog.cancel(project.name):
            raise RequestError(409, "nothing_runs", f"{project.name}: no save is running")
        return Done(sentence=f"{project.name}: save cancelled, its turn stays owed")

    async def pause(self, message: Pause, _: Caller) -> Done:
        """No save starts for a while."""
        name = await self._named(message.project, message.cwd)
        until = self._clock.now() + message.seconds if message.seconds > 0 else PARKED
        self._backlog.pause(name, until)
        await self._ledger.commit(lambda ledger: ledger.put_pause(name, until))
        when = f"until {self._clock.hhmm(until)}" if message.seconds > 0 else "until resume"
        return Done(sentence=f"{name or 'all projects'}: paused {when}; turns stay owed")

    async def resume(self, message: Resume, _: Caller) -> Done:
        """Saves start again."""
        name = await self._named(message.project, message.cwd)
        self._chooser.release()
        self._backlog.resume(name)
        await self._ledger.commit(lambda ledger: ledger.put_pause(name, 0.0))
        return Done(sentence=f"{name or 'all projects'}: resumed")

    async def off(self, message: SwitchOff, _: Caller) -> Done:
        """No load and no save from the next event on."""
        return await self._switch(message, off=True)

    async def on(self, message: SwitchOn, _: Caller) -> Done:
        """Memory works again from the next event on."""
        return await self._switch(message, off=False)

    async def _switch(self, message: SwitchOff | SwitchOn, *, off: bool) -> Done:
        word = "off" if off else "on"
        if message.session:
            if not await self._sessions.switch(message.session, off=off):
                raise RequestError(404, "unknown_session", f"no session {message.session} is known")
            return Done(sentence=f"memory is {word} for this session, from its next event on")
        project = await chosen(self._projects, message.project, message.cwd)
        await self._projects.switch(project.name, off=off)
        return Done(sentence=f"memory is {word} for {project.name}, from the next event on")

    async def _named(self, project: str, cwd: str) -> str:
        if not project and not cwd:
            return ALL
        return (await chosen(self._projects, project, cwd)).name


async def chosen(projects: Projects, name: str, cwd: str) -> Project:
    """The project that a command means: by name, else by the directory it was typed in."""
    if name:
        if name not in projects.names():
            known = ", ".join(projects.names()) or "none yet"
            raise RequestError(404, "unknown_project", f"no project {name}; known: {known}")
        return projects.named(name)
    project = await projects.of(cwd, store=False) if cwd.startswith("/") else None
    if project is None:
        raise RequestError(400, "no_project", "no project and no directory was given")
    return project
