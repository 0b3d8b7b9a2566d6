"""A daemon that answers memoryctl what a test says, in the test's own process."""

from __future__ import annotations

import socketserver
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from memoryd.protocol import Message


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def route(self) -> str:
        return self.target.partition("?")[0].rpartition("/")[2]

    @property
    def message(self) -> dict[str, Any]:
        """What was asked: of the body, else of the query, whose values are texts."""
        if self.body:
            found: dict[str, Any] = msgspec.json.decode(self.body)
            return found
        query = parse_qs(self.target.partition("?")[2])
        return {name: values[0] for name, values in query.items()}


class Reply(NamedTuple):
    body: bytes = b""
    status: int = 200
    generation: str = "1"


def of(message: Message, status: int = 200) -> Reply:
    return Reply(msgspec.json.encode(message), status)


def daemon(folder: Path, message: Message, status: int = 200) -> AnsweringDaemon:
    """Answers every route with one message, on the socket of the person whose place `folder` is."""
    return AnsweringDaemon(folder / "s", of(message, status))


class AnsweringDaemon:
    """Serves `path` while it is entered; None: that client is never answered."""

    def __init__(self, path: Path, answer: Reply | Callable[[Asked], Reply | None]) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._path = path
        self._closing = Event()
        self._server = _Server(self, path)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def only(self) -> tuple[str, dict[str, Any]]:
        """Route and message of the only request."""
        (asked,) = self.asked
        return asked.route, asked.message

    def reply_to(self, asked: Asked) -> Reply | None:
        self.asked.append(asked)
        found = self._answer if isinstance(self._answer, Reply) else self._answer(asked)
        if found is None:
            self._closing.wait()
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, daemon: AnsweringDaemon, path: Path) -> None:
        self.daemon = daemon
        super().__init__(str(path), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what a test is about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Say nothing."""

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def _reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.daemon.reply_to(Asked(self.command, self.path, headers, body))
        if reply is None:
            return
        self.send_response(reply.status)
        self.send_header("memoryd-generation", reply.generation)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
