"""Which project a command means: by its name, by the session it was typed in, by the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.queue import ALL
from memoryd.errors import RequestError

if TYPE_CHECKING:
    from memoryd.daemon.projects import Project, Projects
    from memoryd.daemon.sessions import Sessions
    from memoryd.protocol import Placed


class Places:
    """Finds the project of a command or read."""

    def __init__(self, projects: Projects, sessions: Sessions) -> None:
        self._projects = projects
        self._sessions = sessions

    async def chosen(self, message: Placed, *, store: bool = False) -> Project:
        """The project that is meant; raises RequestError where there is none.

        With `store` it is known by its name from now on: a switch may be taken back by that, and must
        not come to hold for another directory of the same name.
        """
        if message.project:
            return self._by_name(message.project)
        directory = await self.directory(message)
        project = None
        if directory.startswith("/"):
            project = await self._projects.of(directory, store=store)
        if project is None:
            sentence = "no project and no directory was given"
            raise RequestError(400, "no_project", sentence, "memoryctl status")
        return project

    async def named(self, message: Placed, *, store: bool = False) -> str:
        """The name of the project that is meant; `ALL` where no place is given."""
        placed = message.project or message.inside or message.cwd
        return (await self.chosen(message, store=store)).name if placed else ALL

    async def directory(self, message: Placed) -> str:
        """The directory that is meant; of a name, where the project was first seen. May be empty."""
        if message.project:
            return self._projects.seen_in(message.project)
        session = await self._sessions.known(message.inside) if message.inside else None
        return session.directory if session else message.cwd

    def _by_name(self, name: str) -> Project:
        names = self._projects.names()
        if name not in names:
            known = ", ".join(names) or "none yet"
            sentence = f"no project {name}; known: {known}"
            raise RequestError(404, "unknown_project", sentence, "memoryctl status")
        return self._projects.named(name)
