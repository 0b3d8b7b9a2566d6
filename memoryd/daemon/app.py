"""The wiring of the daemon, on one screen, and its life from the lock to the end."""

from __future__ import annotations

import random
import secrets as tokens
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio

from memoryd import paths
from memoryd import protocol as p
from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks.chooser import AutoChooser
from memoryd.adapters.forks.claude import ClaudeBackend
from memoryd.adapters.forks.sdk import DigestBackend
from memoryd.adapters.forks.worker_link import WorkerLink, worker_command
from memoryd.adapters.git import GitFiles
from memoryd.adapters.ledger import Ledger
from memoryd.adapters.ledger_thread import LedgerThread
from memoryd.adapters.memory_dir import MemoryFiles
from memoryd.adapters.secrets import Secrets
from memoryd.adapters.transcript_file import TranscriptFiles
from memoryd.adapters.watcher import DirectoryWatcher
from memoryd.daemon import log
from memoryd.daemon.backlog import Backlog
from memoryd.daemon.dispatch import Dispatcher
from memoryd.daemon.handlers.admin import AdminHandlers
from memoryd.daemon.handlers.memory import MemoryHandlers
from memoryd.daemon.handlers.turns import TurnHandlers
from memoryd.daemon.holds import Holds
from memoryd.daemon.listener import bind
from memoryd.daemon.loads import Loads
from memoryd.daemon.memories import Memories
from memoryd.daemon.overview import Overview
from memoryd.daemon.places import Places
from memoryd.daemon.projects import Projects
from memoryd.daemon.rounds import Rounds
from memoryd.daemon.runs import Runs
from memoryd.daemon.saver import Rooms, Saver
from memoryd.daemon.server import Server
from memoryd.daemon.sessions import Sessions
from memoryd.daemon.settings import LiveSettings
from memoryd.daemon.silence import Silence
from memoryd.daemon.spool import Spool
from memoryd.daemon.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memoryd.adapters.ledger import Opened
    from memoryd.config import Config, Settings
    from memoryd.daemon.dispatch import Handler
    from memoryd.daemon.instance import Instance

LEDGER_FILE = "ledger.sqlite3"

SWITCH_INTERVAL = 0.0005
"""Seconds: a thread that reads a long transcript lets the event loop in this often (10.1)."""

DEADLINE = 4.0
"""Seconds that a stop may take before what still runs is cut off; the whole has 5."""


def serve(env: Mapping[str, str], config: Config, instance: Instance, log_file: Path | None) -> int:
    """Be the daemon until a stop; the exit code. `instance` holds the locks."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    log.start(file=log_file)
    opened = Ledger.open(paths.state_dir(env) / LEDGER_FILE)
    anyio.run(partial(_live, env, config, instance, opened))
    return 0


async def _live(env: Mapping[str, str], config: Config, instance: Instance, opened: Opened) -> None:
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(LedgerThread(opened.ledger))
        app = App(env, config, instance, opened, ledger)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(app.end_on_signals)
        await app.start()
        await tasks.start(app.digest.serve)
        await tasks.start(app.silence.run)
        await tasks.start(app.backlog.run)
        tasks.start_soon(app.rounds.run)
        log.info("ready", socket=str(app.standing.socket))
        await app.server.serve()
        tasks.cancel_scope.cancel()
    log.info("stopped")


class App:
    """All rooms of one daemon, each made once and given what it needs."""

    def __init__(
        self,
        env: Mapping[str, str],
        config: Config,
        instance: Instance,
        opened: Opened,
        ledger: LedgerThread,
    ) -> None:
        state, clock = paths.state_dir(env), SystemClock()
        settings = LiveSettings(env, config)
        values = partial(_values, settings)
        keys = Secrets(env, values, clock)
        self.digest = DigestBackend(
            env, values, keys, WorkerLink(worker_command(env), lambda: values().fork.worker_idle)
        )
        chooser = AutoChooser((self.digest, ClaudeBackend(env, values, clock)), values)
        transcripts, files = TranscriptFiles(), MemoryFiles(config.home)
        runs = Runs(ledger, clock)
        self.memories = Memories(files, ledger, runs, clock, _new_id)
        rooms = Rooms(
            config=settings,
            clock=clock,
            ledger=ledger,
            transcripts=transcripts,
            watcher=DirectoryWatcher(),
            files=files,
            memories=self.memories,
            chooser=chooser,
            holds=Holds(),
            runs=runs,
            new_id=_new_id,
            secrets=lambda: tuple(keys.seen),
        )
        self.projects = Projects(settings, GitFiles(config.home), ledger)
        sessions = Sessions(ledger, clock, transcripts)
        self.backlog = Backlog(Saver(rooms), rooms, self.projects, random.random)
        self.silence = Silence(settings, clock, sessions, self.projects, self.backlog)
        loads = Loads(settings, self.memories, ledger, clock)
        overview = Overview(rooms, self.projects, self.backlog, loads)
        spool_dir = paths.spool_dir(state)
        self.standing = Standing(clock.now(), paths.socket_path(env), settings)
        turn = TurnHandlers(
            settings, sessions, self.projects, self.backlog, loads, self.silence, state
        )
        places = Places(self.projects, sessions)
        memory = MemoryHandlers(rooms, places, self.projects, sessions, self.backlog)
        admin = AdminHandlers(
            rooms, places, self.projects, sessions, overview, self.standing, self.stop
        )
        dispatcher = Dispatcher(_handlers(turn, memory, admin))
        spool = Spool(spool_dir, dispatcher)
        self.server = Server(
            dispatcher, [bind(self.standing.socket), bind(paths.control_path(state))]
        )
        self.rounds = Rounds(rooms, instance, self.server, spool, self.backlog)
        self.standing.tell(settings.warnings, lambda: list(instance.warnings), self.rounds.warnings)
        self.standing.count(spool.waiting)
        if opened.moved_aside is not None:
            self.standing.note_moved_aside(opened.moved_aside)
        settings.tell(chooser.release)
        settings.tell(self.projects.forget_all)
        settings.tell(self.backlog.configure)

    async def start(self) -> None:
        """Read what is stored, delete what a kill left beside memory files."""
        await self.projects.start()
        for name in self.projects.names():
            await self.memories.sweep(self.projects.named(name))

    def stop(self) -> None:
        """No new work; what was asked is answered."""
        self.server.stop()

    async def end_on_signals(self) -> None:
        """SIGTERM and SIGINT stop the daemon; what a first one does not end in time is cut off."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                self.stop()


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


def _values(settings: LiveSettings) -> Settings:
    return settings().settings


def _new_id() -> str:
    return tokens.token_hex(5)
