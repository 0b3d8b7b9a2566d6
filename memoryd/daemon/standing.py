"""What the daemon can say of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from memoryd.protocol import Warned


@dataclass(frozen=True, slots=True)
class Standing:
    """Facts of this process; the callables ask the rooms that know."""

    started_at: float
    socket: Path
    memory_root: Callable[[], Path]
    spooled: Callable[[], Awaitable[int]]
    warnings: Callable[[], list[Warned]]
