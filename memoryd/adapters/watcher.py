"""Watching a memory directory while a save runs: hints that something changed.

A hint may be missing (a write through mmap shows nothing, a queue overflows, there may be no inotify
instance left): the digest at write time is the proof. So a watch that can't be had is none.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from threading import Event
from typing import TYPE_CHECKING

import anyio
from anyio import from_thread, to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectSendStream

DEBOUNCE_MS = 50
"""watchfiles gathers changes for 1.6 s unless told otherwise."""

STEP_MS = 50
"""How often its thread looks up; it lives only while a save runs."""

WATCHES = 16
"""At once; a watch that is over keeps its thread for one more step."""


class DirectoryWatcher:
    """Implements ports.Watcher with watchfiles."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(WATCHES)

    @asynccontextmanager
    async def watch(self, directory: Path) -> AsyncIterator[AsyncIterator[None]]:
        """Hints from `directory` itself, until the block ends; none where it can't be watched."""
        send, receive = anyio.create_memory_object_stream[None](1)
        stop = Event()
        async with anyio.create_task_group() as tasks, receive:
            tasks.start_soon(self._run, directory, stop, send)
            try:
                yield receive
            finally:
                stop.set()
                tasks.cancel_scope.cancel()

    async def _run(self, directory: Path, stop: Event, hints: MemoryObjectSendStream[None]) -> None:
        with hints:
            # not waited for: the thread looks at `stop` only once a step
            await to_thread.run_sync(
                _watch, directory, stop, hints, abandon_on_cancel=True, limiter=self._threads
            )


def _watch(directory: Path, stop: Event, hints: MemoryObjectSendStream[None]) -> None:
    # Start does not need it (10.1): imported on first use.
    from watchfiles import watch  # noqa: PLC0415
    from watchfiles._rust_notify import WatchfilesRustInternalError  # noqa: PLC0415

    try:
        for _ in watch(
            directory,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=stop,
            recursive=False,
            raise_interrupt=False,
        ):
            if stop.is_set():
                return
            from_thread.run_sync(_hint, hints)
    except (OSError, WatchfilesRustInternalError):
        return


def _hint(hints: MemoryObjectSendStream[None]) -> None:
    """One hint is enough until it is taken."""
    if not hints.statistics().current_buffer_used:
        hints.send_nowait(None)
