"""Once a minute: what no event tells of.

The socket's file may be deleted, a shim may have left an event in the spool, a login or the network may
have come. No other timer wakes an idle daemon.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio import lowlevel

from memoryd.daemon import log
from memoryd.errors import MemorydError, UnwrittenError
from memoryd.protocol import Warned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from memoryd.daemon.backlog import Backlog
    from memoryd.daemon.instance import Instance
    from memoryd.daemon.rooms import Rooms
    from memoryd.daemon.server import Server
    from memoryd.daemon.spool import Spool
    from memoryd.daemon.unwritten import Unwritten

ROUND = 60.0
DAY = 86_400.0

SPOOLING = 0.3
"""Seconds that a shim may need to write what it could not deliver."""


class Rounds:
    """Goes round for as long as the daemon lives; begins with what waited for its start."""

    def __init__(
        self,
        rooms: Rooms,
        instance: Instance,
        server: Server,
        unwritten: Unwritten,
        spool: Spool,
        backlog: Backlog,
    ) -> None:
        self._rooms = rooms
        self._instance = instance
        self._server = server
        self._unwritten = unwritten
        self._spool = spool
        self._backlog = backlog
        self._pruned_at = 0.0
        self._faults: dict[str, Warned] = {}
        self._unheard = anyio.Event()

    def warnings(self) -> list[Warned]:
        """What the last round could not do."""
        return list(self._faults.values())

    async def run(self) -> None:
        """Each step by itself: one that fails is told in `status`, the others go on."""
        next_round = anyio.current_time() + ROUND
        while True:
            await self._step("spool_stuck", self._drain)
            with anyio.move_on_at(next_round):
                await self._unheard.wait()
                self._unheard = anyio.Event()
                await anyio.sleep(SPOOLING)
                continue
            next_round = anyio.current_time() + ROUND
            await self._step("retention", self._prune)
            await self._step("lock_lost", self._renew)
            await self.look()
            await self._step("credentials", self._retry)

    async def look(self) -> None:
        """Somebody asks how things stand: a socket that was deleted is made again now."""
        await self._step("socket_lost", self._mend)

    def unheard(self) -> None:
        """A client left before its answer came: a shim then leaves its event in the spool."""
        self._unheard.set()

    async def _step(self, code: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except MemorydError as error:
            if code not in self._faults:
                log.failure(code.replace("_", " "), error)
            self._faults[code] = Warned(code=code, sentence=str(error), hint=error.hint)
        else:
            self._faults.pop(code, None)

    async def _drain(self) -> None:
        with suppress(UnwrittenError):  # what waits there is told already
            await self._unwritten.write()
        while (await self._spool.drain()).more:
            await lowlevel.checkpoint()

    async def _prune(self) -> None:
        now, settings = self._rooms.clock.now(), self._rooms.config().settings
        if now - self._pruned_at < DAY:
            return
        older, most = now - settings.retention_days * DAY, settings.max_state_mb * 1024 * 1024
        await self._rooms.ledger.commit(
            lambda ledger: ledger.prune(older_than=older, max_bytes=most)
        )
        self._pruned_at = now

    async def _renew(self) -> None:
        # a few system calls once a minute: a thread would wake the process twice more
        self._instance.renew()

    async def _retry(self) -> None:
        await self._backlog.retry_network()
        await self._backlog.retry_credentials()

    async def _mend(self) -> None:
        if await self._server.mend():
            log.warning("a deleted socket was made again")
            self.unheard()  # shims found none meanwhile
