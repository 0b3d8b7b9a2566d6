"""The file's shape: lines, headings, the four sections, repair, caps.

Owns what a heading is and what counts as a line. A line end and a byte-order mark are kept as they were
found: a `\\r` stays at its line, a new line gets the file's own kind of end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memoryd.core.text import count_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CRITICAL = "CRITICAL RULES"
FACTS = "Architecture & Config Facts"
WARNINGS = "Active Warnings"
TOPICS = "Topic Files"
SECTIONS = (CRITICAL, FACTS, WARNINGS, TOPICS)
"""The four `## ` sections, in order."""

SECTION_LEVEL = 2

NONE_YET = "- None yet."
UNSORTED = "Unsorted: "

HARD_LINES, HARD_CHARACTERS = 200, 50_000
"""A file stays under both."""

SOFT_LINES, SOFT_CHARACTERS = 160, 42_000
"""From either on, a save must offload."""

BULLET_LIMIT = 600
"""Characters of a bullet, its marker included."""

BOM = "\ufeff"

_HEADING = re.compile(r"(#{2,3}) (?=.*\S)(.*)\Z")
_TITLE = re.compile(r"# (?=.*\S)")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})(.*)\Z")
_BULLET = re.compile(r"\s*[-*]\s+\S")


class Heading(NamedTuple):
    """A `## ` or `### ` line outside of fences: its line's index `at`, level (2 or 3) and name."""

    at: int
    level: int
    name: str

    @property
    def key(self) -> str:
        return self.name.casefold()


class Outline(NamedTuple):
    """What the lines of a document are."""

    headings: tuple[Heading, ...]
    fences: frozenset[int]
    """Indices of lines that open or close a fenced block."""
    fenced: frozenset[int]
    """Indices of lines inside of one."""
    dangling: frozenset[int]
    """Indices of openers that nothing closes: plain lines, as they would swallow the rest."""


@dataclass(frozen=True, slots=True)
class Document:
    """A memory file's text as lines, without their `\\n`; `bom` is the byte-order mark or empty."""

    bom: str
    lines: tuple[str, ...]
    eol: str
    """What a new line ends with before its `\\n`: `\\r` in a CRLF file, else empty."""
    ends: bool
    """Whether the text ends with a newline."""

    def __repr__(self) -> str:
        return f"Document({len(self.lines)} lines)"

    @property
    def text(self) -> str:
        body = "\n".join(self.lines)
        return f"{self.bom}{body}\n" if self.ends else f"{self.bom}{body}"

    def with_lines(self, lines: Iterable[str]) -> Document:
        """The same file with other lines; the last one ends with a newline."""
        lines = list(lines)
        if lines and self.eol and not self.ends and not lines[-1].endswith(self.eol):
            lines[-1] += self.eol
        return Document(self.bom, tuple(lines), self.eol, ends=True)


@dataclass(frozen=True, slots=True)
class Size:
    """What the caps measure; characters are Unicode code points, the byte-order mark is none."""

    lines: int
    characters: int

    @property
    def at_hard_cap(self) -> bool:
        return self.lines >= HARD_LINES or self.characters >= HARD_CHARACTERS

    @property
    def at_soft_cap(self) -> bool:
        return self.lines >= SOFT_LINES or self.characters >= SOFT_CHARACTERS

    def shrinks_from(self, before: Size) -> bool:
        """Smaller in one measure and larger in none."""
        return (
            self.lines <= before.lines
            and self.characters <= before.characters
            and (self.lines, self.characters) != (before.lines, before.characters)
        )


def parse(text: str) -> Document:
    """`text` as a document; its `text` is `text` again, byte for byte."""
    bom = BOM if text.startswith(BOM) else ""
    body = text[len(bom) :]
    ends = body.endswith("\n")
    lines = tuple((body[:-1] if ends else body).split("\n")) if body else ()
    returns = sum(line.endswith("\r") for line in lines)
    terminated = len(lines) if ends else len(lines) - 1
    eol = "\r" if returns and 2 * returns > terminated else ""
    return Document(bom, lines, eol, ends)


def new_text(project: str) -> str:
    """The file of a project that has none yet; it ends with `## Topic Files` and one newline."""
    return "\n\n".join((f"# {project}", *(f"## {name}" for name in SECTIONS))) + "\n"


def size(text: str) -> Size:
    """Lines and characters as the caps count them."""
    body = text.removeprefix(BOM)
    return Size(count_lines(body), len(body))


def shown(text: str) -> str:
    """`text` as a prompt shows it: no byte-order mark, `\\n` line ends, outer blank lines trimmed."""
    lines = [line.removesuffix("\r") for line in parse(text).lines]
    return "\n".join(without_outer_blanks(lines))


