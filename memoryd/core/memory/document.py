"""The file's shape: lines, headings, the four sections, repair, caps.

Owns what a heading is and what counts as a line. A line end and a byte-order mark are kept as they were
found: a `\\r` stays at its line, a new line gets the file's own kind of end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from memoryd.core.text import count_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
_MARKS = frozenset("#`~ ")
"""How a line starts that may be a heading or a fence."""

_BULLET = re.compile(r"\s*[-*]\s+\S")


class Heading(NamedTuple):
    """A `## ` or `### ` line outside of fences: its line's index `at`, level (2 or 3) and name."""

    at: int
    level: int
    name: str

    @property
    def key(self) -> str:
        return self.name.casefold()

    def __repr__(self) -> str:
        return f"Heading({self.at}, {self.level}, name of {len(self.name)})"


class Outline(NamedTuple):
    """What the lines of a document are."""

    headings: tuple[Heading, ...]
    fences: frozenset[int]
    """Indices of lines that open or close a fenced block."""
    fenced: frozenset[int]
    """Indices of lines inside of one."""
    dangling: tuple[int, ...]
    """Indices of openers that nothing closes: plain lines, as they would swallow the rest."""

    @property
    def sections(self) -> list[Heading]:
        """The level 2 headings."""
        return [heading for heading in self.headings if heading.level == SECTION_LEVEL]

    def after_change(self, lines: Sequence[str], at: int, by: int) -> Outline | None:
        """The outline once `lines` came or went at index `at` and moved the rest `by` lines.

        None where they may be part of it themselves: it is to be made anew.
        """
        if self.fences or self.dangling or any(line[:1] in _MARKS for line in lines):
            return None
        headings = (
            heading if heading.at < at else heading._replace(at=heading.at + by)
            for heading in self.headings
        )
        return self._replace(headings=tuple(headings))


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

    def ended(self, lines: Iterable[str]) -> list[str]:
        """`lines` ready for a newline behind them: a last line that had none gets its `eol`."""
        lines = list(lines)
        if lines and not self.ends and not lines[-1].endswith(self.eol):
            lines[-1] += self.eol
        return lines

    def with_lines(self, lines: Iterable[str]) -> Document:
        """The same file with other lines; the last one ends with a newline."""
        return Document(self.bom, tuple(self.ended(lines)), self.eol, ends=True)


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
    eol = "\r" if "\r" in body and 2 * body.count("\r\n") > body.count("\n") else ""
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
    fences: list[int] = []
    fenced: list[int] = []
    dangling: list[int] = []
    marked = [(at, line.rstrip()) for at, line in enumerate(lines) if line[:1] in _MARKS]
    closers = _Closers(marked)
    inside = -1
    for at, line in marked:
        if at <= inside:
            continue
        if found := _HEADING.match(line):
            headings.append(Heading(at, len(found[1]), found[2].strip()))
        elif found := _FENCE.match(line):
            end = closers.after(at, found[1])
            if end is None:
                dangling.append(at)
            else:
                fences += (at, end)
                fenced += range(at + 1, end)
                inside = end
    return Outline(tuple(headings), frozenset(fences), frozenset(fenced), tuple(dangling))


def in_shape(found: Outline) -> bool:
    """Exactly the four sections in their order; names compare case-insensitively.

    An unclosed fence above one of them leaves none: Markdown takes what follows for code.
    """
    sections = found.sections
    if [heading.key for heading in sections] != [name.casefold() for name in SECTIONS]:
        return False
    return not found.dangling or found.dangling[0] > sections[-1].at


def is_title(line: str) -> bool:
    """A level 1 heading (outside of fences, which the caller knows)."""
    return bool(_TITLE.match(line))


def is_bullet(line: str) -> bool:
    """A list item with something in it."""
    return bool(_BULLET.match(line))


def is_none_yet(line: str) -> bool:
    """`- None yet.`, any case, the dot optional."""
    return line.strip().casefold() in {"- none yet.", "- none yet"}


def repair(text: str, project: str) -> str:
    """`text` in the four-section shape; `text` itself where it has it. No line of content is dropped.

    Repairing a repaired text changes nothing. An unclosed fence is closed at its section's end, where it
    can swallow no other section.
    """
    document = parse(text)
    found = outline(document.lines)
    if in_shape(found):
        return text
    return document.with_lines(_arranged(document, found, project)).text


def without_outer_blanks(lines: Sequence[str]) -> list[str]:
    """`lines` from the first to the last that is not blank."""
    start, end = 0, len(lines)
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return list(lines[start:end])


def _arranged(document: Document, found: Outline, project: str) -> list[str]:
    head, *parts = _bodies(document, found)
    bodies: dict[str, list[str]] = {name.casefold(): [] for name in SECTIONS}
    unsorted: list[str] = []
    eol = document.eol
    for heading, body in zip(found.sections, parts, strict=True):
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


def _bodies(document: Document, found: Outline) -> Iterator[list[str]]:
    """The head and each section's body, outer blank lines dropped, every fence closed."""
    lines = document.ended(document.lines)
    starts = [heading.at for heading in found.sections]
    for start, end in zip([-1, *starts], [*starts, len(lines)], strict=True):
        body = without_outer_blanks(lines[start + 1 : end])
        first = bisect_right(found.dangling, start)
        if first < len(found.dangling) and found.dangling[first] < end:
            fence = _FENCE.match(lines[found.dangling[first]])
            assert fence is not None
            body.append(fence[1] + document.eol)
        yield body


def _append_block(lines: list[str], block: Sequence[str], eol: str) -> None:
    if lines and block:
        lines.append(eol)
    lines += block


class _Closers:
    """Finds the line that closes a fence: the same character, at least as long, nothing behind it."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self._found = [
            (at, fence[1])
            for at, line in lines
            if (fence := _FENCE.match(line)) and not fence[2].strip()
        ]
        longest = {"`": 0, "~": 0}
        self._longest = [longest]
        """The longest markers from each place on, so that an opener without closer is known at once."""
        for _, marker in reversed(self._found):
            longest = longest | {marker[0]: max(len(marker), longest[marker[0]])}
            self._longest.append(longest)
        self._longest.reverse()

    def after(self, index: int, opener: str) -> int | None:
        first = bisect_right(self._found, index, key=itemgetter(0))
        if self._longest[first][opener[0]] < len(opener):
            return None
        behind = map(self._found.__getitem__, range(first, len(self._found)))
        return next(at for at, marker in behind if marker.startswith(opener))
