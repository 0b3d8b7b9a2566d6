"""A daemon that records what clients send and answers what a test says.

It parses requests with h11, as the real one does, so that what it takes is valid HTTP.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from threading import Condition, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

import h11
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    ended: Event = field(default_factory=Event)
    """Set when the client's process ended."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One whole request."""

    route: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return msgspec.json.decode(self.body)

    def said(self, name: str) -> str:
        """The environment's value of that name, decoded; empty where it is not there."""
        pairs = (pair.partition("=") for pair in self.headers["memoryd-env"].split(";"))
        return bytes.fromhex({field: value for field, _, value in pairs}.get(name, "")).decode()


Answerer = Callable[[Arrival], Reply | None]


class FakeDaemon:
    """Serves `path` while it is entered. `answer` gives None for a client that is never answered."""

    def __init__(
        self, path: Path, answer: Answerer = lambda _: Reply(), *, backlog: int = 512
    ) -> None:
        self.path = path
        self.answer = answer
        self.arrivals: list[Arrival] = []
        self._changed = Condition()
        self._closing = Event()
        self._connections: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(backlog)

    def wait_for(self, wanted: Callable[[list[Arrival]], bool], seconds: float = 20.0) -> None:
        """Return when the arrivals so far fit; raises TimeoutError with the routes that came."""
        with self._changed:
            if not self._changed.wait_for(lambda: wanted(self.arrivals), seconds):
                raise TimeoutError(f"after {seconds:g} s: {self.routes()}")

    def wait_for_routes(self, *routes: str, seconds: float = 20.0) -> None:
        """Return when exactly these routes arrived, in this order."""
        self.wait_for(lambda _: self.routes() == list(routes), seconds)

    def routes(self) -> list[str]:
        return [arrival.route for arrival in list(self.arrivals)]

    def of(self, route: str) -> list[Arrival]:
        return [arrival for arrival in list(self.arrivals) if arrival.route == route]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for open_socket in (self._listener, *self._connections):
            _shut(open_socket)
        for thread in list(self._threads):
            thread.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, _peer_process(connection) as process:
            arrival = _read(connection)
            if arrival is None:
                return
            with self._changed:
                self.arrivals.append(arrival)
                self._changed.notify_all()
            reply = self.answer(arrival)
            if reply is not None:
                _send(connection, reply)
            _wait_for_end(connection)
            process.wait()
            if reply is not None:
                reply.ended.set()


def answer_in_order(parts: list[bytes]) -> Answerer:
    """Answers of SessionStart's parts: each is given when the process of the one before it ended.

    The end of its connection comes a little earlier: on a busy machine the next process could overtake.
    Every start of a session gets all parts anew; other routes get an empty answer.
    """
    starts = [count() for _ in parts]
    lock = Lock()
    ended: defaultdict[tuple[int, int], Event] = defaultdict(Event)

    def answer(arrival: Arrival) -> Reply:
        if arrival.route != "session_started":
            return Reply()
        part = int(arrival.headers["memoryd-part"])
        with lock:
            start = next(starts[part - 1])
            before, this = ended[start, part - 1], ended[start, part]
        if part > 1:
            before.wait(2.0)
        return Reply(body=parts[part - 1], ended=this)

    return answer


class _Process:
    """A client's process, where the system can wait for one that is not a child."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self) -> None:
        if self._descriptor is not None:
            select.select([self._descriptor], [], [], 20.0)


@contextmanager
def _peer_process(connection: socket.socket) -> Iterator[_Process]:
    if sys.platform != "linux":
        yield _Process(None)
        return
    record = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    try:
        descriptor = os.pidfd_open(struct.unpack("3i", record)[0])
    except ProcessLookupError:  # it sent its event and is gone
        yield _Process(None)
        return
    try:
        yield _Process(descriptor)
    finally:
        os.close(descriptor)


def _read(connection: socket.socket) -> Arrival | None:
    parser = h11.Connection(h11.SERVER)
    request, body = None, bytearray()
    while True:
        try:
            found = parser.next_event()
            if found is h11.NEED_DATA:
                parser.receive_data(connection.recv(65536))
                continue
        except (OSError, h11.RemoteProtocolError):
            return None
        match found:
            case h11.Request():
                request = found
            case h11.Data():
                body += found.data
            case h11.EndOfMessage() if request is not None:
                headers = {name.decode(): value.decode() for name, value in request.headers}
                return Arrival(request.target.decode().rpartition("/")[2], headers, bytes(body))
            case _:
                return None


def _send(connection: socket.socket, reply: Reply) -> None:
    phrase = HTTPStatus(reply.status).phrase
    head = f"HTTP/1.1 {reply.status} {phrase}\r\nmemoryd-version: 0\r\n"
    head += f"content-length: {len(reply.body)}\r\n\r\n"
    try:
        connection.sendall(head.encode() + reply.body)
    except OSError:
        return


def _wait_for_end(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except OSError:
        return


def _shut(open_socket: socket.socket) -> None:
    try:
        open_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