def outline(lines: Sequence[str]) -> Outline:
    """Headings and fences of `lines`."""
    headings: list[Heading] = []
    fences: set[int] = set()
    fenced: set[int] = set()
    dangling: set[int] = set()
    closer = _Closers(lines)
    index = 0
    while index < len(lines):
        line = lines[index].rstrip()
        if _FENCE.match(line):
            end = closer.after(index)
            if end is None:
                dangling.add(index)
            else:
                fences.update((index, end))
                fenced.update(range(index + 1, end))
                index = end
        elif found := _HEADING.match(line):
            headings.append(Heading(index, len(found[1]), found[2].strip()))
        index += 1
    return Outline(tuple(headings), frozenset(fences), frozenset(fenced), frozenset(dangling))


def in_shape(headings: Iterable[Heading]) -> bool:
    """Exactly the four sections in their order; names compare case-insensitively."""
    names = [heading.key for heading in headings if heading.level == SECTION_LEVEL]
    return names == [name.casefold() for name in SECTIONS]


def is_title(line: str) -> bool:
    """A level 1 heading (outside of fences, which the caller knows)."""
    return bool(_TITLE.match(line))


def is_fence(line: str) -> bool:
    """Whether the line would open or close a fenced block."""
    return bool(_FENCE.match(line.rstrip()))


def is_bullet(line: str) -> bool:
    """A list item with something in it."""
    return bool(_BULLET.match(line))


def is_none_yet(line: str) -> bool:
    """`- None yet.`, any case, the dot optional."""
    return line.strip().casefold() in {"- none yet.", "- none yet"}


def repair(text: str, project: str) -> str:
    """`text` in the four-section shape; `text` itself where it has it. No line of content is dropped.

    Repairing a repaired text changes nothing.
    """
    document = parse(text)
    found = outline(document.lines)
    if in_shape(found.headings):
        return text
    lines = _arranged(document, found, project, close=False)
    if not in_shape(outline(lines).headings):
        # A fence that nothing closed would now swallow a section that used to stand before it.
        lines = _arranged(document, found, project, close=True)
    return document.with_lines(lines).text


def without_outer_blanks(lines: Sequence[str]) -> list[str]:
    """`lines` from the first to the last that is not blank."""
    start, end = 0, len(lines)
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return list(lines[start:end])


def _arranged(document: Document, found: Outline, project: str, *, close: bool) -> list[str]:
    head, parts = _split(document, found, close=close)
    bodies: dict[str, list[str]] = {name.casefold(): [] for name in SECTIONS}
    unsorted: list[str] = []
    eol = document.eol
    for heading, body in parts:
        if heading.key in bodies:
            _append_block(bodies[heading.key], body, eol)
        else:
            _append_block(unsorted, [f"### {UNSORTED}{heading.name}{eol}"], eol)
            _append_block(unsorted, body, eol)
    _append_block(bodies[FACTS.casefold()], unsorted, eol)
    lines = head or [f"# {project}{eol}"]
    for name in SECTIONS:
        _append_block(lines, [f"## {name}{eol}"], eol)
        _append_block(lines, bodies[name.casefold()] or [f"{NONE_YET}{eol}"], eol)
    return lines


def _split(
    document: Document, found: Outline, *, close: bool
) -> tuple[list[str], list[tuple[Heading, list[str]]]]:
    """The head, and each level 2 heading with its body; outer blank lines dropped, last line ended."""
    lines = list(document.lines)
    if lines and document.eol and not document.ends:
        lines[-1] += document.eol
    sections = [heading for heading in found.headings if heading.level == SECTION_LEVEL]
    starts = [heading.at for heading in sections] + [len(lines)]
    bodies = []
    for start, end in zip([-1, *starts[:-1]], starts, strict=True):
        body = without_outer_blanks(lines[start + 1 : end])
        opened = [at for at in found.dangling if start < at < end]
        if close and opened:
            body.append(_marker(lines[min(opened)]) + document.eol)
        bodies.append(body)
    return bodies[0], list(zip(sections, bodies[1:], strict=True))


def _append_block(lines: list[str], block: Sequence[str], eol: str) -> None:
    if lines and block:
        lines.append(eol)
    lines += block


def _marker(opener: str) -> str:
    found = _FENCE.match(opener.rstrip())
    assert found is not None
    return found[1]


class _Closers:
    """Finds the line that closes a fence: the same character, at least as long, nothing behind it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._at: list[int] = []
        self._markers: list[str] = []
        for at, line in enumerate(lines):
            found = _FENCE.match(line.rstrip())
            if found and not found[2].strip():
                self._at.append(at)
                self._markers.append(found[1])
        self._longest: list[dict[str, int]] = [{} for _ in range(len(self._at) + 1)]
        for i in range(len(self._at) - 1, -1, -1):
            rest, marker = self._longest[i + 1], self._markers[i]
            self._longest[i] = rest | {marker[0]: max(len(marker), rest.get(marker[0], 0))}

    def after(self, index: int) -> int | None:
        opener = _marker(self._lines[index])
        first = bisect_right(self._at, index)
        if self._longest[first].get(opener[0], 0) < len(opener):
            return None
        return next(
            at
            for at, marker in zip(self._at[first:], self._markers[first:], strict=True)
            if marker[0] == opener[0] and len(marker) >= len(opener)
        )
