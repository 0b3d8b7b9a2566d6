from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest
from blockbuster import blockbuster_ctx

from memoryd.adapters.forks.worker_link import WorkerLink, worker_command
from memoryd.demo.messages_api import ScriptedApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def worker(anyio_backend: str) -> AsyncIterator[WorkerLink]:  # noqa: ARG001  its loop
    """One worker for a module: its import takes seconds.

    Not for the session: a loop that is held open is in the way of tests that run their own.
    """
    link = WorkerLink(worker_command(os.environ), lambda: 600.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(link.serve)
        yield link
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def _loop_is_never_blocked() -> Iterator[None]:
    with blockbuster_ctx("memoryd.adapters"):
        yield


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as scripted:
        yield scripted
