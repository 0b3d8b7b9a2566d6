"""How memoryctl shows something: on a terminal wrapped and coloured, elsewhere plain and unwrapped.

Owns the elements that a screen is made of and the one place where text from outside is made harmless for
a terminal. Knows nothing of what is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from memoryd.core import statusline
from memoryd.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

Tone = Literal["", "strong", "faint", "good", "warn", "bad"]

INDENT = "  "

LABEL_WIDTH = 7
"""Columns of a label at least: fields of several blocks then stand below each other."""

BETWEEN = "  "
"""What stands between two columns."""

LEAST_WIDTH = 8
"""Columns that a column which gives keeps."""

NOTE_INDENT = 4
"""Columns before a note that stands below its row."""

_STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
}
_TONES: dict[str, Tone] = {
    statusline.GREEN: "good",
    statusline.YELLOW: "warn",
    statusline.RED: "bad",
    statusline.FAINT: "faint",
    statusline.PLAIN: "",
}
_CODES = re.compile("|".join(map(re.escape, _TONES)))


class Span(NamedTuple):
    """Text of one tone."""

    text: str
    tone: Tone = ""

    def __repr__(self) -> str:
        return f"Span({len(self.text)} characters, {self.tone!r})"


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """A sentence; `indent` counts steps."""

    line: Line
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels and what stands behind them, one below the other."""

    rows: tuple[tuple[str, Line], ...]
    indent: int = 1


class Column(NamedTuple):
    """`right`: numbers. On a narrow terminal `spare` is left out, then `gives` is cut."""

    head: str
    right: bool = False
    gives: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below their columns' heads.

    A row's note is the last column in a pipe; on a terminal it stands below its row.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Line, ...], ...]
    notes: tuple[Line, ...] = ()
    note_head: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """An empty line."""


Element = Say | Fields | Table | Gap


def line(text: str, tone: Tone = "") -> Line:
    """A line of one tone."""
    return (Span(text, tone),)


def status_line(status: str, clock: str) -> Line:
    """A project's status line in its colours; empty where there is no status."""
    painted = statusline.line(printable(status), clock, colour=True)
    spans: list[Span] = []
    tone: Tone = ""
    at = 0
    for code in _CODES.finditer(painted):
        spans.append(Span(painted[at : code.start()], tone))
        tone, at = _TONES[code[0]], code.end()
    spans.append(Span(painted[at:], tone))
    return tuple(span for span in spans if span.text)


def harmless(text: str) -> str:
    """A line from the daemon with its own colours and nothing else that a terminal would obey."""
    parts = _CODES.split(text)
    codes = [*_CODES.findall(text), ""]
    return "".join(printable(part) + code for part, code in zip(parts, codes, strict=True))


def plain(elements: Iterable[Element]) -> str:
    """The screen for a pipe or a file: nothing is wrapped or cut."""
    return "".join(f"{row.rstrip()}\n" for element in elements for row in _plain_rows(element))


def draw(elements: Iterable[Element], file: TextIO, *, width: int, colour: bool) -> None:
    """The screen on a terminal of `width` columns."""
    # Only who draws pays for this import: it takes as long as the rest of memoryctl together.
    from rich.console import Console  # noqa: PLC0415

    console = Console(
        file=file,
        width=width,
        force_terminal=True,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    for element in elements:
        _draw(console, element)


def _plain_rows(element: Element) -> Iterator[str]:
    match element:
        case Say():
            yield INDENT * element.indent + _plain(element.line)
        case Fields():
            widest = max((LABEL_WIDTH, *(len(label) for label, _ in element.rows)))
            for label, value in element.rows:
                yield f"{INDENT * element.indent}{label:<{widest}}  {_plain(value)}"
        case Table():
            yield from _plain_table(element)
        case Gap():
            yield ""
        case _:
            assert_never(element)


def _plain_table(table: Table) -> Iterator[str]:
    notes = (line(table.note_head), *table.notes) if table.notes else ()
    for number, row in enumerate(_padded(table)):
        cells = [*row, notes[number]] if notes else row
        yield BETWEEN.join(map(_plain, cells))


def _padded(table: Table, room: int | None = None) -> Iterator[list[Line]]:
    """Heads and rows, each cell as wide as its column's widest; `room`: all together at most."""
    widths = _widths(table)
    if room is not None:
        widths = _narrowed(table.columns, widths, room)
    for row in _headed(table):
        yield [
            _pad(cell, width, right=column.right)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]


def _headed(table: Table) -> list[tuple[Line, ...]]:
    return [tuple(line(column.head, "faint") for column in table.columns), *table.rows]


def _widths(table: Table) -> list[int]:
    columns = zip(*_headed(table), strict=True)
    return [max(len(_plain(cell)) for cell in cells) for cells in columns]


def _room(widths: Sequence[int]) -> int:
    return sum(widths) + len(BETWEEN) * (len(widths) - 1)


def _narrowed(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    narrow = list(widths)
    for at, column in enumerate(columns):
        if column.gives:
            left = max(0, narrow[at] - LEAST_WIDTH)
            narrow[at] -= min(left, max(0, _room(narrow) - room))
    return narrow


def _without_spare(table: Table) -> Table:
    kept = [at for at, column in enumerate(table.columns) if not column.spare]
    rows = tuple(tuple(row[at] for at in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[at] for at in kept), rows=rows)


def _pad(cell: Line, width: int, *, right: bool) -> Line:
    text = _plain(cell)
    if len(text) > width:
        return (Span(f"{text[: width - 1]}…", cell[0].tone),)
    space = Span(" " * (width - len(text)))
    return (space, *cell) if right else (*cell, space)


def _plain(spans: Line) -> str:
    return "".join(printable(span.text) for span in spans)


def _draw(console: Console, element: Element) -> None:
    match element:
        case Say():
            # What does not fit goes on below the first letter, not at the margin.
            console.print(_indented(_rich(element.line), len(INDENT) * element.indent))
        case Fields():
            console.print(_indented(_rich_fields(element.rows), len(INDENT) * element.indent))
        case Table():
            _draw_table(console, element)
        case Gap():
            console.print()
        case _:
            assert_never(element)


def _indented(shown: RichText | RichTable, columns: int) -> Padding:
    """Not filled up to the margin: a terminal that is made narrower would wrap the spaces."""
    from rich.padding import Padding  # noqa: PLC0415  as in `draw`

    return Padding(shown, (0, 0, 0, columns), expand=False)


def _rich(spans: Line) -> RichText:
    from rich.text import Text  # noqa: PLC0415  as in `draw`

    text = Text(overflow="fold")
    for span in spans:
        text.append(printable(span.text), _STYLES[span.tone])
    return text


def _rich_fields(rows: Sequence[tuple[str, Line]]) -> RichTable:
    from rich.table import Table as Grid  # noqa: PLC0415  as in `draw`

    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=LABEL_WIDTH)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, _rich(value))
    return grid


def _draw_table(console: Console, table: Table) -> None:
    if _room(_widths(table)) > console.width:
        table = _without_spare(table)
    for number, row in enumerate(_padded(table, console.width)):
        text = _rich(tuple(span for cell in row for span in (*cell, Span(BETWEEN))))
        text.rstrip()
        console.print(text, no_wrap=True, overflow="ellipsis")
        note = table.notes[number - 1] if number and table.notes else ()
        if _plain(note):
            console.print(_indented(_rich(note), NOTE_INDENT))
