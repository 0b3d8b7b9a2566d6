"""The server: connections accepted within slots, served, and ended in order.

Owns the accept loops, the number of connections and the stop. Knows neither HTTP nor what is asked.
"""

from __future__ import annotations

import errno
import resource
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.lowlevel import checkpoint

from memoryd.daemon import log
from memoryd.daemon.connection import Connection, Limits

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from memoryd.daemon.caller import Peer
    from memoryd.daemon.dispatch import Dispatcher
    from memoryd.daemon.listener import Listener

SLOTS = 512
"""Connections at a time, and never more than half of the files that the process may open."""

AT_ONCE = 32
"""Connections accepted in a row; then these get their turn to be read."""

NO_ROOM_PAUSE = 0.1
"""Seconds until the next accept after the system had no room for one."""

NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})

GRACE = 2.0
"""Seconds for requests and answers under way when the server stops."""


class Server:
    """Serves its listeners from `serve` until `stop`; they are closed at the end."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        listeners: Sequence[Listener],
        *,
        limits: Limits | None = None,
        slots: int = 0,
        unheard: Callable[[], None] | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._listeners = list(listeners)
        self._retired: list[Listener] = []
        self._ending: set[Listener] = set()
        self._limits = limits or Limits()
        self._slots = slots or _slots()
        self._unheard = unheard or _nothing
        self._open: dict[Connection, None] = {}
        self._waiting_for_slots = 0
        self._changed = anyio.Event()
        self._stopping = anyio.Event()
        self._mending = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._accepting: TaskGroup | None = None

    async def serve(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Accept and serve; started once connections are accepted, over when a stop is complete."""
        try:
            async with anyio.create_task_group() as self._tasks:
                async with anyio.create_task_group() as self._accepting:
                    for listener in self._listeners:
                        self._accepting.start_soon(self._accept_all, listener)
                    task_status.started()
                    await self._stopping.wait()
                    self._accepting.cancel_scope.deadline = anyio.current_time() + GRACE
                    self._end(*self._listeners, *self._retired)
                await self._finish_all()
                self._tasks.cancel_scope.cancel()
        finally:
            for listener in (*self._listeners, *self._retired):
                listener.close()

    def stop(self) -> None:
        """No new connection; what has connected is still served, each for `GRACE` seconds."""
        self._stopping.set()

    async def mend(self) -> int:
        """Bind each socket again whose file was deleted; how many. Meant for once in a while.

        Raises AlreadyRunningError where another process listens there now, and what `bind` raises.
        """
        async with self._mending:
            return await self._mend()

    def spawn(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task of a connection; it ends with the server at the latest."""
        assert self._tasks is not None
        self._tasks.start_soon(task)

    def unheard(self) -> None:
        """A client had left when its answer came."""
        self._unheard()

    def idled(self) -> None:
        """A connection has no request now: its slot can be taken."""
        if self._waiting_for_slots:
            self._changed.set()
            self._changed = anyio.Event()

    async def _mend(self) -> int:
        assert self._accepting is not None
        self._end(*self._retired)
        self._retired.clear()
        for index, listener in enumerate(self._listeners):
            # A look at one name; a thread for it would wake an idle daemon thrice more.
            if not listener.is_ours():
                self._listeners[index] = await to_thread.run_sync(listener.rebound)
                # The old one keeps its loop until the next call, for what had connected before.
                self._retired.append(listener)
                self._accepting.start_soon(self._accept_all, self._listeners[index])
        return len(self._retired)

    async def _accept_all(self, listener: Listener) -> None:
        """Until the listener is told to close and nobody waits on it any more; closes it."""
        in_a_row = 0
        with closing(listener):
            while True:
                try:
                    accepted = listener.accept()
                except BlockingIOError:
                    in_a_row = 0
                    if listener in self._ending:
                        return
                    # Told to end while it waits, it looks once more for who came before.
                    with suppress(anyio.ClosedResourceError):
                        await anyio.wait_readable(listener.socket)
                except OSError as error:
                    await self._pause(error)
                else:
                    in_a_row += 1
                    if accepted is not None:
                        await self._admit(*accepted)
                    if in_a_row % AT_ONCE == 0:
                        await checkpoint()

    async def _pause(self, error: OSError) -> None:
        """After an accept that failed: give the system time where it had no room, else raise."""
        if error.errno not in NO_ROOM:
            raise error
        log.debug("no room for a connection", error=errno.errorcode[error.errno])
        await anyio.sleep(NO_ROOM_PAUSE)

    async def _admit(self, sock: socket.socket, peer: Peer) -> None:
        """Serve it, in place of the oldest connection without a request where no slot is free."""
        self._waiting_for_slots += 1
        try:
            if len(self._open) >= self._slots:
                # Those accepted just now read first: what they brought may be a whole request.
                await checkpoint()
            while len(self._open) >= self._slots:
                if oldest := next((each for each in self._open if each.may_be_dropped()), None):
                    oldest.drop()
                await self._changed.wait()
        except BaseException:
            sock.close()
            raise
        finally:
            self._waiting_for_slots -= 1
        connection = Connection(sock, peer, self._dispatcher, self._limits, self)
        self._open[connection] = None
        assert self._tasks is not None
        self._tasks.start_soon(self._serve, connection, name="connection")

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            del self._open[connection]
            self.idled()

    async def _finish_all(self) -> None:
        for connection in list(self._open):
            connection.finish()
        self._waiting_for_slots += 1
        with anyio.move_on_after(GRACE):
            while self._open:
                await self._changed.wait()

    def _end(self, *listeners: Listener) -> None:
        for listener in listeners:
            self._ending.add(listener)
            listener.unlink()
            anyio.notify_closing(listener.socket)


def _nothing() -> None:
    """Nobody wants to know."""


def _slots() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SLOTS if limit == resource.RLIM_INFINITY else max(1, min(SLOTS, limit // 2))
