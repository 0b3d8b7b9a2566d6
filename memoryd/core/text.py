"""Text rules that all rooms share: lines, folding, cutting, and characters that must not travel.

Lines are separated by `\\n` alone. `str.splitlines` also splits at form feeds and U+2028, by which a
reply could smuggle in a heading, so it is used nowhere.
"""

from __future__ import annotations

import re

_HAZARDS = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    "\u034f\u17b4\u17b5\U0001d173-\U0001d17a"  # joiners, inherent vowels and beams without a glyph
    "\u200b-\u200f\u2028-\u202e"  # zero-width, marks, line and paragraph separators, embeddings
    "\u2060-\u206f\ufeff\ufff9-\ufffb"  # word joiner, isolates, byte-order mark, annotations
    "\U000e0000-\U000e0fff"  # tag characters, variation selectors that can carry bytes
    "\ud800-\udfff"  # lone surrogates: no UTF-8 can hold them
)
_HAZARD = re.compile(f"[{_HAZARDS}]")
_HAZARD_BUT_LAYOUT = re.compile(f"(?![\n\t])[{_HAZARDS}]")


def count_lines(text: str) -> int:
    """Lines of `text`; a final newline counts none, an empty text has none."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def cut(text: str, limit: int) -> str:
    """The first `limit` characters and `…`, or `text` itself where it is not longer."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def fold(text: str) -> str:
    """Case and spacing folded: for comparing what people and models wrote."""
    # What is printable has no white space but the space: most lines need no splitting, which is slow.
    plain = text.isprintable() and "  " not in text
    return (text.strip() if plain else " ".join(text.split())).casefold()


def plural(count: int, word: str) -> str:
    """`1 duplicate`, `2 duplicates`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def hazard(text: str, *, layout: bool = False) -> str:
    """The first control, bidirectional, zero-width or unstorable character as `U+200B`, or ``.

    With `layout`, newline and tab are fine.
    """
    found = (_HAZARD_BUT_LAYOUT if layout else _HAZARD).search(text)
    return f"U+{ord(found[0]):04X}" if found else ""


def printable(text: str, *, layout: bool = False) -> str:
    """`text` for a terminal or a log: each hazardous character as a visible `\\u{…}`."""
    pattern = _HAZARD_BUT_LAYOUT if layout else _HAZARD
    return pattern.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def storable(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that UTF-8 can hold it."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
