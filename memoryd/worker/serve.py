"""The worker's loop: lines in, requests side by side, lines out.

Owns which request belongs to which id. Knows nothing of HTTP: what asks the model is handed in.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, assert_never

import anyio
import anyio.to_thread

from memoryd.adapters.forks.messages import (
    Answer,
    Ask,
    Connect,
    Drop,
    Failed,
    FromWorker,
    Ready,
    encode,
    to_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup


class Model(Protocol):
    """What asks the model, with one key at one place."""

    async def ask(self, ask: Ask) -> Answer | Failed: ...

    async def close(self) -> None: ...


async def serve(lines_in: int, lines_out: int, connect: Callable[[Connect], Model]) -> None:
    """Answer until `lines_in` ends; then what is still asked is dropped."""
    desk = _Desk(lines_out, connect)
    async with anyio.create_task_group() as tasks:
        await desk.tell(Ready())
        with os.fdopen(lines_in, "rb", closefd=False) as source:
            while line := await anyio.to_thread.run_sync(source.readline):
                desk.take(line, tasks)
        tasks.cancel_scope.cancel()
    await desk.close()


class _Desk:
    def __init__(self, lines_out: int, connect: Callable[[Connect], Model]) -> None:
        self._out = lines_out
        self._connect = connect
        self._models: list[Model] = []
        """Of all keys so far: what was asked with an earlier one may still be under way."""
        self._asked: dict[str, anyio.CancelScope] = {}
        self._turn = anyio.Lock()

    def take(self, line: bytes, tasks: TaskGroup) -> None:
        message = to_worker(line)
        match message:
            case Connect() as connect:
                self._models.append(self._connect(connect))
            case Ask() as ask:
                # The daemon connects first.
                tasks.start_soon(self._answer, self._models[-1], ask)
            case Drop(id=id_):
                if scope := self._asked.get(id_):
                    scope.cancel()
            case _:
                assert_never(message)

    async def close(self) -> None:
        for model in self._models:
            await model.close()

    async def _answer(self, model: Model, ask: Ask) -> None:
        with anyio.CancelScope() as scope:
            self._asked[ask.id] = scope
            try:
                await self.tell(await model.ask(ask))
            finally:
                del self._asked[ask.id]

    async def tell(self, message: FromWorker) -> None:
        """Write one line, whole: a pipe takes 64 KiB at once, an answer may be longer."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_write, self._out, encode(message))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
