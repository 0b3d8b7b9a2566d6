"""The daemon's side of the worker: started on demand, reused while busy, ended when idle.

Owns the worker's life and which answer belongs to which request; a late answer of an abandoned request
is dropped by its id. Knows neither prompts nor keys: it passes lines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import anyio
import msgspec

import memoryd
from memoryd.adapters import supervisor
from memoryd.adapters.forks.messages import (
    Answer,
    Ask,
    Broken,
    Connect,
    Drop,
    Failed,
    Ready,
    ToWorker,
    encode,
    from_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import TaskStatus

    from memoryd.adapters.supervisor import Child, Command
    from memoryd.core.failure import FailureKind

MARGIN = 2.0
"""Seconds that the worker may overrun a deadline before it is no longer waited for."""


def worker_command(env: Mapping[str, str]) -> Command:
    """`python -m memoryd.worker` with this interpreter and this very package.

    `-P`: the directory that the daemon happens to stand in is no place to import from.
    """
    package = str(Path(memoryd.__file__).parents[1])
    arguments = (sys.executable, "-P", "-m", "memoryd.worker")
    return supervisor.Command(arguments, {**supervisor.scrubbed(env), "PYTHONPATH": package})


class _Slot:
    """A request that waits for its answer."""

    def __init__(self, connect: Connect, ask: Ask) -> None:
        self.connect = connect
        self.ask = ask
        self.sent = False
        self.done = anyio.Event()
        self.result: Answer | Failed | None = None

    def settle(self, result: Answer | Failed) -> None:
        self.result = result
        self.done.set()


class WorkerLink:
    """At most one worker. `serve` has to run for `ask` to be answered."""

    def __init__(self, command: Command, idle: Callable[[], float]) -> None:
        self._command = command
        self._idle = idle
        self._slots: dict[str, _Slot] = {}
        self._wanted = anyio.Event()
        self._touched = anyio.Event()
        self._child: Child | None = None
        self._ready = False
        self._told: Connect | None = None
        self.fault = ""
        """Why a worker can't work here, or empty."""

    def warm(self) -> None:
        """Have a worker started, or kept a while longer; does not wait."""
        if self._child is None:
            self._wanted.set()
        self._touch()

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Start workers as they are wanted, until cancelled."""
        task_status.started()
        while True:
            await self._wanted.wait()
            try:
                async with supervisor.started(self._command) as child:
                    ended_idle = await self._attend(child)
            except supervisor.ChildError:
                self._wanted = anyio.Event()
                ended_idle = False
            if not ended_idle:
                self._fail_all()

    async def ask(self, connect: Connect, ask: Ask) -> Answer | Failed:
        """The worker's answer; a transient failure where none comes in time or the worker ends."""
        slot = self._slots[ask.id] = _Slot(connect, ask)
        self.warm()
        try:
            with anyio.move_on_after(ask.seconds + MARGIN):
                await self._send(slot)
                await slot.done.wait()
        finally:
            del self._slots[ask.id]
            self._touch()
            if slot.sent and not slot.done.is_set():
                # Shielded, since it matters most for a cancelled save; limited, since it may hang.
                with anyio.move_on_after(MARGIN, shield=True):
                    await self._tell(Drop(id=ask.id))
        return slot.result or Failed(id=ask.id, kind="transient", type="timeout")

    def _touch(self) -> None:
        self._touched.set()
        self._touched = anyio.Event()

    async def _attend(self, child: Child) -> bool:
        """Read what it says until it ends; True where it ended for being idle."""
        self._child = child
        self._wanted = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_idle, tasks.cancel_scope)
                async for line in child.lines():
                    await self._take(line)
                tasks.cancel_scope.cancel()
            return self._child is None
        finally:
            self._detach()

    async def _end_when_idle(self, reading: anyio.CancelScope) -> None:
        while True:
            touched = self._touched
            with anyio.move_on_after(None if self._slots else self._idle()) as waiting:
                await touched.wait()
            if waiting.cancelled_caught and not self._slots:
                # From here on a request wants a new worker; this one takes a moment to end.
                self._detach()
                reading.cancel()
                return

    def _detach(self) -> None:
        self._child, self._ready, self._told = None, False, None

    async def _take(self, line: bytes) -> None:
        try:
            message = from_worker(line)
        except msgspec.DecodeError:
            return  # not one of ours: a library that found its way around to standard output
        match message:
            case Ready():
                self._ready = True
                self.fault = ""
                for slot in list(self._slots.values()):
                    await self._send(slot)
            case Broken(fact=fact):
                self.fault = fact
            case Answer() | Failed():
                if waiting := self._slots.get(message.id):
                    waiting.settle(message)
            case _:
                assert_never(message)

    async def _send(self, slot: _Slot) -> None:
        """Hand a request over once, with the key before it where that is another than the last."""
        if not self._ready or slot.sent:
            return
        slot.sent = True
        if slot.connect != self._told:
            self._told = slot.connect
            await self._tell(slot.connect)
        await self._tell(slot.ask)

    async def _tell(self, message: ToWorker) -> None:
        if self._child is None:
            return
        try:
            await self._child.send(encode(message))
        except supervisor.ChildError:
            return  # it has ended: whoever reads it hears so too

    def _fail_all(self) -> None:
        """The worker is gone, and with it what it was asked."""
        for slot in self._slots.values():
            kind: FailureKind = "rejected" if self.fault else "transient"
            slot.settle(Failed(id=slot.ask.id, kind=kind, type="worker_ended"))
