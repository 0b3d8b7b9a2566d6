"""Backends that asked to wait, and their failures in a row. In memory: a restart asks them again.

Behind such a wait one save goes first; the others wait for what it hears, or each of them would send a
request that the backend has no room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Backend:
    failures: int = 0
    held: bool = False
    until: float = 0.0
    tried_until: float = 0.0
    behind: set[str] = field(default_factory=set)


class Holds:
    """What each backend's last answers mean for all projects. Times are Unix seconds."""

    def __init__(self) -> None:
        self._backends: dict[str, _Backend] = {}

    def until(self, backend: str) -> float:
        """Before then nothing is sent to it; 0 where it did not ask to wait."""
        found = self._backends.get(backend)
        return found.until if found else 0.0

    def opens(self, backend: str, session: str, now: float, most: float) -> float:
        """When the session's save may be sent to it: 0 for now, and then nobody else goes first.

        `most`: seconds after which another one may try, whatever became of the first.
        """
        found = self._backends.get(backend)
        if found is None or not found.held:
            return 0.0
        opens = max(found.until, found.tried_until)
        if opens > now:
            found.behind.add(session)
            return opens
        found.tried_until = now + most
        return 0.0

    def failed(self, backend: str) -> int:
        """It failed once more; returns how often in a row."""
        found = self._backends.setdefault(backend, _Backend())
        found.failures += 1
        found.tried_until = 0.0
        return found.failures

    def hold(self, backend: str, until: float) -> None:
        """Send nothing to it before `until`, or a later time that was asked for."""
        found = self._backends.setdefault(backend, _Backend())
        found.held = True
        found.until = max(found.until, until)

    def heard(self, backend: str) -> set[str]:
        """It answered; the sessions whose saves waited for that."""
        found = self._backends.pop(backend, None)
        return found.behind if found else set()

    def unheard(self, backend: str) -> set[str]:
        """A save ended before it answered; the sessions of which another one may go first."""
        found = self._backends.get(backend)
        if found is None or not found.tried_until:
            return set()
        found.tried_until = 0.0
        behind, found.behind = found.behind, set()
        return behind
