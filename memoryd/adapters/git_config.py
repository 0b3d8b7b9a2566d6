"""The syntax of git's config files, read as text.

Owns sections, subsections, quoting, comments and continued lines. It must not know which settings
matter, and follows no include: a config file may name any other file. The libraries that read this
syntax bring a whole git with them and do follow includes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = re.compile(r"(?:[ \t\r\n]+|[#;][^\n]*)*+")
_HEADER = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|\n|\Z)")
_VALUE = re.compile(
    r"""((?:[^"\\\n#;]|\\[nbt"\\\n]|"(?:[^"\\\n]|\\[nbt"\\\n])*+")*+)(?=[\n#;]|\Z)"""
)
_PIECE = re.compile(
    r"""(?P<blank>[ \t\r]+)|"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^" \t\r\\]+|\\.)""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CHARACTERS = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"', "\n": ""}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `section` and `key` in lower case, `subsection` as written (empty: none)."""

    section: str
    subsection: str
    key: str
    value: str | None
    """None where the line has no `=`, which means true."""


def settings(text: str) -> list[Setting]:
    """The settings of a config file, in order, up to its end or its first fault of syntax."""
    return list(_read(text.removeprefix("\ufeff").replace("\r\n", "\n")))


def values(found: Sequence[Setting], section: str, subsection: str, key: str) -> list[str]:
    """The values of one setting, in order; those without `=` and empty ones are left out."""
    name = (section, subsection, key)
    return [
        setting.value
        for setting in found
        if (setting.section, setting.subsection, setting.key) == name and setting.value
    ]


def _read(text: str) -> Iterator[Setting]:
    section = subsection = ""
    at = 0
    while (at := _end_of_gap(text, at)) < len(text):
        if header := _HEADER.match(text, at):
            section, subsection = _section(header)
            at = header.end()
            continue
        key = _KEY.match(text, at)
        written = _VALUE.match(text, key.end()) if key and key[2] == "=" else None
        if not section or key is None or (written is None and key[2] == "="):
            return
        at = (written or key).end()
        yield Setting(section, subsection, key[1].lower(), _value(written[1]) if written else None)


def _end_of_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def _section(header: re.Match[str]) -> tuple[str, str]:
    if header[2] is not None:
        return header[1].lower(), _ESCAPED.sub(r"\1", header[2])
    section, _, subsection = header[1].lower().partition(".")
    return section, subsection


def _value(written: str) -> str:
    """Quotes and escapes taken out; white space is kept where something stands on both sides."""
    value = blanks = ""
    for piece in _PIECE.finditer(written):
        if piece.lastgroup == "blank":
            blanks += piece[0] if value else ""
        else:
            value += blanks + _ESCAPED.sub(_character, piece["quoted"] or piece["bare"] or "")
            blanks = ""
    return value


def _character(escape: re.Match[str]) -> str:
    return _CHARACTERS[escape[1]]
