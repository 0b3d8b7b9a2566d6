"""Tools for tests of the daemon's socket: a client that sees every byte, a server, a clock to turn."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import anyio
import h11
import msgspec

import memoryd
from memoryd.daemon import listener
from memoryd.daemon.dispatch import Dispatcher
from memoryd.daemon.server import Server
from memoryd.protocol import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

    from anyio.abc import SocketStream

    from memoryd.daemon.connection import Limits
    from memoryd.daemon.dispatch import Handler
    from memoryd.protocol import Message

SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test turns on: no time limit has to be waited for."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


CLOCK_BACKEND = ("asyncio", {"loop_factory": ClockLoop})
"""For the fixture `anyio_backend`."""


def advance(seconds: float) -> None:
    """Turn the running loop's clock on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    loop.ahead += seconds


async def settle(turns: int = 30) -> None:
    """Give every task that can go on the chance to: nothing here waits for anything but sockets."""
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()


@contextmanager
def short_dir() -> Iterator[Path]:
    """A private directory with a short path: a socket's path has 103 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="m-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def request(
    target: str = "/v1/turn_ended",
    body: bytes | Mapping[str, Any] = b"",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A request as a shim writes it."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = {"host": "memoryd", "content-length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + data


def event(route: str = "turn_ended", *, session: str = SESSION, **fields: Any) -> bytes:
    """A request with a hook event."""
    return request(f"/v1/{route}", {"session_id": session, **fields})


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as the client saw it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def problem(self) -> Problem:
        return msgspec.json.decode(self.body, type=Problem)


class Client:
    """One connection; every answer is checked by h11."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._left = b""

    @classmethod
    async def connect(cls, path: Path) -> Self:
        return cls(await anyio.connect_unix(path))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.stream.aclose()

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def ask(self, data: bytes) -> Got:
        await self.send(data)
        return await self.answer()

    async def answer(self, *, method: str = "POST") -> Got:
        """The next answer; raises EndOfStream where the connection ends before it."""
        head: h11.Response | None = None
        body = bytearray()
        async for found in self.events(method=method):
            if isinstance(found, h11.Response):
                head = found
            elif isinstance(found, h11.Data):
                body += found.data
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Got(head.status_code, headers, bytes(body))

    async def events(self, *, method: str = "POST") -> AsyncGenerator[h11.Event]:
        """The parts of the next answer as they come."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("host", "m")]))
        http.send(h11.EndOfMessage())
        if self._left:
            http.receive_data(self._left)
        found: h11.Event | type[h11.NEED_DATA | h11.PAUSED] = h11.NEED_DATA
        while not isinstance(found, h11.EndOfMessage):
            found = http.next_event()
            if found is h11.NEED_DATA:
                http.receive_data(await self.stream.receive())
            elif isinstance(found, h11.Event):
                yield found
        self._left = http.trailing_data[0]

    async def ended(self) -> bool:
        """The server closes without a further byte."""
        try:
            return await self.stream.receive() == b""
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return not self._left


@asynccontextmanager
async def serving(
    path: Path,
    handlers: Mapping[type[Message], Handler],
    *,
    limits: Limits | None = None,
    slots: int = 0,
) -> AsyncIterator[Server]:
    """A server on `path`, stopped at the end."""
    server = Server(Dispatcher(handlers), [listener.bind(path)], limits=limits, slots=slots)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        try:
            yield server
        finally:
            server.stop()


class DaemonProcess:
    """A real process with tests/tiny_daemon.py; killed at the end of the block."""

    def __init__(self, state: Path, memory_root: Path, path: Path, *, files: int = 0) -> None:
        self.path = path
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")]),
        }
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files},) * 2)\n"
        script = str(REPOSITORY / "tests" / "tiny_daemon.py")
        run = f"import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path({script!r}, None, '__main__')"
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                (limit if files else "") + run,
                script,
                state,
                memory_root,
                path,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()

    def wait_ready(self) -> bool:
        """It answers now; False where it ended instead."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() == "ready\n"

    def ended(self) -> int:
        """Its exit code."""
        return self._process.wait(20)

    def words(self) -> str:
        """What it said on stderr, after its end."""
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    def ask(self, method: str, name: str, body: bytes = b"{}", *, seconds: float = 20.0) -> Got:
        """One request on a connection of its own."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(seconds)
            client.connect(str(self.path))
            client.sendall(request(f"/v1/{name}", body, method=method, headers=CLOSE))
            answer = HTTPResponse(client, method=method)
            answer.begin()
            return Got(answer.status, dict(answer.getheaders()), answer.read())


REPOSITORY = Path(memoryd.__file__).parents[1]
CLOSE = {"connection": "close"}
