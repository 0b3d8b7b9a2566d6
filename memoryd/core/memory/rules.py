"""What one line of memory may be: bullet form, duplicates, refused text, the user's own words.

Pure checks of a single text; applying a whole reply is `edit`'s.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memoryd.core import redact
from memoryd.core.memory.document import BULLET_LIMIT
from memoryd.core.text import fold, hazard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUOTE_MINIMUM = 12
"""Characters of a quote, unless it is a whole message."""

OWN_MARK = "[memoryd]"
"""How every message of ours in a conversation starts."""

DATA_TAG = "memoryd-data"
"""The tag around text that is data for the fork."""

BLOCK_MARK = "[PROJECT MEMORY"
"""How the block that a session loads starts."""

_SPACED_MARKER = re.compile(r"[-*](?:\s+|\Z)")
_GLUED_MARKER = re.compile(r"-(?=[^\W\d_])")
_STRUCTURE = re.compile(r"(?:(?:[-*+]|\d+[.)])\s+|>\s?)*(#{1,6}(?=\s)|`{3}|~{3})")
_TAG = re.compile(
    r"</?(?:system-reminder|task-notification|tool_use_error|tools-used-before-summary|"
    r"new-diagnostics|persisted-output|user-memory-input|user-prompt-submit-hook|"
    r"(?:command|local-command|bash|ide|memoryd)[-_][a-z_-]+|function_(?:calls|results)|antml:[a-z_]+)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_EMPHASIS = (
    re.compile(r"(\*{1,3})(?=\S)(.+?)(?<=\S)\1"),
    re.compile(r"(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)"),
)
_WORD_EDGES = ".,;:!?()[]{}\"'`*_"


def content(line: str) -> str:
    """A line without indentation, one `-` or `*` marker with space behind it, and trailing space."""
    text = line.strip()
    found = _SPACED_MARKER.match(text)
    return text[found.end() :] if found else text


def bullet(text: str) -> str:
    """`text` in bullet form, starting with `- `; empty where nothing stands behind the marker."""
    text = text.strip()
    found = _SPACED_MARKER.match(text) or _GLUED_MARKER.match(text)
    body = text[found.end() :] if found else text
    return f"- {body}" if body else ""


def key(line: str) -> str:
    """What makes two lines duplicates: case, spacing, marker, final dot and emphasis do not count."""
    text = fold(content(line))
    for emphasis in _EMPHASIS:
        while (plain := emphasis.sub(r"\2", text)) != text:
            text = plain
    return text.removesuffix(".").rstrip()


def text_fault(line: str, secrets: Iterable[str] = ()) -> str:
    """Why a bullet may not be written, or an empty string. `secrets` are exact values."""
    if not line:
        return "empty"
    if len(line) > BULLET_LIMIT:
        return f"{len(line)} characters, a bullet has at most {BULLET_LIMIT}"
    if structure := _STRUCTURE.match(line[2:]):
        return "starts with a heading" if structure[1][0] == "#" else "starts with a code fence"
    return character_fault(line) or mark_fault(line) or _secret_fault(line, secrets)


def character_fault(text: str, *, layout: bool = False) -> str:
    """Why the characters of a text may not be written; with `layout`, newline and tab may."""
    found = hazard(text, layout=layout)
    return f"holds the character {found}" if found else ""


def mark_fault(text: str) -> str:
    """Why a text could pass for the host's or our own words, or an empty string."""
    if found := _TAG.search(text):
        return f"holds the tag {found[0]}>"
    for mark in (OWN_MARK, BLOCK_MARK):
        if mark in text:
            return f"holds our own mark {mark}"
    return ""


def _secret_fault(text: str, secrets: Iterable[str]) -> str:
    found = redact.find(text, secrets)
    return f"holds a secret ({found[0].kind})" if found else ""


def quoted(because: str, typed: Sequence[str]) -> bool:
    """Whether the user typed `because`: a part of a message of 12 characters, or a whole message."""
    quote = fold(because)
    if not quote:
        return False
    folded = [fold(message) for message in typed]
    return quote in folded or (
        len(quote) >= QUOTE_MINIMUM and any(quote in message for message in folded)
    )


def words(line: str) -> list[str]:
    """The words of a line, folded, without punctuation at their edges."""
    stripped = (word.strip(_WORD_EDGES) for word in fold(content(line)).split(" "))
    return [word for word in stripped if word]


def ordered_part(part: str, whole: str) -> bool:
    """Whether the words of `part` stand in `whole` in the same order: it only shortens."""
    rest = iter(words(whole))
    wanted = words(part)
    return bool(wanted) and all(word in rest for word in wanted)


def covered(whole: str, parts: Sequence[str]) -> bool:
    """Whether `parts` together hold every word of `whole`: a split that loses nothing."""
    left = [word for part in parts for word in words(part)]
    for word in words(whole):
        if word not in left:
            return False
        left.remove(word)
    return True
