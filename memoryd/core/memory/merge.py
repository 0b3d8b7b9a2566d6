"""The merge rule: what an op may touch where the file differs from what the model saw.

The user wins every conflict: an op touches a line only if that line is the same, alone, and in the same
section in both texts; what the user removed is not added back.
"""

from __future__ import annotations

from memoryd.core.memory.draft import Draft
from memoryd.core.memory.rules import key


class Concurrent:
    """An edit between two texts: `seen`, which the model was given, and `current`."""

    def __init__(self, seen: str, current: str) -> None:
        self._seen = _places(Draft(seen))
        self._current = _places(Draft(current))
        self._gone = {key(line) for line in self._seen} - {key(line) for line in self._current}

    def untouched(self, line: str) -> bool:
        """Whether `line` is the same, alone and in the same section in both texts."""
        places = self._seen.get(line.rstrip(), [])
        return len(places) == 1 and self._current.get(line.rstrip()) == places

    def removed_by_user(self, line: str) -> bool:
        """Whether the model saw a line like this one and the user took it out since."""
        return key(line) in self._gone


def _places(draft: Draft) -> dict[str, list[str]]:
    """For each line that is not blank the sections in which it stands, once per place."""
    places: dict[str, list[str]] = {}
    for line, section in draft.sections():
        if line.strip():
            places.setdefault(line.rstrip(), []).append(section)
    return places
