"""Texts of a transcript: how much of one is kept, and what of it can be seen."""

from __future__ import annotations

import re

MESSAGE_LIMIT = 20_000
"""Characters kept of one text block of a person, the model or a summary."""

RESULT_LIMIT = 1_500
"""Characters kept of one tool result."""

INPUT_LIMIT = 800
"""Characters kept of one tool call's input."""

TYPED_LIMIT = 100_000
"""Characters kept of what a person typed at once, for finding quotes in it."""

_HEAD_SHARE = 2 / 3
_TOKEN_LIMIT = 200
"""A cut moves by up to so many characters to a space, so that it leaves no half of a secret."""

_KEY_HEADER = "-----BEGIN "
_KEY_END = "-----END "

_CUT = "\n[… cut …]\n"

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_TERMINAL_CODES = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` without what a reader can't see: control, bidirectional, zero-width and tag characters.

    Everything that separates lines somewhere becomes a newline; a lone surrogate goes.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", text)
    return _UNSEEN.sub("", _TERMINAL_CODES.sub("", text))


def clip(text: str, limit: int) -> str:
    """`text`, or where it is longer its head and its tail around a mark, `limit` characters at most.

    Both ends are cut at white space where there is some near, and of a text that holds a PEM key no
    tail is kept: a filter for secrets that sees the result must not meet the second half of one.
    """
    length = len(text)
    if length <= limit:
        return text
    kept = limit - len(_CUT)
    head = int(kept * _HEAD_SHARE)
    near = max(head - _TOKEN_LIMIT, 0)
    head = max(text.rfind(" ", near, head), text.rfind("\n", near, head), 0) or head
    tail = length - kept + head
    spaces = [at for at in (text.find(" ", tail), text.find("\n", tail)) if at >= 0]
    tail = min(spaces) + 1 if spaces else length
    return f"{text[:head]}{_CUT}{'' if _ends_with_key(text, tail) else text[tail:]}"


def _ends_with_key(text: str, tail: int) -> bool:
    """Whether the text from `tail` on may be of a PEM key: base64 without words, or the key's end."""
    wordless = text.find(" ", tail) < 0
    return (wordless or text.find(_KEY_END, tail) >= 0) and _KEY_HEADER in text
