"""The block in parts: how all of a long memory passes hooks whose values the host cuts.

Owns the order of what is delivered where not everything fits. Lengths are UTF-16 units, as the host
counts them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memoryd.core.memory.document import CRITICAL, outline
from memoryd.core.memory.rules import BLOCK_MARK
from memoryd.core.text import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WORD = 40
"""Characters at the end of a slice in which a space is looked for."""

_TAIL_SHARE = 8
"""Where not everything fits, what stands behind the memory gets so small a share of one part."""


@dataclass(frozen=True, slots=True)
class Load:
    """The block as `parts`, in order; `loaded` of `total` lines of the memory file are in them."""

    parts: tuple[str, ...]
    loaded: int
    total: int

    def __repr__(self) -> str:
        return f"Load({len(self.parts)} parts, {self.loaded} of {self.total} lines)"


def units(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(block: str, memory: str, path: str, *, project: str, most: int, limit: int) -> Load:
    """`block`, which holds `memory`, in at most `most` parts of at most `limit` units.

    Parts end at line ends; where that wastes too much room, anywhere. Where it does not fit at all, the
    critical rules go first and the rest is named with its `path`.
    """
    total = memory.count("\n") + 1 if memory else 0
    room = limit - units(_header(project, most, most))
    pieces = list(_pieces(block, room))
    if len(pieces) > most:
        pieces = list(_slices(block, room))
    if len(pieces) <= most:
        return Load(_numbered(pieces, project), total, total)
    head, _, tail = block.partition(memory) if memory else (block, "", "")
    lines = _by_importance(memory)

    def shortened(count: int) -> list[str]:
        rest = (
            f"{total - count} of {total} lines of the memory are not shown here for lack of room: "
            f"read {path} when they may matter."
        )
        text = f"{head}{_joined(lines[:count])}{rest}{cut(tail, limit // _TAIL_SHARE)}"
        return list(_pieces(text, room))

    too_many = bisect_left(range(total + 1), True, key=lambda count: len(shortened(count)) > most)
    loaded = max(too_many - 1, 0)
    return Load(_numbered(shortened(loaded)[:most], project), loaded, total)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join((*lines, "", "")) if lines else ""


def _by_importance(memory: str) -> list[str]:
    """The critical rules first, then the rest in file order."""
    lines = memory.split("\n")
    critical = _critical(lines)
    return [
        *lines[critical.start : critical.stop],
        *lines[: critical.start],
        *lines[critical.stop :],
    ]


def _critical(lines: Sequence[str]) -> range:
    sections = outline(lines).sections
    ends = [*(found.at for found in sections), len(lines)]
    for heading, end in zip(sections, ends[1:], strict=True):
        if heading.key == CRITICAL.casefold():
            return range(heading.at, end)
    return range(0)


def _pieces(text: str, limit: int) -> Iterator[str]:
    """`text` in pieces of at most `limit` units, broken at line ends; an overlong line anywhere.

    Joined by newlines the pieces are `text` again, but for breaks inside of an overlong line.
    """
    piece: list[str] = []
    used = 0
    for line in text.split("\n"):
        for part in _broken(line, limit):
            length = units(part) + 1
            if piece and used + length > limit:
                yield "\n".join(piece)
                piece, used = [], 0
            piece.append(part)
            used += length
    yield "\n".join(piece)


def _broken(line: str, limit: int) -> Iterator[str]:
    if units(line) < limit:
        yield line
    else:
        yield from _slices(line, limit - 1)


def _slices(text: str, limit: int) -> Iterator[str]:
    """`text` in slices of at most `limit` units, behind a space where there is one near the end."""
    start = 0
    while start < len(text):
        end = start + max(limit, 1)
        while start + 1 < end and (over := units(text[start:end]) - limit) > 0:
            end -= (over + 1) // 2
        if end < len(text):
            space = text.rfind(" ", max(end - _WORD, start + 1), end)
            end = space + 1 if space > 0 else end
        yield text[start:end]
        start = end


def _numbered(pieces: Sequence[str], project: str) -> tuple[str, ...]:
    count = len(pieces)
    return tuple(
        piece if number == 1 else _header(project, number, count) + piece
        for number, piece in enumerate(pieces, 1)
    )


def _header(project: str, number: int, count: int) -> str:
    return f"{BLOCK_MARK}: {project}, part {number} of {count}]\n"
