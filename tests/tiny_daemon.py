"""The smallest daemon: lock, socket, server, spool and log, with handlers that remember nothing.

`python tiny_daemon.py STATE MEMORY_ROOT SOCKET` prints `ready` once it answers. For tests of what
only processes show. It writes each event's session to `STATE/events`, a line each.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.daemon import instance
from memoryd.errors import AlreadyRunningError, UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.daemon.caller import Caller
    from memoryd.daemon.dispatch import RawAnswer
    from memoryd.daemon.instance import Instance
    from memoryd.daemon.server import Server
    from memoryd.protocol import (
        Done,
        GetVersion,
        HookEvent,
        SessionStarted,
        Shutdown,
        Version,
    )

ALREADY_RUNNING = 75
UNSAFE = 78
MINUTE = 60.0


class Handlers:
    def __init__(self, state: Path, stop: Callable[[], None]) -> None:
        self._events = (state / "events").open("a", buffering=1)
        self._stop = stop
        self._started = time.time()

    async def event(self, message: HookEvent, caller: Caller) -> None:
        if not message.agent_id:
            self._events.write(f"{message.session_id} {caller.shim.event}\n")

    async def session_started(self, message: SessionStarted, _caller: Caller) -> RawAnswer:
        from memoryd.daemon.dispatch import RawAnswer  # noqa: PLC0415

        return RawAnswer(message.source.encode())

    async def version(self, _message: GetVersion, _caller: Caller) -> Version:
        from memoryd import __version__  # noqa: PLC0415
        from memoryd.protocol import GENERATION, Version  # noqa: PLC0415

        return Version(
            version=__version__, generation=GENERATION, pid=os.getpid(), started_at=self._started
        )

    async def shutdown(self, _message: Shutdown, _caller: Caller) -> Done:
        from memoryd.protocol import Done  # noqa: PLC0415

        self._stop()
        return Done(sentence="stopped")


async def run(held: Instance, state: Path, path: Path) -> None:
    import anyio  # noqa: PLC0415  only the one that holds the lock pays for it

    from memoryd import paths, protocol  # noqa: PLC0415
    from memoryd.daemon import listener, log  # noqa: PLC0415
    from memoryd.daemon.dispatch import Dispatcher, Handler  # noqa: PLC0415
    from memoryd.daemon.server import Server  # noqa: PLC0415
    from memoryd.daemon.spool import Spool  # noqa: PLC0415

    log.start()
    server: Server

    def stop() -> None:
        server.stop()

    handlers = Handlers(state, stop)
    events: dict[type[protocol.Message], Handler] = dict.fromkeys(
        (
            protocol.PromptSubmitted,
            protocol.ToolsRan,
            protocol.TurnEnded,
            protocol.TurnFailed,
            protocol.SessionEnded,
        ),
        handlers.event,
    )
    dispatcher = Dispatcher(
        {
            **events,
            protocol.SessionStarted: handlers.session_started,
            protocol.GetVersion: handlers.version,
            protocol.Shutdown: handlers.shutdown,
        }
    )
    server = Server(dispatcher, [listener.bind(path), listener.bind(paths.control_path(state))])
    spool = Spool(paths.spool_dir(state), dispatcher)

    async def each_minute() -> None:
        while True:
            await anyio.sleep(MINUTE)
            held.renew()
            await server.mend()
            await spool.drain()

    async def end_on_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_on_signals)
        tasks.start_soon(each_minute)
        async with anyio.create_task_group() as serving:
            await serving.start(server.serve)
            await spool.drain()
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            log.info("started", pid=os.getpid())
        tasks.cancel_scope.cancel()


def main(state: Path, memory_root: Path, path: Path) -> int:
    sys.setswitchinterval(0.0005)
    try:
        with instance.hold(state, memory_root) as held:
            import anyio  # noqa: PLC0415

            anyio.run(run, held, state, path)
    except AlreadyRunningError as error:
        sys.stderr.write(f"{error}\n")
        return ALREADY_RUNNING
    except UnsafePathError as error:
        sys.stderr.write(f"{error}\n")
        return UNSAFE
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
