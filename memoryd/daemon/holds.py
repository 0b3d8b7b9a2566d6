"""Backends that asked to wait, and their failures in a row. In memory: a restart asks them again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Backend:
    failures: int = 0
    until: float = 0.0


class Holds:
    """What each backend's last answers mean for all projects."""

    def __init__(self) -> None:
        self._backends: dict[str, _Backend] = {}

    def until(self, backend: str) -> float:
        """Unix seconds before which nothing is sent to it; 0 where it did not ask to wait."""
        found = self._backends.get(backend)
        return found.until if found else 0.0

    def failed(self, backend: str) -> int:
        """It failed once more; returns how often in a row."""
        found = self._backends.setdefault(backend, _Backend())
        found.failures += 1
        return found.failures

    def hold(self, backend: str, until: float) -> None:
        """Send nothing to it before `until`."""
        self._backends.setdefault(backend, _Backend()).until = until

    def clear(self, backend: str) -> None:
        """It answered."""
        self._backends.pop(backend, None)
