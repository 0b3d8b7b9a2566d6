"""The worker's life, with a stand-in for the worker that speaks its lines and needs no import."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import processes
import pytest

from memoryd.adapters.forks import worker_link
from memoryd.adapters.forks.messages import Answer, Ask, Connect, Failed
from memoryd.adapters.forks.worker_link import WorkerLink, worker_command
from memoryd.adapters.supervisor import Command
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

STAND_IN = """
import json, sys
log = open(sys.argv[1], "a")
print("start", file=log, flush=True)
print("no line of ours", flush=True)
print(json.dumps({"is": "ready"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(asked["is"], asked.get("id", ""), file=log, flush=True)
    if asked["is"] != "ask" or asked["message"] == "silence":
        continue
    if asked["message"] == "die":
        sys.exit(1)
    answer = {"is": "answer", "id": asked["id"], "text": asked["message"], "model": "m"}
    answer |= {"stop": "end", "usage": {}}
    print(json.dumps({**answer, "id": "someone else's"}), flush=True)
    print(json.dumps(answer), flush=True)
"""

CONNECT = Connect(api_key="sk-made-up", base_url="http://127.0.0.1:1")


class Place:
    def __init__(self, folder: Path) -> None:
        self.tag = processes.new_tag()
        self.log = folder / "log"
        self.log.touch()
        arguments = (sys.executable, "-I", "-S", "-c", STAND_IN, str(self.log))
        self.command = Command(arguments, {processes.TAG: self.tag})
        self.idle = 600.0

    def lines(self) -> list[str]:
        return self.log.read_text().split("\n")[:-1]

    @asynccontextmanager
    async def link(self, command: Command | None = None) -> AsyncIterator[WorkerLink]:
        link = WorkerLink(command or self.command, lambda: self.idle)
        async with anyio.create_task_group() as tasks:
            await tasks.start(link.serve)
            yield link
            tasks.cancel_scope.cancel()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_link, "MARGIN", 0.1)


def ask(id_: str, message: str = "hello", seconds: float = 20.0) -> Ask:
    return Ask(
        id=id_,
        model="m",
        max_tokens=1,
        seconds=seconds,
        system="",
        conversation=("x",),
        message=message,
    )


def answer(id_: str, text: str = "hello") -> Answer:
    return Answer(id=id_, text=text, model="m", stop="end", usage=Usage())


async def test_nothing_runs_before_it_is_wanted(place: Place) -> None:
    async with place.link():
        await anyio.wait_all_tasks_blocked()
        assert processes.alive(place.tag) == []


async def test_one_worker_answers_one_after_another_and_side_by_side(place: Place) -> None:
    async with place.link() as link:
        link.warm()
        assert await link.ask(CONNECT, ask("1")) == answer("1")
        async with anyio.create_task_group() as tasks:
            for number in range(2, 10):
                tasks.start_soon(link.ask, CONNECT, ask(str(number)))
        assert place.lines().count("start") == 1
    assert await processes.none_alive(place.tag)


async def test_the_key_is_told_once_until_it_changes(place: Place) -> None:
    other = Connect(api_key="sk-made-up-2", base_url="http://127.0.0.1:1")
    async with place.link() as link:
        await link.ask(CONNECT, ask("1"))
        await link.ask(CONNECT, ask("2"))
        await link.ask(other, ask("3"))
    assert place.lines() == ["start", "connect ", "ask 1", "ask 2", "connect ", "ask 3"]


async def test_an_idle_worker_ends_and_the_next_request_starts_another(place: Place) -> None:
    place.idle = 0.01
    async with place.link() as link:
        assert await link.ask(CONNECT, ask("1")) == answer("1")
        assert await processes.none_alive(place.tag)
        assert await link.ask(CONNECT, ask("2")) == answer("2")
        assert await processes.none_alive(place.tag)
    assert place.lines().count("start") == 2


@pytest.mark.usefixtures("short_margin")
async def test_a_busy_worker_does_not_end(place: Place) -> None:
    place.idle = 0.01
    async with place.link() as link:
        result = await link.ask(CONNECT, ask("1", "silence", seconds=0.3))
        assert result == Failed(id="1", kind="transient", type="timeout")
        assert place.lines().count("start") == 1


@pytest.mark.usefixtures("short_margin")
async def test_an_abandoned_request_is_dropped_in_the_worker_too(place: Place) -> None:
    async with place.link() as link:
        await link.ask(CONNECT, ask("1"))
        with anyio.move_on_after(0.1):
            await link.ask(CONNECT, ask("2", "silence"))
        await link.ask(CONNECT, ask("3", "silence", seconds=0.1))
        assert await link.ask(CONNECT, ask("4")) == answer("4")
    assert place.lines()[-5:] == ["ask 2", "drop 2", "ask 3", "drop 3", "ask 4"]


async def test_a_worker_that_dies_fails_what_it_was_asked_and_is_replaced(place: Place) -> None:
    async with place.link() as link:
        assert await link.ask(CONNECT, ask("1", "die")) == Failed(
            id="1", kind="transient", type="worker_ended"
        )
        assert await link.ask(CONNECT, ask("2")) == answer("2")


@pytest.mark.usefixtures("short_margin")
async def test_a_worker_that_hangs_is_not_waited_for(place: Place) -> None:
    place.idle = 0.05
    async with place.link() as link:
        await link.ask(CONNECT, ask("1"))
        assert link._child is not None
        os.killpg(link._child._process.pid, signal.SIGSTOP)
        large = "x" * 2_000_000
        result = await link.ask(CONNECT, ask("2", large, seconds=0.1))
        assert result == Failed(id="2", kind="transient", type="timeout")
        assert await processes.none_alive(place.tag)
        assert await link.ask(CONNECT, ask("3")) == answer("3")


async def test_a_worker_that_can_not_work_says_why(place: Place) -> None:
    broken = 'print(\'{"is": "broken", "fact": "anthropic can\\\'t be imported"}\')'
    command = Command((sys.executable, "-I", "-c", broken), {})
    async with place.link(command) as link:
        result = await link.ask(CONNECT, ask("1"))
        assert result == Failed(id="1", kind="rejected", type="worker_ended")
        assert link.fault == "anthropic can't be imported"


async def test_a_worker_that_can_not_be_started_fails_the_request(
    place: Place, tmp_path: Path
) -> None:
    async with place.link(Command(("/bin/true",), {}, tmp_path / "gone")) as link:
        result = await link.ask(CONNECT, ask("1"))
        assert result == Failed(id="1", kind="transient", type="worker_ended")


def test_the_real_worker_gets_this_package_and_nothing_of_a_session() -> None:
    env = {"HOME": "/h", "PATH": "/p", "ANTHROPIC_API_KEY": "sk-made-up", "CLAUDE_X": "y"}
    command = worker_command(env)
    assert set(command.env) == {"HOME", "PATH", "PYTHONPATH"}
    assert command.argv[1:] == ("-P", "-m", "memoryd.worker")
