from __future__ import annotations

import errno
import os
import resource
import socket
import statistics
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import anyio
import h11
import pytest
from wire import (
    CLOCK_BACKEND,
    Client,
    DaemonProcess,
    advance,
    event,
    request,
    serving,
    settle,
    short_dir,
)

from memoryd.daemon import listener as listeners
from memoryd.daemon import server as server_module
from memoryd.daemon.caller import Peer
from memoryd.daemon.dispatch import Dispatcher, Stream
from memoryd.daemon.listener import Listener
from memoryd.errors import AlreadyRunningError
from memoryd.protocol import Done, Follow, Message, Save, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memoryd.daemon.caller import Caller
    from memoryd.daemon.dispatch import Handler

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return CLOCK_BACKEND


@pytest.fixture
def path() -> Iterator[Path]:
    with short_dir() as directory:
        yield directory / "sub" / "s"


class Desk:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.came = anyio.Event()
        self.let_go = anyio.Event()
        self.handlers: dict[type[Message], Handler] = {
            TurnEnded: self.turn_ended,
            Save: self.save,
            Follow: self.follow,
        }

    async def turn_ended(self, message: TurnEnded, _caller: Caller) -> None:
        self.got.append(message.session_id)

    async def save(self, _message: Save, _caller: Caller) -> Done:
        self.came.set()
        await self.let_go.wait()
        return Done(sentence="saved")

    async def follow(self, _message: Follow, caller: Caller) -> Stream:
        feed, lines = anyio.create_memory_object_stream[Message](1)
        feed.close()
        del caller
        return Stream(lines)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def exists(path: Path) -> bool:
    return os.path.lexists(path)


def delete(path: Path, *, directory: bool = False) -> None:
    path.unlink()
    if directory:
        path.parent.rmdir()


async def connect_all(path: Path, count: int) -> list[Client]:
    return [await Client.connect(path) for _ in range(count)]


async def close_all(clients: list[Client]) -> None:
    for client in clients:
        await client.close()


async def test_when_the_slots_are_full_the_oldest_idle_connection_gives_way(
    path: Path, desk: Desk
) -> None:
    async with serving(path, desk.handlers, slots=3) as server:
        clients = await connect_all(path, 3)
        await clients[0].send(request("/v1/save", b"{}"))
        await desk.came.wait()
        await settle()
        clients.append(await Client.connect(path))
        assert (await clients[3].ask(event(session="new"))).status == 200
        assert await clients[1].ended()
        assert (await clients[2].ask(event(session="kept"))).status == 200
        desk.let_go.set()
        assert (await clients[0].answer()).status == 200
        assert len(server._open) == 3
        await close_all(clients)
    assert desk.got == ["new", "kept"]


async def test_a_request_waits_while_all_slots_are_busy(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers, slots=2):
        clients = []
        for _ in range(2):
            clients += await connect_all(path, 1)
            await clients[-1].send(request("/v1/save", b"{}"))
        await settle()
        clients += await connect_all(path, 1)
        await clients[2].send(event(session="late"))
        await settle(100)
        assert not desk.got
        desk.let_go.set()
        assert (await clients[2].answer()).status == 200
        await close_all(clients)


async def test_no_event_of_a_burst_is_lost_to_the_slots(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers, slots=4):
        for number in range(200):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(event(session=f"s{number}"))
        await settle(500)
    assert sorted(desk.got) == sorted(f"s{number}" for number in range(200))


