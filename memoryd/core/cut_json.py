"""JSON as a hook hands it over: cut at a limit, with half a surrogate pair, with bytes of no text.

Owns how much of such a body can still be read. Knows no message and no field's meaning: the caller
names the members whose beginning is of use.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Final

_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER = re.compile(r"[-0-9][-+.0-9eE]*+")
_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*+)"
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_PAIR: Final = len(rb"\ud83d\ude00")
_DECODER: Final = json.JSONDecoder()


def clean(data: bytes) -> bytes:
    """`data` as a strict decoder takes it: bytes that are no UTF-8 and half pairs become U+FFFD."""
    text = data.decode("utf-8", "replace").encode()
    return _SURROGATE.sub(
        lambda found: found[0] if len(found[2]) == _PAIR else found[1] + rb"\ufffd", text
    )


def closed(data: bytes, *, prefixes: frozenset[str]) -> bytes | None:
    """The object that `data` begins, closed after its last whole top-level member, as UTF-8.

    A string member named in `prefixes` that was cut keeps its beginning. Any other cut member is
    left out: half a path or half an id would name something else. None where `data` begins no
    object with a whole member. Never raises; takes time linear in the data.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data.removeprefix(codecs.BOM_UTF8))
    at = _after(text, 0, "{")
    members: list[str] = []
    while at >= 0:
        end = _member_end(text, at)
        if end < 0:
            members.append(_beginning(text, at, prefixes))
            break
        members.append(text[at:end])
        at = _after(text, end, ",")
    whole = [member for member in members if member]
    return ("{" + ",".join(whole) + "}").encode() if whole else None


def _after(text: str, at: int, sign: str) -> int:
    """Where the next token starts after `sign`, or -1 where something else stands at `at`."""
    at = _skip_space(text, at)
    return _skip_space(text, at + 1) if text.startswith(sign, at) else -1


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _member_end(text: str, at: int) -> int:
    """The end of the `"name": value` at `at`, or -1 where it is not whole."""
    value = _value_start(text, at)
    if value < 0:
        return -1
    try:
        _, end = _DECODER.raw_decode(text, value)
    except (ValueError, RecursionError):
        return -1
    # A number that the data ends in may have gone on; every other value shows its own end.
    return -1 if _NUMBER.fullmatch(text, value) else end


def _value_start(text: str, at: int) -> int:
    name = _STRING.match(text, at)
    return _after(text, name.end() + 1, ":") if name and text.startswith('"', name.end()) else -1


def _beginning(text: str, at: int, prefixes: frozenset[str]) -> str:
    """The cut member at `at` with its string closed, where it is one of `prefixes`."""
    value = _value_start(text, at)
    found = _STRING.match(text, value) if value >= 0 else None
    if found is None or text[at + 1 : text.index('"', at + 1)] not in prefixes:
        return ""
    return text[at : found.end()] + '"'
