"""The wiring of the daemon, on one screen, and its life from the lock to the end.

What a start does not need is made at its first use, in the properties of `App`: a hook waits for a start,
nobody waits for the first save.
"""

from __future__ import annotations

import secrets as tokens
import signal
import socket
import sys
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from memoryd import paths
from memoryd import protocol as p
from memoryd.adapters.clock import SystemClock
from memoryd.adapters.git import GitFiles
from memoryd.adapters.ledger import Ledger
from memoryd.adapters.ledger_thread import LedgerThread
from memoryd.adapters.memory_dir import MemoryFiles
from memoryd.adapters.transcript_bytes import size_of
from memoryd.daemon import log
from memoryd.daemon.backlog import Backlog
from memoryd.daemon.dispatch import Dispatcher
from memoryd.daemon.handlers.admin import AdminHandlers
from memoryd.daemon.handlers.memory import MemoryHandlers
from memoryd.daemon.handlers.turns import TurnHandlers
from memoryd.daemon.holds import Holds
from memoryd.daemon.listener import bind
from memoryd.daemon.places import Places
from memoryd.daemon.projects import Projects
from memoryd.daemon.rounds import Rounds
from memoryd.daemon.runs import Runs
from memoryd.daemon.server import Server
from memoryd.daemon.sessions import Sessions
from memoryd.daemon.settings import LiveSettings
from memoryd.daemon.silence import Silence
from memoryd.daemon.spool import Spool
from memoryd.daemon.standing import Standing
from memoryd.daemon.unwritten import Unwritten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memoryd.adapters.forks.together import Forks
    from memoryd.adapters.ledger import Opened
    from memoryd.config import Config, Settings
    from memoryd.daemon.dispatch import Handler
    from memoryd.daemon.instance import Instance
    from memoryd.daemon.loads import Loads
    from memoryd.daemon.memories import Memories
    from memoryd.daemon.overview import Overview
    from memoryd.daemon.work import SaveWork
    from memoryd.ports import Chooser, Transcripts, Watcher

LEDGER_FILE = "ledger.sqlite3"

STOPPING = (signal.SIGTERM, signal.SIGINT)

SWITCH_INTERVAL = 0.0005
"""Seconds: a thread that reads a long transcript lets the event loop in this often (10.1)."""


