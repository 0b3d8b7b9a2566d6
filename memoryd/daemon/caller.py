"""Who sent a request.

Owns what a handler may know of the other side: its uid and pid, what a shim said beside the event,
and whether it is still there. Knows no socket: the connection is behind the Line protocol.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

import anyio
import msgspec

from memoryd.protocol import ShimHeaders


class Peer(msgspec.Struct, frozen=True):
    """The process that connected, as the kernel says; pid 0 where the system does not tell."""

    uid: int
    pid: int = 0


class Line(Protocol):
    async def gone(self) -> None:
        """Return once the other side has closed the connection, or it ended here."""


class Caller:
    """The sender of one request; may be kept after its answer, to wait for its end."""

    __slots__ = ("_line", "_process", "peer", "shim")

    def __init__(
        self, peer: Peer, shim: ShimHeaders | None = None, line: Line | None = None
    ) -> None:
        self.peer = peer
        self.shim = shim or ShimHeaders()
        self._line = line
        self._process = -1

    @property
    def spooled(self) -> bool:
        """The request was left in the spool: nobody waits for its answer."""
        return self._line is None

    def pin(self) -> None:
        """Take hold of the peer's process, so that `gone` means its end; `unpin` lets go of it."""
        if self._process < 0 and self.peer.pid and hasattr(os, "pidfd_open"):
            with suppress(OSError):  # it has ended, or there is no such call
                self._process = os.pidfd_open(self.peer.pid)

    def unpin(self) -> None:
        """Let go of the process."""
        if self._process >= 0:
            os.close(self._process)
            self._process = -1

    async def gone(self) -> None:
        """Return once the peer has closed its connection; at once where there is none.

        Of a pinned caller, once its process has ended: a process closes its files some time before its
        parent is told of its end, and the host keeps the order of ends. Works while the handler runs and
        after its answer, for any number of waiting tasks. A peer that only shuts down its sending side
        counts as gone; so does one that the server dropped.
        """
        if self._line is not None:
            await self._line.gone()
        if self._process >= 0:
            await anyio.wait_readable(self._process)
