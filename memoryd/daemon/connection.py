"""One connection: requests read, answered and, where one takes too long, given up.

Owns the socket from the accept to the close, its time limits, and the knowledge of whether the peer
is still there. Knows no route; what a request means is the dispatcher's.

One task and one cancel scope per connection, none per request: those cost six times the request.
The socket is tried first and waited for only where it would block.
"""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from memoryd.daemon.dispatch import Stream
from memoryd.daemon.http import JSON_LINES, RAW_HELP, Exchange
from memoryd.errors import RequestError
from memoryd.protocol import BODY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from memoryd.daemon.caller import Peer
    from memoryd.daemon.dispatch import Dispatcher
    from memoryd.daemon.http import Request

Phase = Literal["waiting", "reading", "busy", "leaving", "dropped"]
"""Nothing of a request is here; a part of one is; one is handled and answered; the last answer is out
and the peer has yet to close; it was told to end."""

CHUNK = 64 * 1024
"""Bytes read at once."""

AT_ONCE = 8
"""Pieces of a client that sends without a pause, before others get their turn."""

DISCARDED = 2 * BODY_LIMIT
"""Bytes read and thrown away after a refusal: a client that still sends would not see it else."""


class Limits(msgspec.Struct, frozen=True):
    """Seconds."""

    silence: float = 10.0
    """Nothing comes."""
    request: float = 10.0
    """From the first byte of a request to its last."""
    answer: float = 10.0
    """The client takes nothing of its answer."""