def serve(env: Mapping[str, str], config: Config, instance: Instance, log_file: Path | None) -> int:
    """Be the daemon until a stop; the exit code. `instance` holds the locks."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # a stop that comes before the sockets have their owner would leave their files behind
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    log.start(file=log_file)
    opened = Ledger.open(paths.state_dir(env) / LEDGER_FILE)
    anyio.run(partial(_live, env, config, instance, opened))
    return 0


async def _live(env: Mapping[str, str], config: Config, instance: Instance, opened: Opened) -> None:
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(LedgerThread(opened.ledger))
        app = App(env, config, instance, opened, ledger)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(app.stop_on_signals)
        await app.projects.start()
        await tasks.start(app.silence.run)
        await tasks.start(app.backlog.run)
        tasks.start_soon(app.rounds.run)
        tasks.start_soon(app.settle_in)
        await app.server.serve()
        await app.unwritten.end()
        tasks.cancel_scope.cancel()
    log.info("stopped")


class App:
    """Implements Rooms: each room is made once and given what it needs."""

    def __init__(
        self,
        env: Mapping[str, str],
        config: Config,
        instance: Instance,
        opened: Opened,
        ledger: LedgerThread,
    ) -> None:
        state = paths.state_dir(env)
        self.env, self.ledger = env, ledger
        self.clock, self.holds = SystemClock(), Holds()
        self.settings = LiveSettings(env, config)
        self.files = MemoryFiles(config.home)
        self.runs = Runs(ledger, self.clock)
        self.projects = Projects(self, GitFiles(config.home))
        sessions = Sessions(ledger, self.clock, size_of)
        self.backlog = Backlog(self, lambda: self.work)
        self.silence = Silence(self.settings, self.clock, sessions, self.projects, self.backlog)
        self.unwritten = Unwritten()
        self.standing = Standing(self.clock.now(), paths.socket_path(env), self.settings)
        places = Places(self.projects, sessions)
        turn = TurnHandlers(
            self.settings,
            sessions,
            self.projects,
            self.backlog,
            lambda: self.loads,
            self.silence,
            self.unwritten,
            state,
        )
        memory = MemoryHandlers(
            self, places, self.projects, sessions, self.backlog, self.silence, self.unwritten
        )
        admin = AdminHandlers(
            self,
            places,
            self.projects,
            sessions,
            lambda: self.overview,
            self.standing,
            self.look,
            self.stop,
        )
        dispatcher = Dispatcher(_handlers(turn, memory, admin))
        spool = Spool(paths.spool_dir(state), dispatcher)
        listeners = [bind(self.standing.socket), bind(paths.control_path(state))]
        self.server = Server(dispatcher, listeners, unheard=self.look_for_spooled)
        self.rounds = Rounds(self, instance, self.server, self.unwritten, spool, self.backlog)
        self.standing.tell(self.settings.warnings, lambda: list(instance.warnings))
        self.standing.tell(self.unwritten.warnings, self.rounds.warnings)
        self.standing.count(spool.waiting)
        if opened.moved_aside is not None:
            self.standing.note_moved_aside(opened.moved_aside)
        for listener in (self.projects.forget_all, self.backlog.configure):
            self.settings.tell(listener)

    # ── rooms that a start does not need ───────────────────────────────────────────────────────────

    @cached_property
    def memories(self) -> Memories:
        from memoryd.daemon.memories import Memories  # noqa: PLC0415

        return Memories(self.files, self.ledger, self.runs, self.clock, self.new_id)

    @cached_property
    def loads(self) -> Loads:
        from memoryd.daemon.loads import Loads  # noqa: PLC0415

        return Loads(self.settings, self.memories, self.ledger, self.clock)

    @cached_property
    def overview(self) -> Overview:
        from memoryd.daemon.overview import Overview  # noqa: PLC0415

        return Overview(self, self.projects, self.backlog, self.loads)

    @cached_property
    def transcripts(self) -> Transcripts:
        from memoryd.adapters.transcript_file import TranscriptFiles  # noqa: PLC0415

        return TranscriptFiles()

    @cached_property
    def watcher(self) -> Watcher:
        from memoryd.adapters.watcher import DirectoryWatcher  # noqa: PLC0415

        return DirectoryWatcher()

    @cached_property
    def forks(self) -> Forks:
        from memoryd.adapters.forks.together import Forks  # noqa: PLC0415

        forks = Forks(self.env, self.values, self.clock)
        self.settings.tell(forks.chooser.release)
        return forks

    @cached_property
    def work(self) -> SaveWork:
        from random import random  # noqa: PLC0415

        from memoryd.daemon.work import SaveWork  # noqa: PLC0415

        return SaveWork(self, self.projects, self.backlog, self.silence, random)

    @property
    def chooser(self) -> Chooser:
        return self.forks.chooser

    # ── what rooms ask of it ───────────────────────────────────────────────────────────────────────

    def config(self) -> Config:
        return self.settings()

    def values(self) -> Settings:
        return self.settings().settings

    def new_id(self) -> str:
        return tokens.token_hex(5)

    async def reachable(self) -> bool:
        return await self.forks.reachable()

    def secrets(self) -> tuple[str, ...]:
        return tuple(self.forks.keys.seen)

    async def settle_in(self) -> None:
        """After the start: say so, load the rest, delete what a kill left beside memory files."""
        await to_thread.run_sync(partial(log.info, "ready", socket=str(self.standing.socket)))
        await to_thread.run_sync(lambda: (self.work, self.overview, self.transcripts))
        for name in self.projects.names():
            await self.memories.sweep(self.projects.named(name))
        await self.forks.serve()

    def look_for_spooled(self) -> None:
        """A shim did not wait for its answer: it may have left the event in the spool."""
        self.rounds.unheard()

    async def look(self) -> None:
        """Somebody asks how things stand."""
        await self.rounds.look()

    def stop(self) -> None:
        """No new work; what was asked is answered."""
        self.server.stop()

    async def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT stop the daemon: what was asked is still answered."""
        # Not anyio's receiver: at its end the system's own action is back, and one more signal while
        # the last things are put away would kill what ends already.
        heard, told = socket.socketpair()
        with heard, told:
            told.setblocking(False)
            signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
            try:
                for number in STOPPING:
                    signal.signal(number, _noted)
                # held back since the start: one that came meanwhile comes now
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
                await anyio.wait_readable(heard)
                self.stop()
            finally:
                for number in STOPPING:
                    signal.signal(number, signal.SIG_IGN)
                signal.set_wakeup_fd(-1)


def _noted(_number: int, _frame: object) -> None:
    """What a signal brings is its byte on the wakeup descriptor."""


def _handlers(
    turn: TurnHandlers, memory: MemoryHandlers, admin: AdminHandlers
) -> dict[type[p.Message], Handler]:
    return {
        p.SessionStarted: turn.session_started,
        p.PromptSubmitted: turn.prompt_submitted,
        p.ToolsRan: turn.tools_ran,
        p.TurnEnded: turn.turn_ended,
        p.TurnFailed: turn.turn_failed,
        p.SessionEnded: turn.session_ended,
        p.StatuslineAsked: admin.statusline_asked,
        p.Save: memory.save,
        p.Cancel: memory.cancel,
        p.Pause: memory.pause,
        p.Resume: memory.resume,
        p.SwitchOff: memory.off,
        p.SwitchOn: memory.on,
        p.Shutdown: admin.shutdown,
        p.GetVersion: admin.version,
        p.GetStatus: admin.status,
        p.GetLog: admin.log,
        p.GetRun: admin.run,
        p.GetMemory: memory.memory,
        p.GetStatusline: admin.statusline,
        p.Follow: admin.follow,
    }
