"""What the daemon can say of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from memoryd.protocol import Warned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memoryd.config import Config


class Standing:
    """Facts of this process, and the warnings of the rooms that know them."""

    def __init__(self, started_at: float, socket: Path, config: Callable[[], Config]) -> None:
        self.started_at = started_at
        self.socket = socket
        self._config = config
        self._sources: list[Callable[[], list[Warned]]] = []
        self._spooled: Callable[[], int] = int
        self._moved_aside: Path | None = None

    def memory_root(self) -> Path:
        return self._config().memory_root

    def tell(self, *sources: Callable[[], list[Warned]]) -> None:
        """Ask these for warnings too."""
        self._sources += sources

    def count(self, spooled: Callable[[], int]) -> None:
        """How many events wait in the spool; asked in a thread."""
        self._spooled = spooled

    def note_moved_aside(self, path: Path) -> None:
        """The ledger was damaged and lies there now."""
        self._moved_aside = path

    async def spooled(self) -> int:
        return await to_thread.run_sync(self._spooled)

    def warnings(self) -> list[Warned]:
        """What the person should know, in a stable order."""
        found = [warned for source in self._sources for warned in source()]
        if self._moved_aside is not None:
            sentence = (
                f"the ledger was damaged and lies in {self._moved_aside}; a new one was begun, "
                "the memory files were not touched"
            )
            found.append(Warned(code="ledger_damaged", sentence=sentence))
        return found
