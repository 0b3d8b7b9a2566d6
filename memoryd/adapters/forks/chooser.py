"""Which backend a save takes, and why.

Owns the order and the reasons, one clause each; what can work is for each backend to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.ports import Choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.config import Settings
    from memoryd.ports import ForkBackend, SessionRef

WHY = {
    "digest": "an API key is at hand",
    "claude": "the `claude` program is there",
}

NO_CREDENTIALS = "no credentials"
"""How a choice of none begins: `status` and its readers look for it."""

WHERE_TO_SET = "`memoryctl config path` names the file to set it in"


class AutoChooser:
    """`backends` in the order in which `auto` tries them; `fork.backend` pins one by its name."""

    def __init__(self, backends: tuple[ForkBackend, ...], settings: Callable[[], Settings]) -> None:
        self._backends = backends
        self._settings = settings

    def choose(self, session: SessionRef) -> Choice:
        pinned = self._settings().fork.backend
        if pinned != "auto":
            return self._pinned(pinned, session)
        faults: list[str] = []
        for backend in self._backends:
            fault = backend.fault(session)
            if not fault:
                why = WHY.get(backend.name, "it can work")
                return Choice(backend, "; ".join([why, *faults]))
            faults.append(f"{backend.name}: {fault}")
        return Choice(None, f"{NO_CREDENTIALS}: {'; '.join(faults)}; {WHERE_TO_SET}")

    def backends(self) -> tuple[ForkBackend, ...]:
        return self._backends

    def release(self) -> None:
        for backend in self._backends:
            backend.release()

    def _pinned(self, name: str, session: SessionRef) -> Choice:
        backend = next(backend for backend in self._backends if backend.name == name)
        fault = backend.fault(session)
        if fault:
            return Choice(None, f"{name}, which fork.backend pins: {fault}")
        return Choice(backend, "fork.backend pins it")
