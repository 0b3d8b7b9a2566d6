"""The block in parts: how all of a long memory passes hooks whose values the host cuts.

Owns the order of what is delivered where not everything fits. Lengths are UTF-16 units, as the host
counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memoryd.core.memory.document import CRITICAL, SECTION_LEVEL, outline
from memoryd.core.memory.rules import BLOCK_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REST_ROOM = 400
"""Units kept free for the sentence that names what was not loaded, without its path."""


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

    Where it does not fit, the critical rules go first and the rest is named with its `path`.
    """
    total = memory.count("\n") + 1 if memory else 0
    room = limit - units(_header(project, most, most))
    pieces = list(_pieces(block, room))
    if len(pieces) <= most:
        return Load(_numbered(pieces, project), total, total)
    head, _, tail = block.partition(memory)
    lost = most * _longest_line(memory, limit)
    free = most * room - units(head + tail) - units(path) - _REST_ROOM - lost
    chosen = _most_important(memory, free)
    kept = "\n".join(chosen)
    rest = (
        f"{total - len(chosen)} of {total} lines of the memory are not shown here for lack of room: "
        f"read {path} when they may matter."
    )
    pieces = list(_pieces(f"{head}{kept}\n\n{rest}{tail}", room))
    return Load(_numbered(pieces[:most], project), len(chosen), total)


def _most_important(memory: str, room: int) -> list[str]:
    """Lines that fit into `room` units: the critical rules first, then the rest in file order."""
    lines = memory.split("\n")
    critical = _critical(lines)
    order = [*critical, *(index for index in range(len(lines)) if index not in critical)]
    chosen = []
    for index in order:
        room -= units(lines[index]) + 1
        if room < 0:
            break
        chosen.append(index)
    return [lines[index] for index in chosen]


def _critical(lines: Sequence[str]) -> range:
    sections = [found for found in outline(lines).headings if found.level == SECTION_LEVEL]
    ends = [found.at for found in sections[1:]] + [len(lines)]
    for heading, end in zip(sections, ends, strict=True):
        if heading.key == CRITICAL.casefold():
            return range(heading.at, end)
    return range(0)


def _longest_line(memory: str, limit: int) -> int:
    """What a part may lose at its end because a line is not broken."""
    return min(max(units(line) for line in memory.split("\n")), limit // 4)


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
    size = limit // 2 if units(line) >= limit else len(line)
    yield line[:size]
    for at in range(size, len(line), max(size, 1)):
        yield line[at : at + size]


def _numbered(pieces: Sequence[str], project: str) -> tuple[str, ...]:
    count = len(pieces)
    return tuple(
        piece if number == 1 else _header(project, number, count) + piece
        for number, piece in enumerate(pieces, 1)
    )


def _header(project: str, number: int, count: int) -> str:
    return f"{BLOCK_MARK}: {project}, part {number} of {count}]\n"
