"""The Markdown that the pages are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def page(title: str, source: str, parts: Iterable[str]) -> str:
    """A whole page: title, a note on where it comes from, and its parts with a blank line between."""
    note = f"<!-- Made by `python -m docs.generate` from {source}. A change here is lost. -->"
    return "\n\n".join([f"# {title}", note, *filter(None, parts)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty where there is no row."""
    lines = [_row(row) for row in rows]
    if not lines:
        return ""
    return "\n".join([_row(heads), _row(["---"] * len(heads)), *lines])


def block(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text}\n```"


def code(text: str) -> str:
    """Text as it is typed."""
    return f"`{text}`"


def paragraph(docstring: str | None) -> str:
    """A docstring as paragraphs: line breaks inside of one go."""
    parts = (docstring or "").strip().split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _row(cells: Sequence[str]) -> str:
    # a paragraph's end would end the table
    one_line = (" ".join(cell.split()) for cell in cells)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in one_line)} |"
