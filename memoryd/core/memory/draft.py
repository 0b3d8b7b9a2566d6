"""A memory file while ops are applied to it: finding, inserting and taking out lines.

Knows nothing of what may be done; that is `edit`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memoryd.core.memory.document import (
    Heading,
    Outline,
    is_none_yet,
    outline,
    parse,
)
from memoryd.core.memory.rules import content, key

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class NotFound:
    """An op's line that can't be pinned to one line of the file, or that is another one by now."""

    why: Literal["not in the file", "several such lines", "changed during the save"]


class Draft:
    """The lines of `text`, changed in place; `text()` is the result."""

    def __init__(self, text: str) -> None:
        self._document = parse(text)
        self.lines: list[str] = list(self._document.lines)
        self._outline: Outline | None = None
        self._changed = False
        self._keys: list[str | None] | None = None

    def __repr__(self) -> str:
        return f"Draft({len(self.lines)} lines)"

    def text(self) -> str:
        """The text now: the one it was made from where nothing was changed."""
        return self._document.with_lines(self.lines).text if self._changed else self._document.text

    @property
    def outline(self) -> Outline:
        if self._outline is None:
            self._outline = outline(self.lines)
        return self._outline

    def section(self, index: int) -> str:
        """The key of the level 2 heading that line `index` stands under; empty in the head."""
        above = [heading.key for heading in self.outline.sections if heading.at <= index]
        return above[-1] if above else ""

    def heading(self, name: str) -> Heading | None:
        """The first level 2 or 3 heading of that name: any case, any number of leading hashes."""
        wanted = name.strip().lstrip("#").strip().casefold()
        return next((found for found in self.outline.headings if found.key == wanted), None)

    def body(self, section: str) -> list[str]:
        """The lines under the level 2 heading of that key, subheadings and all."""
        starts = [heading.at for heading in self.outline.sections] + [len(self.lines)]
        keys = [heading.key for heading in self.outline.sections]
        at = keys.index(section)
        return self.lines[starts[at] + 1 : starts[at + 1]]

    def sections(self) -> Iterator[tuple[str, str]]:
        """Each line with the key of the level 2 heading that it stands under."""
        starts = {heading.at: heading.key for heading in self.outline.sections}
        name = ""
        for index, line in enumerate(self.lines):
            name = starts.get(index, name)
            yield line, name

    def find(self, line: str) -> int | NotFound:
        """The first line equal to `line` up to trailing space.

        Else the only one that differs just by indentation and list marker.
        """
        wanted = line.rstrip()
        for index, candidate in enumerate(self.lines):
            if candidate.rstrip() == wanted:
                return index
        bare = content(line)
        loose = [
            index
            for index, candidate in enumerate(self.lines)
            if bare and bare in candidate and content(candidate) == bare
        ]
        if len(loose) == 1:
            return loose[0]
        return NotFound("several such lines" if loose else "not in the file")

    def double(self, line: str, *, but: int = -1) -> int | None:
        """The first line, other than that at index `but`, that is a duplicate of `line`."""
        if self._keys is None:
            self._keys = list(map(_key, self.lines))
        wanted = key(line)
        places = (at for at, found in enumerate(self._keys) if found == wanted and at != but)
        return next(places, None)

    def insert(self, heading: Heading, bullet: str) -> None:
        """Put `bullet` at the end of the heading's own block; `- None yet.` alone there gives way."""
        start = heading.at + 1
        later = (found.at for found in self.outline.headings if found.at >= start)
        end = next(later, len(self.lines))
        filled = [index for index in range(start, end) if self.lines[index].strip()]
        eol = self._document.eol
        self.lines = self._document.ended(self.lines)
        if not filled:
            self._put(start, start, eol, bullet + eol)
        elif len(filled) == 1 and is_none_yet(self.lines[filled[0]]):
            self._put(filled[0], filled[0] + 1, bullet + eol)
        else:
            self._put(filled[-1] + 1, filled[-1] + 1, bullet + eol)

    def remove(self, index: int) -> str:
        """Take out one line; blank lines around it stay. Returns it without its line end."""
        line = self.lines[index]
        self._put(index, index + 1)
        return line.removesuffix("\r")

    def replace(self, index: int, bullet: str) -> str:
        """Put `bullet` in place of a line, which is returned without its line end."""
        line = self.lines[index]
        self._put(index, index + 1, bullet + ("\r" if line.endswith("\r") else ""))
        return line.removesuffix("\r")

    def _put(self, start: int, end: int, *lines: str) -> None:
        """Put `lines` in place of those from `start` to `end`."""
        changed = [*self.lines[start:end], *lines]
        by = len(lines) - (end - start)
        self.lines[start:end] = lines
        if self._keys is not None:
            self._keys[start:end] = map(_key, lines)
        if self._outline is not None:
            self._outline = self._outline.after_change(changed, start, by)
        self._changed = True


def _key(line: str) -> str | None:
    """What a duplicate of `line` has too; None for a blank line, which has none."""
    return key(line) if line.strip() else None
