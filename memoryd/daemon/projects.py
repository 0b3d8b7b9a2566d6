"""Which project a session belongs to, and what the config says of it.

Owns the stored identities. A project that has no memory yet is not stored: a fork that kept its hooks, or
a session in which nobody asked anything, leaves no trace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from memoryd.core import project as core
from memoryd.core.memory.report import FRONT
from memoryd.core.text import printable
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from memoryd.config import Config, Headless
    from memoryd.daemon.rooms import Rooms
    from memoryd.ports import Ledger, Repositories

T = TypeVar("T")

REMEMBERED = 256
"""Directories whose project is remembered between a session's start and its later events."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the config says of a directory."""

    excluded: bool
    headless: Headless


@dataclass(frozen=True, slots=True)
class Project:
    """A project's name and where its memory lies."""

    name: str
    directory: Path


class Projects:
    """Finds the project of a directory."""

    def __init__(self, rooms: Rooms, repositories: Repositories) -> None:
        self._rooms = rooms
        self._config = rooms.config
        self._repositories = repositories
        self._ledger = rooms.ledger
        self._lock = anyio.Lock()
        self._known: list[core.Identity] = []
        self._names: dict[str, str] = {}
        self._unstored: dict[str, str] = {}
        """Names that nobody owns yet: until the next one is stored, they are what they would be."""
        self._off: set[str] = set()
        self._rules: dict[str, _Rules] = {}

    async def start(self) -> None:
        """Read what is stored."""
        self._known, off = await self._ledger.commit(
            lambda ledger: (ledger.identities(), ledger.switched_off())
        )
        self._off = set(off)

    def is_off(self, name: str) -> bool:
        """Whether the person switched the project's memory off."""
        return name in self._off

    async def excludes(self, directory: str) -> bool:
        """Whether the config gives no memory to the directory, or to the repository it belongs to."""
        return (await self._rules_of(directory)).excluded

    async def headless(self, directory: str) -> Headless:
        """What `-p` and SDK sessions may do there."""
        return (await self._rules_of(directory)).headless

    async def switch(self, name: str, *, off: bool) -> None:
        """Switch a project's memory off or on, from the next event on."""
        await self._ledger.commit(lambda ledger: ledger.switch_project(name, off=off))
        (self._off.add if off else self._off.discard)(name)

    def named(self, name: str) -> Project:
        """The project of that name, known or not."""
        return Project(name, self._config().memory_root / name)

    def names(self) -> list[str]:
        """Stored projects, in the order in which they were first seen."""
        return list(dict.fromkeys(identity.name for identity in self._known))

    def seen_in(self, name: str) -> str:
        """The directory that the project was first seen in; empty for one that is not stored."""
        return next((known.directory for known in self._known if known.name == name), "")

    async def of(self, directory: str, *, store: bool) -> Project | None:
        """The project of a session that started in `directory`.

        A new one is kept if `store`, or if it finds a memory of its name.

        None where a directory can have no memory.
        """
        name = self._names.get(directory)
        if name is None and not store:
            name = self._unstored.get(directory)
        if name is not None:
            return self.named(name)
        async with self._lock:
            found = await to_thread.run_sync(self._look, directory)
            if found is None:
                return None
            resolved, has_memory = found
            identity = resolved.identity
            # A memory that lies there already is that of the first who loads it.
            store = store or resolved.outcome != "new" or has_memory
            if resolved.changed and store:
                await self._store(identity, news=resolved.outcome == "joined")
        _keep(self._names if store else self._unstored, directory, identity.name)
        return self.named(identity.name)

    def forget(self, directory: str) -> None:
        """Look at the directory anew: a session starts there."""
        self._names.pop(directory, None)
        self._unstored.pop(directory, None)
        self._rules.pop(directory, None)

    def forget_all(self) -> None:
        """The config changed."""
        self._names.clear()
        self._unstored.clear()
        self._rules.clear()

    async def _rules_of(self, directory: str) -> _Rules:
        config = self._config()
        if not directory.startswith("/") or not config.tells_directories_apart():
            return _Rules(excluded=False, headless=config.settings.headless)
        found = self._rules.get(directory)
        if found is None:
            found = await to_thread.run_sync(self._looked_up, directory, config)
            if config is self._config():
                _keep(self._rules, directory, found)
        return found

    def _looked_up(self, directory: str, config: Config) -> _Rules:
        repository = self._repositories.look(Path(directory))
        # A linked worktree may lie anywhere: its memory is that of the repository.
        also = () if repository is None else (Path(repository.primary),)
        places = (Path(directory), *also)
        return _Rules(config.excludes(*places), config.headless(*places))

    def _look(self, directory: str) -> tuple[core.Resolved, bool] | None:
        """Who it is, and whether a memory of that name lies there already."""
        resolved = self._resolve(directory)
        if resolved is None:
            return None
        return resolved, os.path.lexists(self.named(resolved.identity.name).directory / "MEMORY.md")

    def _resolve(self, directory: str) -> core.Resolved | None:
        repository = self._repositories.look(Path(directory))
        if repository is None:
            return None
        config = self._config()
        table = config.project_settings(Path(directory), Path(repository.primary))
        worktrees = table.worktrees or config.settings.worktrees
        if worktrees == "separate" and repository.own is not None:
            table = config.project_settings(Path(directory))  # the name is its own too
        return core.resolve(
            repository,
            self._known,
            join_clones=config.settings.join_clones,
            worktrees=worktrees,
            still_there=self._repositories.still_there,
            pinned=table.name,
        )

    async def _store(self, identity: core.Identity, *, news: bool) -> None:
        def keep(ledger: Ledger) -> None:
            ledger.put_identity(identity)

        if news:
            await self._rooms.runs.happened(self._joined(identity), keep)
        else:
            await self._ledger.commit(keep)
        others = [known for known in self._known if known.id != identity.id]
        at = next((i for i, known in enumerate(self._known) if known.id == identity.id), None)
        self._known = others
        self._known.insert(len(others) if at is None else at, identity)
        self._unstored.clear()

    def _joined(self, clone: core.Identity) -> RunRecord:
        """A clone begins to share a memory, which its person is told once."""
        now = self._rooms.clock.now()
        sentence = (
            f"{clone.directory} shares this memory with {clone.joined_from}, a clone of the same "
            "repository; join_clones = false keeps them apart"
        )
        return RunRecord(
            id=self._rooms.new_id(),
            project=clone.name,
            session="",
            state="done",
            reason="joined",
            owed_at=now,
            started_at=now,
            ended_at=now,
            event=FRONT + printable(sentence),
        )


def _keep(remembered: dict[str, T], directory: str, found: T) -> None:
    if len(remembered) >= REMEMBERED:
        remembered.pop(next(iter(remembered)))
    remembered[directory] = found
