"""Watching a memory directory while a save runs: hints that something changed.

A hint may be missing (a write through mmap shows nothing, a queue overflows, there may be no inotify
instance left): the digest at write time is the proof. So a watch that can't be had is none.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEBOUNCE_MS = 50
"""watchfiles gathers changes for 1.6 s unless told otherwise."""

STEP_MS = 200
"""How often its thread looks up while a save runs, and only then."""


class DirectoryWatcher:
    """Implements ports.Watcher with watchfiles."""

    @asynccontextmanager
    async def watch(self, directory: Path) -> AsyncIterator[AsyncIterator[None]]:
        """Hints from `directory` itself, until the block ends; none where it can't be watched."""
        stop = anyio.Event()
        try:
            yield _hints(directory, stop)
        finally:
            stop.set()


async def _hints(directory: Path, stop: anyio.Event) -> AsyncIterator[None]:
    # Start does not need it (10.1): imported on first use.
    from watchfiles import awatch  # noqa: PLC0415
    from watchfiles._rust_notify import WatchfilesRustInternalError  # noqa: PLC0415

    try:
        async for _ in awatch(
            directory,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=stop,
            recursive=False,
        ):
            yield
    except (OSError, WatchfilesRustInternalError):
        return