class Host(Protocol):
    """What a connection needs of its server."""

    def spawn(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that lives at most as long as the server."""

    def unheard(self) -> None:
        """Be told that the client had left when its answer came."""

    def idled(self) -> None:
        """Be told that the connection can be dropped from now on."""


class Connection:
    """Serves one accepted socket, and is the Line of its callers."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        dispatcher: Dispatcher,
        limits: Limits,
        host: Host,
    ) -> None:
        self._socket = sock
        self._peer = peer
        self._dispatcher = dispatcher
        self._limits = limits
        self._host = host
        self._exchange = Exchange()
        self._scope = anyio.CancelScope()
        self._streaming: anyio.CancelScope | None = None
        self._phase: Phase = "waiting"
        self._until = math.inf
        self._idle = False
        self._at_once = 0
        self._deaf = False
        self._finishing = False
        self._gone = False
        self._on_gone: anyio.Event | None = None
        self._ahead: MemoryObjectReceiveStream[bytes] | None = None
        self._ahead_in: MemoryObjectSendStream[bytes] | None = None

    def may_be_dropped(self) -> bool:
        """No complete request is here, and nothing has arrived unread."""
        if not self._idle:
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    async def serve(self) -> None:
        """Until the peer closes, a limit is over or it is dropped; closes the socket."""
        try:
            with self._scope:
                await self._serve_all()
            if self._scope.cancelled_caught and self._phase == "reading":
                self._refuse_the_slow()
        finally:
            self._close()

    def drop(self) -> None:
        """End it now, without an answer."""
        self._phase = "dropped"
        self._scope.cancel()

    def finish(self) -> None:
        """End it after the answer it owes; at once where it owes none."""
        self._finishing = True
        if self._streaming is not None:
            self._streaming.cancel()
        elif self._idle and self._phase != "reading":
            self.drop()

    async def gone(self) -> None:
        if self._gone:
            return
        if self._on_gone is None:
            self._on_gone = anyio.Event()
        if self._phase == "busy":
            self._read_ahead()
        await self._on_gone.wait()

    async def _serve_all(self) -> None:
        while not self._exchange.over:
            try:
                request = await self._next_request()
            except RequestError as error:
                refusal = self._dispatcher.refusal(error)
                await self._send(self._exchange.answer(refusal, last=True))
                break
            if request is None:
                return
            self._phase = "busy"
            if self._scope.deadline != math.inf:
                self._scope.deadline = math.inf
            if self._on_gone is not None:
                self._read_ahead()
            failed = await self._dispatcher.contained(self._handle(request), request)
            if failed is not None:
                if not self._exchange.owed:
                    return
                await self._send(self._exchange.answer(failed, last=self._finishing))
        await self._leave()

    async def _handle(self, request: Request) -> None:
        answer = await self._dispatcher.answer(request, self._peer, self)
        if isinstance(answer, Stream):
            await self._stream(answer)
        else:
            await self._send(self._exchange.answer(answer, last=self._finishing))

    async def _stream(self, stream: Stream) -> None:
        await self._send(self._exchange.begin_stream(JSON_LINES))
        # A task per stream is no task per request: a stream lasts, and its client may vanish while
        # there is nothing to send.
        async with anyio.create_task_group() as group:
            self._streaming = group.cancel_scope
            group.start_soon(self._cancel_when_gone, group.cancel_scope)
            async with stream.source as messages:
                async for message in messages:
                    await self._send(self._exchange.stream(self._dispatcher.line(message)))
            group.cancel_scope.cancel()
        self._streaming = None
        await self._send(self._exchange.end_stream())

    async def _cancel_when_gone(self, scope: anyio.CancelScope) -> None:
        await self.gone()
        scope.cancel()

    async def _next_request(self) -> Request | None:
        """The next whole request; None where the peer is gone. Raises RequestError."""
        self._phase = "waiting"
        waited, reading = False, self._exchange.begun
        if reading:
            self._enter_reading()
        while (request := self._exchange.next_request()) is None:
            if self._exchange.unread:
                await self._others_first()
                continue
            if waited and not reading:
                reading = True
                self._enter_reading()
            if self._exchange.wants_continue:
                await self._send(self._exchange.go_on())
            data = await self._receive()
            if not data:
                return None
            waited = True
            self._exchange.receive(data)
        if not waited:
            # It came together with the one before.
            await self._others_first()
        return request

    def _enter_reading(self) -> None:
        self._phase = "reading"
        self._until = anyio.current_time() + self._limits.request

    async def _leave(self) -> None:
        """Wait for the peer to close first: somebody may wait for its end, and it may still send."""
        self._phase = "leaving"
        self._until = anyio.current_time() + self._limits.request
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        left = 0 if self._finishing else DISCARDED
        while left > 0 and (data := await self._receive()):
            left -= len(data)

    async def _receive(self) -> bytes:
        """What came next; empty where the peer is gone."""
        if self._ahead is None and (data := self._take()) is not None:
            self._at_once += 1
            if self._at_once > AT_ONCE:
                self._at_once = 0
                await self._others_first()
            return data
        self._at_once = 0
        silent = self._phase == "waiting"
        if silent and self._finishing:
            return b""
        self._scope.deadline = (
            anyio.current_time() + self._limits.silence if silent else self._until
        )
        self._idle = True
        self._host.idled()
        try:
            return await self._arrival()
        finally:
            self._idle = False

    async def _others_first(self) -> None:
        """Of a client that sends without a pause: nobody else has to wait for it."""
        if self._phase == "reading":
            self._scope.deadline = self._until
        await checkpoint()

    async def _arrival(self) -> bytes:
        if self._ahead is not None:
            try:
                return await self._ahead.receive()
            except anyio.EndOfStream:
                return b""
        while True:
            await anyio.wait_readable(self._socket)
            if (data := self._take()) is not None:
                return data

    def _take(self) -> bytes | None:
        """What is there; None where nothing is yet, empty where the peer is gone."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._say_gone()
        return data

    def _say_gone(self) -> None:
        self._gone = True
        if self._on_gone is not None:
            self._on_gone.set()

    async def _send(self, data: bytes) -> None:
        """All of `data`; a peer that no longer listens is no fault: its requests are still due."""
        view = memoryview(data)
        blocked = False
        while view and not self._deaf:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                blocked = True
                self._scope.deadline = anyio.current_time() + self._limits.answer
                await anyio.wait_writable(self._socket)
            except OSError:
                self._deaf = True
                self._host.unheard()
        if blocked:
            self._scope.deadline = math.inf

    def _read_ahead(self) -> None:
        """From now on a task of its own reads, so that the peer's end is seen at any time."""
        if self._ahead is None:
            self._ahead_in, self._ahead = anyio.create_memory_object_stream[bytes](1)
            self._host.spawn(self._pump)

    async def _pump(self) -> None:
        assert self._ahead_in is not None
        with self._ahead_in, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = self._take()
                if data is None:
                    await anyio.wait_readable(self._socket)
                elif data:
                    await self._ahead_in.send(data)
                else:
                    return

    def _refuse_the_slow(self) -> None:
        sentence = f"the request was not complete after {self._limits.request:g} s"
        error = RequestError(HTTPStatus.REQUEST_TIMEOUT, "too_slow", sentence, RAW_HELP)
        answer = self._exchange.answer(self._dispatcher.refusal(error), last=True)
        with suppress(OSError):
            self._socket.send(answer)

    def _close(self) -> None:
        self._phase = "dropped"
        self._say_gone()
        if self._ahead is not None and self._ahead_in is not None:
            self._ahead.close()
            self._ahead_in.close()
            anyio.notify_closing(self._socket)
        self._socket.close()
