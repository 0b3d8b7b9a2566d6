from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from wire import CLOCK_BACKEND, Client, advance, event, request, serving, settle, short_dir

from memoryd.daemon.caller import Caller, Peer
from memoryd.daemon.dispatch import RawAnswer
from memoryd.protocol import Done, Message, Save, SessionStarted, ShimHeaders, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """Handlers that keep their callers."""

    def __init__(self) -> None:
        self.got: list[TurnEnded] = []
        self.callers: list[Caller] = []
        self.came = anyio.Event()
        self.let_go = anyio.Event()
        self.handlers: dict[type[Message], Handler] = {
            TurnEnded: self.turn_ended,
            Save: self.save,
            SessionStarted: self.session_started,
        }

    async def turn_ended(self, message: TurnEnded, caller: Caller) -> None:
        self.got.append(message)
        self.callers.append(caller)

    async def save(self, _message: Save, caller: Caller) -> Done:
        """Answered when the test lets go."""
        self.callers.append(caller)
        self.came.set()
        await self.let_go.wait()
        return Done(sentence="saved")

    async def session_started(self, message: SessionStarted, caller: Caller) -> RawAnswer:
        """Each part waits for the end of the one before it."""
        before = self.callers[-1] if self.callers else None
        self.callers.append(caller)
        if before is not None:
            await before.gone()
        return RawAnswer(message.source.encode())


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_spooled_request_has_nobody_waiting() -> None:
    caller = Caller(Peer(1000), ShimHeaders(part=1))
    assert caller.spooled
    assert caller.shim.part == 1
    await caller.gone()


async def test_a_handler_learns_that_its_client_is_gone(path: Path, desk: Desk) -> None:
    left = anyio.Event()

    async def wait(_message: Save, caller: Caller) -> None:
        desk.came.set()
        await caller.gone()
        left.set()

    async with serving(path, {Save: wait}):
        client = await Client.connect(path)
        await client.send(request("/v1/save", b"{}"))
        await desk.came.wait()
        await settle()
        assert not left.is_set()
        await client.close()
        with anyio.fail_after(60):
            await left.wait()


async def test_a_client_is_still_there_while_it_sends_its_next_request(
    path: Path, desk: Desk
) -> None:
    async with (
        serving(path, desk.handlers),
        await Client.connect(path) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.send(request("/v1/save", b"{}"))
        await desk.came.wait()
        left = anyio.Event()

        async def watch() -> None:
            await desk.callers[0].gone()
            left.set()

        tasks.start_soon(watch)
        await settle()
        await client.send(event(last_assistant_message="x" * 100_000))
        await settle()
        assert not left.is_set()
        desk.let_go.set()
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 200
        assert (await client.ask(event())).status == 200
        assert not left.is_set()
        await client.close()
        with anyio.fail_after(60):
            await left.wait()
    assert len(desk.got) == 2


async def test_the_parts_of_a_session_start_are_answered_in_the_order_of_the_exits(
    path: Path, desk: Desk
) -> None:
    answers: list[str] = []

    async def part(client: Client, number: int) -> None:
        got = await client.answer()
        answers.append(got.body.decode())
        # Printed, and not ended yet: no later part may have its answer.
        await settle()
        assert len(answers) == number + 1
        await client.close()

    async with serving(path, desk.handlers), anyio.create_task_group() as tasks:
        clients = [await Client.connect(path) for _ in range(6)]
        for number, client in enumerate(clients):
            await client.send(event("session_started", source=f"part {number}"))
            await settle()
        assert len(desk.callers) == 6
        for number in (5, 3, 0, 1, 4, 2):
            tasks.start_soon(part, clients[number], number)
    assert answers == [f"part {number}" for number in range(6)]


@pytest.mark.parametrize("header", [{}, {"connection": "close"}])
async def test_the_end_of_a_client_is_known_after_its_answer(
    path: Path, desk: Desk, header: dict[str, str]
) -> None:
    async with serving(path, desk.handlers), anyio.create_task_group() as tasks:
        client = await Client.connect(path)
        await client.ask(request("/v1/turn_ended", {"session_id": "s"}, headers=header))
        left = anyio.Event()

        async def watch() -> None:
            await desk.callers[0].gone()
            left.set()

        tasks.start_soon(watch)
        await settle()
        assert not left.is_set()
        await client.close()
        with anyio.fail_after(60):
            await left.wait()


async def test_a_dropped_connection_counts_as_gone(path: Path, desk: Desk) -> None:
    async with serving(path, desk.handlers), await Client.connect(path) as client:
        await client.ask(event())
        await settle()
        advance(10.1)
        with anyio.fail_after(60):
            await desk.callers[0].gone()
