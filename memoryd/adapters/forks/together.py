"""The backends of this version, made together: one key, one worker, one choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from memoryd.adapters.forks.chooser import AutoChooser
from memoryd.adapters.forks.claude import ClaudeBackend
from memoryd.adapters.forks.network import network
from memoryd.adapters.forks.sdk import DigestBackend
from memoryd.adapters.forks.worker_link import WorkerLink, worker_command
from memoryd.adapters.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import TaskStatus

    from memoryd.config import Settings
    from memoryd.ports import Clock


class Forks:
    """`chooser` for the saves, `keys` for masking; `serve` runs what they need."""

    def __init__(
        self, env: Mapping[str, str], settings: Callable[[], Settings], clock: Clock
    ) -> None:
        self._env, self._settings = env, settings
        self.keys = Secrets(env, settings, clock)
        link = WorkerLink(worker_command(env), lambda: settings().fork.worker_idle)
        self._digest = DigestBackend(env, settings, self.keys, link)
        backends = (self._digest, ClaudeBackend(env, settings, clock))
        self.chooser = AutoChooser(backends, settings)

    async def reachable(self) -> bool:
        """Whether there is a network: the place that requests go to takes connections."""
        return await network(self._settings(), self._env).reachable()

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; a fork of the digest waits for it."""
        await self._digest.serve(task_status=task_status)
