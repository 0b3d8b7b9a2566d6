"""Commands about memory: save, cancel, pause, resume, off, on, and reading MEMORY.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.text import plural
from memoryd.daemon.backlog import PARKED
from memoryd.errors import RequestError
from memoryd.protocol import Done, MemoryText

if TYPE_CHECKING:
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.places import Places
    from memoryd.daemon.projects import Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.sessions import Sessions
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
        rooms: Rooms,
        places: Places,
        projects: Projects,
        sessions: Sessions,
        backlog: Backlog,
    ) -> None:
        self._rooms = rooms
        self._clock = rooms.clock
        self._ledger = rooms.ledger
        self._places = places
        self._projects = projects
        self._sessions = sessions
        self._backlog = backlog

    async def memory(self, message: GetMemory, _: Caller) -> MemoryText:
        """MEMORY.md of the project."""
        project = await self._places.chosen(message)
        memory = await self._rooms.memories.read(project)
        return MemoryText(
            project=project.name,
            path=str(project.directory / "MEMORY.md"),
            text=memory.text,
            topics=list(memory.topics),
        )

    async def save(self, message: Save, _: Caller) -> Done:
        """Owed turns start at once, also those that wait between two tries."""
        project = await self._places.chosen(message)
        waiting = self._backlog.waiting(project.name)
        self._rooms.chooser.release()
        await self._backlog.hasten(project.name, message.session)
        if not waiting:
            return Done(sentence=f"{project.name}: nothing is owed")
        return Done(sentence=f"{project.name}: saving {plural(waiting, 'owed turn')} now")

    async def cancel(self, message: Cancel, _: Caller) -> Done:
        """The running save stops; its turn stays owed."""
        project = await self._places.chosen(message)
        if not self._backlog.cancel(project.name):
            raise RequestError(409, "nothing_runs", f"{project.name}: no save is running")
        return Done(sentence=f"{project.name}: save cancelled, its turn stays owed")

    async def pause(self, message: Pause, _: Caller) -> Done:
        """No save starts for a while."""
        name = await self._places.named(message)
        until = self._clock.now() + message.seconds if message.seconds > 0 else PARKED
        self._backlog.pause(name, until)
        await self._ledger.commit(lambda ledger: ledger.put_pause(name, until))
        when = f"until {self._clock.hhmm(until)}" if message.seconds > 0 else "until resume"
        return Done(sentence=f"{name or 'all projects'}: paused {when}; turns stay owed")

    async def resume(self, message: Resume, _: Caller) -> Done:
        """Saves start again."""
        name = await self._places.named(message)
        self._rooms.chooser.release()
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
        project = await self._places.chosen(message)
        await self._projects.switch(project.name, off=off)
        return Done(sentence=f"memory is {word} for {project.name}, from the next event on")
