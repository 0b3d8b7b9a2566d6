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
        self._keys: dict[str, str] = {}

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
        wanted = key(line)
        return next(
            (
                index
                for index, candidate in enumerate(self.lines)
                if index != but and self._key(candidate) == wanted and candidate.strip()
            ),
            None,
        )

    def insert(self, heading: Heading, bullet: str) -> None:
        """Put `bullet` at the end of the heading's own block; `- None yet.` alone there gives way."""
        start = heading.at + 1
        later = (found.at for found in self.outline.headings if found.at >= start)
        end = next(later, len(self.lines))
        filled = [index for index in range(start, end) if self.lines[index].strip()]
        eol = self._document.eol
        self.lines = self._document.ended(self.lines)
        if not filled:
            self.lines[start:start] = [eol, bullet + eol]
        elif len(filled) == 1 and is_none_yet(self.lines[filled[0]]):
            self.lines[filled[0]] = bullet + eol
        else:
            self.lines.insert(filled[-1] + 1, bullet + eol)
        self._touch()

    def remove(self, index: int) -> str:
        """Take out one line; blank lines around it stay. Returns it without its line end."""
        line = self.lines.pop(index)
        self._touch()
        return line.removesuffix("\r")

    def replace(self, index: int, bullet: str) -> str:
        """Put `bullet` in place of a line, which is returned without its line end."""
        line = self.lines[index]
        self.lines[index] = bullet + ("\r" if line.endswith("\r") else "")
        self._touch()
        return line.removesuffix("\r")

    def _key(self, line: str) -> str:
        found = self._keys.get(line)
        if found is None:
            found = self._keys[line] = key(line)
        return found

    def _touch(self) -> None:
        self._outline = None
        self._changed = True