async def test_a_thousand_idle_connections_stop_nobody(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        with ExitStack() as stack:
            for number in range(1000):
                idle = stack.enter_context(socket.socket(socket.AF_UNIX))
                idle.connect(str(path))
                if number % 2:
                    idle.send(b"POST /v1/tu")
            async with await Client.connect(path) as client:
                assert (await client.ask(event(session="good"))).status == 200
            assert len(server._open) <= 512
    assert desk.got == ["good"]


@pytest.mark.parametrize("code", sorted(server_module.NO_ROOM))
async def test_an_accept_without_room_is_tried_again(
    path: Path, desk: Desk, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = Listener.accept
    fails = [OSError(code, os.strerror(code))] * 3

    def once_without_room(self: Listener) -> object:
        if fails:
            raise fails.pop()
        return accept(self)

    monkeypatch.setattr(Listener, "accept", once_without_room)
    async with serving(path, desk.handlers), await Client.connect(path) as client:
        await client.send(event())
        for _ in range(4):
            await settle()
            advance(0.1)
        assert (await client.answer()).status == 200


async def test_another_fault_of_the_accept_ends_the_server(
    path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Listener) -> None:
        raise OSError(errno.EINVAL, "x")

    monkeypatch.setattr(Listener, "accept", broken)
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(path, desk.handlers):
            await anyio.sleep_forever()
    assert caught.group_contains(OSError)
    assert not exists(path)


async def test_another_uid_gets_no_byte(
    path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "peer_of", lambda _: Peer(os.geteuid() + 1))
    async with serving(path, desk.handlers):
        client = await Client.connect(path)
        await client.send(event())
        assert await client.ended()
        await client.close()
    assert not desk.got


async def test_a_stop_serves_what_has_come_and_then_ends(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        idle, busy = await connect_all(path, 2)
        await busy.send(request("/v1/save", b"{}"))
        await desk.came.wait()
        # In the kernel's queue, not yet accepted.
        queued = await Client.connect(path)
        await queued.send(event(session="queued"))
        server.stop()
        assert await idle.ended()
        assert not exists(path)
        assert (await queued.answer()).status == 200
        assert await queued.ended()
        desk.let_go.set()
        got = await busy.answer()
        assert (got.status, got.headers["connection"]) == (200, "close")
        assert await busy.ended()
        await close_all([idle, busy, queued])
    assert desk.got == ["queued"]


async def test_a_stop_waits_its_grace_and_no_longer(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        (client,) = await connect_all(path, 1)
        await client.send(request("/v1/save", b"{}"))
        await desk.came.wait()
        server.stop()
        await settle()
        assert len(server._open) == 1
        advance(server_module.GRACE)
        assert await client.ended()
        await client.close()


async def test_a_stop_ends_a_stream_properly(path: Path) -> None:
    feed, lines = anyio.create_memory_object_stream[Message](1)

    async def follow(_message: Follow, _caller: Caller) -> Stream:
        return Stream(lines)

    with feed:
        async with serving(path, {Follow: follow}) as server:
            (client,) = await connect_all(path, 1)
            await client.send(request("/v1/follow", method="GET"))
            parts = client.events(method="GET")
            assert isinstance(await anext(parts), h11.Response)
            server.stop()
            assert isinstance(await anext(parts), h11.EndOfMessage)
            await parts.aclose()
            assert await client.ended()
            await client.close()


async def test_a_stop_before_the_first_connection_and_twice(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        server.stop()
        server.stop()
    assert not exists(path)


async def test_a_cancelled_server_leaves_no_socket(path: Path, desk: Desk) -> None:
    server = server_module.Server(Dispatcher(desk.handlers), [listeners.bind(path)])
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        tasks.cancel_scope.cancel()
    assert not exists(path)


@pytest.mark.parametrize("what", ["socket", "directory"])
async def test_a_deleted_socket_is_bound_again(path: Path, desk: Desk, what: str) -> None:
    async with serving(path, desk.handlers) as server:
        assert await server.mend() == 0
        before = await Client.connect(path)
        delete(path, directory=what == "directory")
        with pytest.raises(FileNotFoundError):
            await Client.connect(path)
        assert await server.mend() == 1
        after = await Client.connect(path)
        assert (await after.ask(event(session="after"))).status == 200
        assert (await before.ask(event(session="before"))).status == 200
        assert await server.mend() == 0
        assert (await after.ask(event(session="again"))).status == 200
        await close_all([before, after])
    assert desk.got == ["after", "before", "again"]
    assert not exists(path)


async def test_a_socket_that_another_daemon_took_is_not_taken_back(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        delete(path)
        other = listeners.bind(path)
        with pytest.raises(AlreadyRunningError):
            await server.mend()
        other.close()


GOOD_CALL = 0.25
"""Seconds that a call may take beside hostile clients."""


def call_seconds(process: DaemonProcess) -> float:
    """The median of some calls, each on a connection of its own."""
    taken = list[float]()
    for _ in range(11):
        started = time.perf_counter()
        assert process.ask("GET", "version").status == 200
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def hostile(path: Path, stack: ExitStack, count: int, data: bytes) -> list[socket.socket]:
    clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(count)]
    for client in clients:
        client.connect(str(path))
        client.send(data)
    return clients


def drip(clients: list[socket.socket]) -> None:
    for client in clients:
        with suppress(OSError):
            client.send(b"a")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as directory:
        yield directory


@pytest.mark.e2e
def test_more_connections_than_files_stop_nobody(folder: Path) -> None:
    with (
        DaemonProcess(folder / "state", folder / "memory", folder / "s", files=64) as process,
        ExitStack() as stack,
    ):
        assert process.wait_ready()
        hostile(process.path, stack, 120, b"POST /v1/turn_ended HTTP/1.1\r\n")
        assert call_seconds(process) < GOOD_CALL


@pytest.mark.e2e
def test_clients_that_drip_stop_nobody(folder: Path) -> None:
    with (
        DaemonProcess(folder / "state", folder / "memory", folder / "s") as process,
        ExitStack() as stack,
    ):
        assert process.wait_ready()
        clients = hostile(process.path, stack, 150, b"POST /v1/turn_ended HTTP/1.1\r\nhost: ")
        slowest = 0.0
        for _ in range(10):
            drip(clients)
            slowest = max(slowest, call_seconds(process))
        assert slowest < GOOD_CALL


@pytest.mark.e2e
def test_an_endless_body_stops_nobody(folder: Path) -> None:
    with (
        DaemonProcess(folder / "state", folder / "memory", folder / "s") as process,
        ExitStack() as stack,
    ):
        assert process.wait_ready()
        head = b"POST /v1/turn_ended HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n"
        clients = hostile(process.path, stack, 4, head)
        for client in clients:
            client.setblocking(False)
            with suppress(OSError):
                client.send(b"1\r\nx\r\n" * 30_000)
        assert call_seconds(process) < GOOD_CALL


def test_the_slots_follow_the_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, slots in ((1024, 512), (64, 32), (20_000, 512), (1, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert server_module._slots() == slots
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert server_module._slots() == 512
