from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import h11
import pytest
from blockbuster import blockbuster_ctx
from wire import CLOCK_BACKEND, Client, advance, event, request, serving, settle, short_dir

from memoryd.daemon import listener
from memoryd.daemon.dispatch import Dispatcher, RawAnswer, Stream
from memoryd.daemon.server import Server
from memoryd.errors import RequestError
from memoryd.protocol import (
    BODY_LIMIT,
    Done,
    Follow,
    GetStatus,
    GetVersion,
    Message,
    Save,
    TurnEnded,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
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
        yield directory / "s"


class Desk:
    """Handlers that a test looks into and holds back."""

    def __init__(self) -> None:
        self.got: list[TurnEnded] = []
        self.callers: list[Caller] = []
        self.came = anyio.Event()
        self.let_go = anyio.Event()
        self.feed, self.lines = anyio.create_memory_object_stream[Message](10)
        self.handlers: dict[type[Message], Handler] = {
            TurnEnded: self.turn_ended,
            Save: self.save,
            GetVersion: self.version,
            GetStatus: self.status,
            Follow: self.follow,
        }

    async def turn_ended(self, message: TurnEnded, caller: Caller) -> None:
        self.got.append(message)
        self.callers.append(caller)
        self.came.set()

    async def save(self, _message: Save, caller: Caller) -> Done:
        """Answered when the test lets go."""
        self.callers.append(caller)
        self.came.set()
        await self.let_go.wait()
        return Done(sentence="saved")

    async def version(self, _message: GetVersion, caller: Caller) -> Done:
        return Done(sentence=f"uid {caller.peer.uid} pid {caller.peer.pid}")

    async def status(self, _message: GetStatus, _caller: Caller) -> Done:
        raise RuntimeError("a prompt")

    async def follow(self, _message: Follow, caller: Caller) -> Stream:
        self.callers.append(caller)
        return Stream(self.lines)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.feed.close()
    desk.lines.close()


@asynccontextmanager
async def connected(path: Path, desk: Desk) -> AsyncIterator[Client]:
    async with serving(path, desk.handlers), await Client.connect(path) as client:
        yield client


async def test_requests_follow_each_other_on_one_connection(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        for number in range(3):
            got = await client.ask(event(session=f"s{number}"))
            assert (got.status, got.headers["memoryd-generation"]) == (200, "1")
    assert [message.session_id for message in desk.got] == ["s0", "s1", "s2"]


async def test_requests_sent_at_once_are_answered_in_order(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.send(event(session="a") + request("/v1/nothing") + event(session="b"))
        assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]


async def test_the_kernel_says_who_called(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        got = await client.ask(request("/v1/version", method="GET"))
    assert got.body == f'{{"sentence":"uid {os.geteuid()} pid {os.getpid()}"}}'.encode()


async def test_a_client_that_waits_for_nothing_is_still_heard(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(event(session="a") + event(session="b"))
        await settle()
    assert [message.session_id for message in desk.got] == ["a", "b"]


async def test_a_client_that_was_gone_before_the_accept_is_heard(path: Path, desk: Desk) -> None:
    async with anyio.create_task_group() as tasks:
        server = Server(Dispatcher(desk.handlers), [listener.bind(path)])
        for number in range(50):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(event(session=f"s{number}"))
        await tasks.start(server.serve)
        server.stop()
    assert [message.session_id for message in desk.got] == [f"s{n}" for n in range(50)]


async def test_a_failing_handler_hurts_only_its_request(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        got = await client.ask(request("/v1/status", method="GET"))
        assert (got.status, got.problem.code) == (500, "internal")
        assert (await client.ask(event())).status == 200


async def test_a_bad_request_is_answered_and_ends_the_connection(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        got = await client.ask(b"rubbish\r\n\r\n")
        assert (got.status, got.problem.code) == (400, "bad_request")
        assert await client.ended()


async def test_a_client_that_sends_too_much_sees_why(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        head = f"POST /v1/save HTTP/1.1\r\nhost: m\r\ncontent-length: {BODY_LIMIT * 2}\r\n\r\n"
        await client.send(head.encode())
        for _ in range(64):
            await client.send(b"x" * 65536)
        got = await client.answer()
        assert (got.status, got.problem.code) == (413, "body_too_long")
        assert await client.ended()


async def test_an_endless_body_is_cut_off(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: 2147483648\r\n\r\n")
        with pytest.raises(anyio.BrokenResourceError):
            await client.send(b"x" * 64_000_000)
    assert not desk.got


async def test_a_body_held_back_is_asked_for(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        head, _, body = event().partition(b"\r\n\r\n")
        await client.send(head + b"\r\nexpect: 100-continue\r\n\r\n")
        assert (await client.stream.receive()).startswith(b"HTTP/1.1 100")
        assert (await client.ask(body)).status == 200


async def test_a_connection_without_a_word_is_closed(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await settle()
        advance(9.9)
        await settle()
        assert (await client.ask(event())).status == 200
        await settle()
        advance(10.1)
        assert await client.ended()


async def test_a_slow_request_is_refused(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        for byte in event()[:11]:
            await client.send(bytes([byte]))
            await settle()
            advance(1)
        got = await client.answer()
        assert (got.status, got.problem.code) == (408, "too_slow")
        assert await client.ended()
    assert not desk.got


async def test_a_half_request_and_then_silence_is_refused(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.send(event()[:-1])
        await settle()
        advance(10.1)
        assert (await client.answer()).status == 408


async def test_a_client_that_never_pauses_has_its_limit_too(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        head = b"POST /v1/save HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n"
        await client.send(head + b"1\r\nx\r\n" * 20_000)
        await settle(5)
        advance(10.1)
        assert (await client.answer()).status == 408


async def test_only_a_connection_with_nothing_unread_may_be_dropped(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server, await Client.connect(path) as client:
        await settle()
        (connection,) = server._open
        assert connection.may_be_dropped()
        await client.send(event())
        assert not connection.may_be_dropped()
        assert (await client.answer()).status == 200


async def test_a_held_answer_has_no_limit(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.send(request("/v1/save", b"{}"))
        await desk.came.wait()
        await settle()
        advance(3600)
        await settle()
        desk.let_go.set()
        assert (await client.answer()).status == 200


async def test_a_client_that_takes_no_answer_is_closed(path: Path) -> None:
    async def long(_message: GetVersion, _caller: Caller) -> RawAnswer:
        return RawAnswer(b"x" * 10_000_000)

    async with serving(path, {GetVersion: long}) as server, await Client.connect(path) as client:
        await client.send(request("/v1/version", method="GET"))
        await settle()
        assert len(server._open) == 1
        advance(10.1)
        await settle()
        assert not server._open


async def test_the_limit_of_a_long_answer_starts_anew_with_each_piece(path: Path) -> None:
    async def long(_message: GetVersion, _caller: Caller) -> RawAnswer:
        return RawAnswer(b"x" * 2_000_000)

    async with serving(path, {GetVersion: long}), await Client.connect(path) as client:
        await client.send(request("/v1/version", method="GET"))
        size = 0
        async for part in client.events(method="GET"):
            size += len(part.data) if isinstance(part, h11.Data) else 0
            advance(1)
            await settle(3)
        assert size == 2_000_000


async def test_a_client_that_asked_to_close_sees_the_end_at_once(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.ask(event().replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
        assert await client.ended()


async def test_a_follower_gets_each_line_when_it_comes(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        await client.send(request("/v1/follow", method="GET"))
        parts = client.events(method="GET")
        head = await anext(parts)
        assert isinstance(head, h11.Response)
        assert (b"content-type", b"application/x-ndjson") in list(head.headers)
        for word in ("a", "b"):
            await settle()
            advance(60)
            await desk.feed.send(Done(sentence=word))
            line = await anext(parts)
            assert isinstance(line, h11.Data)
            assert line.data == f'{{"sentence":"{word}"}}\n'.encode()
        desk.feed.close()
        assert isinstance(await anext(parts), h11.EndOfMessage)
        await parts.aclose()
        assert (await client.ask(event())).status == 200


async def test_a_follower_that_left_is_noticed_without_a_line(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers) as server:
        client = await Client.connect(path)
        await client.send(request("/v1/follow", method="GET"))
        assert isinstance(await anext(client.events()), h11.Response)
        await client.close()
        await settle()
        assert not server._open
        assert desk.lines.statistics().open_receive_streams == 0


async def test_a_stream_that_fails_ends_without_its_last_chunk(path: Path) -> None:
    @asynccontextmanager
    async def source() -> AsyncIterator[AsyncIterator[Message]]:
        async def lines() -> AsyncIterator[Message]:
            yield Done(sentence="a")
            raise RequestError(400, "x", "y", "z")

        yield lines()

    async def follow(_message: Follow, _caller: Caller) -> Stream:
        return Stream(source())

    async with serving(path, {Follow: follow}), await Client.connect(path) as client:
        await client.send(request("/v1/follow", method="GET"))
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await client.answer()


async def test_nothing_on_the_way_of_a_request_blocks_the_loop(path: Path, desk: Desk) -> None:
    async with connected(path, desk) as client:
        with blockbuster_ctx():
            for _ in range(3):
                await client.ask(event())
            await client.ask(request("/v1/nothing"))
