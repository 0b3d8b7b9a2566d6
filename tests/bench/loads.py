"""What a save costs everybody else in the daemon, made at will: the loads of P10.

A model call starts (a process that imports `anthropic`), 100 MB of transcript are read and decoded in
a thread, 200 files are written and synced in a thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

if TYPE_CHECKING:
    from pathlib import Path

READ_BYTES = 100_000_000
FILES = 200


class Row(msgspec.Struct):
    """The fields of a transcript row that a reader looks at."""

    type: str = ""
    uuid: str = ""


async def make_load(folder: Path) -> None:
    """All three at once; `folder` takes the files and holds the transcript (made where missing)."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_start_model_call)
        tasks.start_soon(to_thread.run_sync, _read, folder / "transcript.jsonl")
        tasks.start_soon(to_thread.run_sync, _sync_files, folder)


def write_transcript(file: Path) -> None:
    """`READ_BYTES` of rows."""
    row = b'{"type":"user","uuid":"%s","message":{"content":"%s"}}\n' % (b"0" * 36, b"x" * 2000)
    with file.open("wb") as out:
        for _ in range(READ_BYTES // len(row)):
            out.write(row)


async def _start_model_call() -> None:
    await anyio.run_process(
        [sys.executable, "-c", "import anthropic"], stdout=subprocess.DEVNULL, check=True
    )


def _read(file: Path) -> None:
    decoder = msgspec.json.Decoder(Row)
    with file.open("rb") as rows:
        for row in rows:
            decoder.decode(row)


def _sync_files(folder: Path) -> None:
    for number in range(FILES):
        with (folder / f"f{number}").open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
