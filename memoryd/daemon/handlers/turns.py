"""Hook events: what a session says happened.

Owns which events count: a subagent's, an excluded project's and our own children's do not. What an event
makes of a session is core/turns', that it is on disk before the shim is answered is `sessions`'.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memoryd.core import turns
from memoryd.daemon.dispatch import RawAnswer
from memoryd.daemon.sessions import Asking, Known, is_headless
from memoryd.errors import UnwrittenError
from memoryd.ports import SessionRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.config import Config, Headless
    from memoryd.core.turns import Ask, Turn
    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.loads import Loads
    from memoryd.daemon.projects import Project, Projects
    from memoryd.daemon.sessions import Sessions
    from memoryd.daemon.silence import Silence
    from memoryd.daemon.unwritten import Unwritten
    from memoryd.protocol import (
        HookEvent,
        PromptSubmitted,
        SessionEnded,
        SessionStarted,
        ToolsRan,
        TurnEnded,
        TurnFailed,
    )


class TurnHandlers:
    """Handlers of hook events; `state` is the daemon's own directory."""

    def __init__(
        self,
        config: Callable[[], Config],
        sessions: Sessions,
        projects: Projects,
        backlog: Backlog,
        loads: Callable[[], Loads],
        silence: Silence,
        unwritten: Unwritten,
        state: Path,
    ) -> None:
        self._sessions = sessions
        self._projects = projects
        self._backlog = backlog
        self._loads = loads
        self._silence = silence
        self._unwritten = unwritten
        self._state = state
        self._config_dir = str(config().home / ".claude")
        """Of a session that names none."""

    async def session_started(self, event: SessionStarted, caller: Caller) -> RawAnswer | None:
        """A part of the memory block, the first of which also begins the session."""
        first = caller.shim.part <= 1
        row = await self._session(event, caller)
        if row is None:
            return None
        if first:
            self._projects.forget(row.directory)
        project = await self._project(row)
        if project is None or row.off or (await self._headless(row)) == "off":
            return None
        if first:
            step = partial(_started, source=event.source)
            begin = partial(self._pass, event, caller, row, project, step, from_now=True)
            try:
                await self._unwritten.take(event, caller, begin)
            except UnwrittenError:
                if caller.spooled:
                    raise
                # it waits: a full disk takes no memory from the session
        if caller.spooled:
            return None
        return _context(event, await self._loads().part(event, caller, project))

    async def prompt_submitted(self, event: PromptSubmitted, caller: Caller) -> None:
        """A prompt; where the turn before never ended, that one was interrupted."""
        step = partial(_prompted, event=event)
        await self._save_event(event, caller, step, from_now=True)

    async def tools_ran(self, event: ToolsRan, caller: Caller) -> None:
        """Tools of the main session."""
        known = None if event.agent_id else self._sessions.remembered(event.session_id)
        shown = self._shown(event, caller, known) if known else None
        if shown and self._sessions.told_before(shown, event.prompt_id):
            self._silence.heard(event.session_id)
            return
        await self._save_event(
            event, caller, lambda turn: (turns.tools_ran(turn, event.prompt_id), None)
        )

    async def turn_ended(self, event: TurnEnded, caller: Caller) -> None:
        """A turn's end: it is owed from here on."""
        step = partial(_ended, prompt_id=event.prompt_id)
        await self._save_event(event, caller, step, answer=event.last_assistant_message)

    async def turn_failed(self, event: TurnFailed, caller: Caller) -> None:
        """An API error or a refusal ended the turn."""
        await self._save_event(event, caller, lambda turn: (turns.failed(turn), None))

    async def session_ended(self, event: SessionEnded, caller: Caller) -> None:
        """What was left unread is saved now, and what waits for a next turn is tried once more."""
        if await self._save_event(event, caller, _over, ended=True):
            await self._backlog.last_try(event.session_id)

    async def _save_event(
        self,
        event: HookEvent,
        caller: Caller,
        step: Callable[[Turn], tuple[Turn, Ask | None]],
        *,
        answer: str = "",
        ended: bool = False,
        from_now: bool = False,
    ) -> bool:
        """Whether the event counts."""
        work = partial(
            self._counted, event, caller, step, answer=answer, ended=ended, from_now=from_now
        )
        return await self._unwritten.take(event, caller, work)

    async def _counted(
        self,
        event: HookEvent,
        caller: Caller,
        step: Callable[[Turn], tuple[Turn, Ask | None]],
        *,
        answer: str,
        ended: bool,
        from_now: bool,
    ) -> bool:
        row = await self._session(event, caller)
        if row is None or (await self._headless(row)) != "full":
            return False
        project = await self._project(row)
        if project is not None:
            row = msgspec.structs.replace(row, ended=ended)
            await self._pass(event, caller, row, project, step, answer=answer, from_now=from_now)
        return project is not None

    async def _pass(
        self,
        event: HookEvent,
        caller: Caller,
        row: SessionRow,
        project: Project,
        step: Callable[[Turn], tuple[Turn, Ask | None]],
        *,
        answer: str = "",
        from_now: bool = False,
    ) -> None:
        """The event through its session; what it makes owed goes to the backlog."""
        full = (await self._headless(row)) == "full"
        asking = Asking(project.name, answer, event.prompt_id) if full else None
        seen = await self._sessions.event(caller.shim.event, row, step, asking, from_now=from_now)
        if seen is None:
            return
        self._silence.note(seen.row)
        if seen.owed is not None:
            owed = seen.owed
            try:
                stored = await self._projects.of(row.directory, store=True)
                if stored is not None and stored.name != owed.project:
                    owed = await self._sessions.rename(owed, stored.name)
            finally:
                # It is in the ledger, and the event would be a double the next time.
                self._backlog.owe(owed)

    async def _session(self, event: HookEvent, caller: Caller) -> SessionRow | None:
        """The session as the event shows it; None where the event does not count."""
        if event.agent_id:
            return None
        shim = caller.shim
        known = await self._sessions.known(event.session_id)
        # the working directory follows `cd`; the one of the session's start does not
        directory = known.directory if known else shim.project_dir or event.cwd
        if not directory.startswith("/"):
            return None
        path = Path(directory)
        if path == self._state or self._state in path.parents:
            return None
        if await self._projects.excludes(directory):
            return None
        return self._shown(event, caller, known or Known(SessionRow(id="", directory=directory)))

    def _shown(self, event: HookEvent, caller: Caller, known: Known) -> SessionRow:
        """What the event says of its session, of which the directory is known."""
        shim = caller.shim
        return SessionRow(
            id=event.session_id,
            directory=known.directory,
            transcript=event.transcript_path,
            config_dir=shim.config_dir or self._config_dir,
            pid=shim.pid,
            executable=shim.executable,
            entrypoint=shim.entrypoint,
            attended=shim.attended != "0",
            off=known.off,
            effort=event.effort.level if event.effort else "",
        )

    async def _headless(self, row: SessionRow) -> Headless:
        """What a session may do: `full` where somebody sits in front of it."""
        if not is_headless(row):
            return "full"
        return await self._projects.headless(row.directory)

    async def _project(self, row: SessionRow) -> Project | None:
        """The session's project; None where there is none, or it is switched off."""
        project = await self._projects.of(row.directory, store=False)
        return None if project is None or self._projects.is_off(project.name) else project


def _started(turn: Turn, *, source: str) -> tuple[Turn, Ask | None]:
    return turns.started(turn, source)


def _prompted(turn: Turn, *, event: PromptSubmitted) -> tuple[Turn, Ask | None]:
    return turns.prompted(turn, event.prompt_id, event.prompt, event.source)


def _ended(turn: Turn, *, prompt_id: str) -> tuple[Turn, Ask | None]:
    return turns.ended(turn, prompt_id)


def _over(turn: Turn) -> tuple[Turn, Ask | None]:
    return turns.over(turn, "session_end")


def _context(event: SessionStarted, text: str) -> RawAnswer | None:
    """The hook's answer that puts `text` into the session."""
    if not text:
        return None
    name = event.hook_event_name or "SessionStart"
    answer = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}
    return RawAnswer(msgspec.json.encode(answer))
