"""Commands about memory: save, cancel, pause, resume, off, on, and reading MEMORY.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.text import plural
from memoryd.daemon.backlog import PARKED
from memoryd.daemon.sessions import turn_of
from memoryd.errors import RequestError
from memoryd.protocol import Done, MemoryText

if TYPE_CHECKING:
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.places import Places
    from memoryd.daemon.projects import Project, Projects
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.sessions import Sessions
    from memoryd.daemon.silence import Silence
    from memoryd.daemon.unwritten import Unwritten
    from memoryd.protocol import (
        Cancel,
        GetMemory,
        Pause,
        Placed,
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
        silence: Silence,
        unwritten: Unwritten,
    ) -> None:
        self._rooms = rooms
        self._clock = rooms.clock
        self._ledger = rooms.ledger
        self._places = places
        self._projects = projects
        self._sessions = sessions
        self._backlog = backlog
        self._silence = silence
        self._unwritten = unwritten

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
        """Owed turns start at once, also those that wait between two tries, and those left unread."""
        await self._unwritten.write()
        project = await self._places.chosen(message)
        name = project.name
        await self._ask_for_unread(project, message.session)
        waiting = self._backlog.waiting(name)
        self._rooms.chooser.release()
        await self._backlog.hasten(name, message.session)
        if await self._is_excluded(message):
            return Done(sentence=f"{name}: {self._excluded()}, nothing is saved")
        if not waiting:
            found = "a save is running" if self._backlog.saving(name) else "nothing is owed"
            return Done(sentence=f"{name}: {found}")
        owed = plural(waiting, "owed turn")
        if self._projects.is_off(name):
            return Done(sentence=f"{name}: memory is off, {owed} not saved")
        until = self._backlog.paused_until(name)
        if until > self._clock.now():
            return Done(sentence=f"{name}: paused {self._until(until)}, {owed} not saved")
        return Done(sentence=f"{name}: saving {owed} now")

    async def _ask_for_unread(self, project: Project, session: str) -> None:
        """Turns that only answered in words are read now, but none that still runs."""
        for row in await self._sessions.unread():
            if turn_of(row).running or session not in ("", row.id):
                continue
            found = await self._projects.of(row.directory, store=False)
            if found == project:
                await self._silence.end(row.id, "asked")

    async def cancel(self, message: Cancel, _: Caller) -> Done:
        """The running save stops; its turn stays owed."""
        project = await self._places.chosen(message)
        if not self._backlog.cancel(project.name):
            sentence = f"{project.name}: no save is running"
            raise RequestError(409, "nothing_runs", sentence, "memoryctl status")
        return Done(sentence=f"{project.name}: save cancelled, its turn stays owed")

    async def pause(self, message: Pause, _: Caller) -> Done:
        """No save starts for a while."""
        await self._refuse_excluded(message)
        name = await self._places.named(message, store=True)
        until = self._clock.now() + message.seconds if message.seconds > 0 else PARKED
        await self._ledger.commit(lambda ledger: ledger.put_pause(name, until))
        self._backlog.pause(name, until)
        when = self._until(until)
        return Done(sentence=f"{name or 'all projects'}: paused {when}; turns stay owed")

    async def resume(self, message: Resume, _: Caller) -> Done:
        """Saves start again."""
        name = await self._places.named(message)
        await self._ledger.commit(lambda ledger: ledger.put_pause(name, 0.0))
        self._rooms.chooser.release()
        word = "resumed" if self._backlog.resume(name) else "nothing was paused"
        still = [
            other or "all projects" for other in self._backlog.paused() if not name or not other
        ]
        rest = f"; still paused: {', '.join(still)}" if still else ""
        return Done(sentence=f"{name or 'all projects'}: {word}{rest}")

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
                sentence = f"no session {message.session} is known"
                raise RequestError(404, "unknown_session", sentence, "memoryctl off --help")
            await self._look_again(off=off)
            return Done(sentence=f"memory is {word} for this session, from its next event on")
        await self._refuse_excluded(message)
        project = await self._places.chosen(message, store=off)
        await self._projects.switch(project.name, off=off)
        await self._look_again(off=off)
        return Done(sentence=f"memory is {word} for {project.name}, from the next event on")

    async def _look_again(self, *, off: bool) -> None:
        if not off:
            await self._backlog.switched_on()

    async def _refuse_excluded(self, message: Placed) -> None:
        if await self._is_excluded(message):
            name = (await self._places.chosen(message)).name
            sentence = f"{name}: {self._excluded()}, which no switch changes"
            raise RequestError(409, "excluded", sentence, "memoryctl config show")

    async def _is_excluded(self, message: Placed) -> bool:
        directory = await self._places.directory(message)
        return await self._projects.excludes(directory)

    def _excluded(self) -> str:
        return f"excluded by {self._rooms.config().file.name}"

    def _until(self, at: float) -> str:
        if at >= PARKED:
            return "until resume"
        clock = self._clock
        today = clock.day_start(at) == clock.day_start(clock.now())
        return f"until {'' if today else f'{clock.day(at)} '}{clock.hhmm(at)}"
