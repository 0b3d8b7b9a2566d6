"""Which processes are alive, told by a value in their environment and not by their parent."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import anyio

TAG = "MEMORYD_TEST_TAG"


def new_tag() -> str:
    return uuid4().hex


def alive(tag: str, name: str = TAG) -> list[str]:
    """Command lines of the processes whose environment holds `tag`."""
    return [
        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _holds(entry, f"{name}={tag}".encode())
    ]


async def none_alive(tag: str, *, name: str = TAG, within: float = 10.0) -> bool:
    """Whether all of them are gone before `within` seconds are over."""
    with anyio.move_on_after(within):
        while await anyio.to_thread.run_sync(alive, tag, name):  # noqa: ASYNC110  the kernel sets no event
            await anyio.sleep(0.02)
        return True
    return False


def _holds(entry: Path, wanted: bytes) -> bool:
    try:
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
