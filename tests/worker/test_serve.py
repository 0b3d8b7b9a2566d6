from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from memoryd.adapters.forks.messages import (
    Answer,
    Ask,
    Connect,
    Drop,
    Failed,
    FromWorker,
    Ready,
    ToWorker,
    encode,
    from_worker,
)
from memoryd.protocol import Usage
from memoryd.worker.serve import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

CONNECT = Connect(api_key="sk-made-up", base_url="http://127.0.0.1:1")


class Echo:
    """A model that says what it was asked, or nothing at all when it is asked to wait."""

    def __init__(self, connect: Connect) -> None:
        self._key = connect.api_key
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    async def ask(self, ask: Ask) -> Answer | Failed:
        if ask.message == "wait":
            await anyio.sleep_forever()
        usage = Usage()
        return Answer(id=ask.id, text=ask.message, model=self._key, stop="end", usage=usage)


class Pipes:
    """The worker's ends and ours."""

    def __init__(self) -> None:
        self.lines_in, self._to = os.pipe()
        self._from, self.lines_out = os.pipe()
        self._reader = os.fdopen(self._from, "rb")

    async def send(self, *messages: ToWorker) -> None:
        data = b"".join(encode(message) for message in messages)
        await anyio.to_thread.run_sync(os.write, self._to, data)

    async def receive(self) -> FromWorker:
        return from_worker(await anyio.to_thread.run_sync(self._reader.readline))

    def end_input(self) -> None:
        os.close(self._to)
        self._to = -1

    def close(self) -> None:
        self._reader.close()
        for descriptor in (self.lines_in, self.lines_out, self._to):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def ask(id_: str, message: str) -> Ask:
    return Ask(
        id=id_,
        model="m",
        max_tokens=1,
        seconds=1.0,
        system="",
        conversation=(),
        message=message,
    )


def text(message: FromWorker) -> str:
    assert isinstance(message, Answer)
    return message.text


async def test_it_is_ready_answers_and_ends_with_its_input(pipes: Pipes) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, pipes.lines_in, pipes.lines_out, Echo)
        assert await pipes.receive() == Ready()
        await pipes.send(CONNECT, ask("1", "hello"))
        assert text(await pipes.receive()) == "hello"
        await pipes.send(ask("2", "wait"))
        pipes.end_input()


async def test_a_request_that_waits_holds_up_no_other(pipes: Pipes) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, pipes.lines_in, pipes.lines_out, Echo)
        await pipes.receive()
        await pipes.send(CONNECT, ask("1", "wait"), ask("2", "hello"))
        assert text(await pipes.receive()) == "hello"
        pipes.end_input()


async def test_a_dropped_request_gets_no_answer(pipes: Pipes) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, pipes.lines_in, pipes.lines_out, Echo)
        await pipes.receive()
        await pipes.send(CONNECT, ask("1", "wait"), Drop(id="1"), Drop(id="never asked"))
        await pipes.send(ask("2", "hello"))
        assert text(await pipes.receive()) == "hello"
        pipes.end_input()


async def test_another_key_counts_for_what_is_asked_after_it(pipes: Pipes) -> None:
    other = Connect(api_key="sk-made-up-2", base_url="http://127.0.0.1:1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, pipes.lines_in, pipes.lines_out, Echo)
        await pipes.receive()
        await pipes.send(CONNECT, ask("1", "hello"))
        first = await pipes.receive()
        await pipes.send(other, ask("2", "hello"))
        second = await pipes.receive()
        assert isinstance(first, Answer)
        assert isinstance(second, Answer)
        assert (first.model, second.model) == ("sk-made-up", "sk-made-up-2")
        pipes.end_input()


async def test_an_answer_longer_than_a_pipe_arrives_whole(pipes: Pipes) -> None:
    long = "x" * 300_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, pipes.lines_in, pipes.lines_out, Echo)
        await pipes.receive()
        tasks.start_soon(pipes.send, CONNECT, ask("1", long))
        assert text(await pipes.receive()) == long
        pipes.end_input()


def test_what_holds_texts_or_a_key_does_not_show_them() -> None:
    usage = Usage()
    answer = Answer(id="1", text="secret", model="m", stop="end", usage=usage)
    shown = f"{CONNECT!r} {ask('1', 'secret')!r} {answer!r}"
    assert "secret" not in shown
    assert "sk-made-up" not in shown
