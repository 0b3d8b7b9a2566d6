from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from memoryd.adapters.watcher import DirectoryWatcher

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_write_into_the_directory_is_a_hint(tmp_path: Path) -> None:
    async with DirectoryWatcher().watch(tmp_path) as hints:
        with anyio.fail_after(60):
            while True:
                # the watch may not stand yet when the first write comes: write until it is seen
                await anyio.Path(tmp_path / "MEMORY.md").write_text("edited")
                with anyio.move_on_after(0.2):
                    await anext(aiter(hints))
                    break


async def test_leaving_does_not_wait_for_the_watching_thread(tmp_path: Path) -> None:
    watcher = DirectoryWatcher()
    with anyio.fail_after(60):
        for _ in range(20):
            async with watcher.watch(tmp_path):
                pass


async def test_a_directory_that_is_missing_gives_no_hints(tmp_path: Path) -> None:
    async with DirectoryWatcher().watch(tmp_path / "missing") as hints:
        with anyio.fail_after(60):
            assert [hint async for hint in hints] == []
