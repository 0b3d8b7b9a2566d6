"""Reading the fork's reply: text in, ops and topic appends out. Never raises.

Owns the limits on what a reply may hold and the shape of each entry; whether an op fits the file is
`edit`'s question.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from memoryd.core.text import cut, storable

if TYPE_CHECKING:
    from collections.abc import Mapping

REPLY_LIMIT = 256 * 1024
"""Bytes of UTF-8 before parsing."""

START_LIMIT = 50
OP_LIMIT = 200
TOPIC_LIMIT = 20
APPEND_LIMIT = 20_000
"""Characters of one topic append."""

TOPIC_NAME_LIMIT = 200
"""Characters of a topic file's name: file systems take 255 bytes, a temporary name beside is longer."""

NAMED_LENGTH = 60
"""Characters of an entry or line that a sentence names."""

OpKind = Literal["add", "remove", "replace"]

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "add": ("section", "text"),
    "remove": ("line",),
    "replace": ("line", "text"),
}

_START = re.compile(r'\{(?=\s*")')
_TOPIC_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\.md\Z")
_RESERVED = re.compile(r"memory(?:\.pre-migration(?:-\d+)?)?\.md\Z")


@dataclass(frozen=True, slots=True)
class Op:
    """One line to add, remove or replace, as the reply says it; a field that a kind lacks is empty."""

    kind: OpKind
    section: str = ""
    line: str = ""
    text: str = ""
    because: str = ""

    def __repr__(self) -> str:
        return f"Op({self.kind!r}, {len(self.line) + len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class TopicAppend:
    """What goes at the end of a topic file; `text` is trimmed, without its final newline."""

    file: str
    text: str

    def __repr__(self) -> str:
        return f"TopicAppend({self.file!r}, {len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not done and why; `what` is the line or entry, whole, `verb` stands before it."""

    what: str
    why: str
    verb: str = ""

    def __str__(self) -> str:
        named = cut(self.what, NAMED_LENGTH)
        return f"{self.verb} {named}: {self.why}" if self.verb else f"{named}: {self.why}"

    def __repr__(self) -> str:
        return f"Refusal({len(self.what)} characters, {self.why!r})"


@dataclass(frozen=True, slots=True)
class Reply:
    """A readable reply; entries of another shape are in `refused`."""

    ops: tuple[Op, ...] = ()
    topics: tuple[TopicAppend, ...] = ()
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is no reply in the text; `cause` is one clause."""

    cause: str


def read(text: str) -> Reply | Unreadable:
    """The reply that `text` holds, or why there is none."""
    if len(text) > REPLY_LIMIT or len(text.encode("utf-8", "surrogatepass")) > REPLY_LIMIT:
        return Unreadable(f"over {REPLY_LIMIT // 1024} KiB")
    found = _object(text)
    if isinstance(found, Unreadable):
        return found
    ops, topics = found.get("ops", []), found.get("topics", [])
    if not isinstance(ops, list) or not isinstance(topics, list):
        return Unreadable(f"`{'topics' if isinstance(ops, list) else 'ops'}` is no list")
    refused: list[Refusal] = []
    return Reply(_ops(ops, refused), _topics(topics, refused), tuple(refused))


def is_reserved(file: str) -> bool:
    """Whether a topic may not have this name: MEMORY.md's own, or that of one of its backups."""
    return bool(_RESERVED.match(file.casefold()))


def _object(text: str) -> dict[str, object] | Unreadable:
    end = text.rfind("}") + 1
    if not end:
        return Unreadable("no JSON object")
    causes: list[str] = []
    for found in islice(_START.finditer(text, 0, end), START_LIMIT):
        try:
            value = _DECODER.decode(text[found.start() : end])
        except (ValueError, RecursionError):
            causes.append("not valid JSON")
        else:
            if isinstance(value, _Doubled):
                causes.append(_TWICE)
            elif isinstance(value, dict) and ("ops" in value or "topics" in value):
                return value
            else:
                causes.append("an object with neither `ops` nor `topics`")
    return Unreadable(causes[0] if causes else "no JSON object")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are Python's, not JSON's


class _Doubled(dict[str, object]):
    """An object in which a key stands twice: the last would win and hide the first."""


_TWICE = "a key stands twice"


def _told_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Doubled(found)


# not strict: models put raw line breaks into strings; what a text may hold is checked later
_DECODER = json.JSONDecoder(
    strict=False, parse_constant=_no_constant, object_pairs_hook=_told_doubles
)


def _ops(entries: list[object], refused: list[Refusal]) -> tuple[Op, ...]:
    ops: list[Op] = []
    for entry in entries[:OP_LIMIT]:
        op = _op(entry)
        if isinstance(op, Op):
            ops.append(op)
        else:
            refused.append(Refusal(_named(entry), op))
    if len(entries) > OP_LIMIT:
        rest = f"{len(entries) - OP_LIMIT} more ops"
        refused.append(Refusal(rest, f"a reply has at most {OP_LIMIT}"))
    return tuple(ops)


def _op(entry: object) -> Op | str:
    """The op, or why the entry is none."""
    if fault := _object_fault(entry):
        return fault
    assert isinstance(entry, dict)
    kind = entry.get("op")
    if not isinstance(kind, str) or kind not in _FIELDS:
        return "`op` is not add, remove or replace"
    for name in _FIELDS[kind]:
        if fault := _line_fault(entry.get(name)):
            return f"`{name}` {fault}"
    fields = {name: entry[name] for name in _FIELDS[kind]}
    because = entry.get("because")
    quote = storable(because) if isinstance(because, str) else ""
    return Op(cast("OpKind", kind), because=quote, **fields)


def _object_fault(entry: object) -> str:
    if isinstance(entry, _Doubled):
        return _TWICE
    return "" if isinstance(entry, dict) else "no object"


def _line_fault(value: object) -> str:
    if not isinstance(value, str):
        return "is missing" if value is None else "is no text"
    if not value.strip():
        return "is blank"
    if value != storable(value):
        return "holds a character that no file can"
    return "has a line break" if "\n" in value else ""


def _topics(entries: list[object], refused: list[Refusal]) -> tuple[TopicAppend, ...]:
    topics: list[TopicAppend] = []
    for entry in entries[:TOPIC_LIMIT]:
        topic = _topic(entry)
        if isinstance(topic, TopicAppend):
            topics.append(topic)
        else:
            refused.append(Refusal(_named(entry), topic))
    if len(entries) > TOPIC_LIMIT:
        rest = f"{len(entries) - TOPIC_LIMIT} more topics"
        refused.append(Refusal(rest, f"a reply has at most {TOPIC_LIMIT}"))
    return tuple(topics)


def _topic(entry: object) -> TopicAppend | str:
    if fault := _object_fault(entry):
        return fault
    assert isinstance(entry, dict)
    file, append = entry.get("file"), entry.get("append")
    if fault := _file_fault(file) or _append_fault(append):
        return fault
    assert isinstance(file, str)
    assert isinstance(append, str)
    return TopicAppend(file.strip(), append.replace("\r\n", "\n").strip())


def _file_fault(value: object) -> str:
    if not isinstance(value, str) or not _TOPIC_NAME.match(value.strip()):
        return "`file` is no topic file's name"
    if len(value.strip()) > TOPIC_NAME_LIMIT:
        return f"`file` has over {TOPIC_NAME_LIMIT} characters"
    return "`file` is a name that memoryd keeps for itself" if is_reserved(value.strip()) else ""


def _append_fault(value: object) -> str:
    if not isinstance(value, str):
        return "`append` is missing" if value is None else "`append` is no text"
    if not value.strip():
        return "`append` is blank"
    if value != storable(value):
        return "`append` holds a character that no file can"
    if len(value.strip()) > APPEND_LIMIT:
        return f"`append` has {len(value.strip()):,} characters, the limit is {APPEND_LIMIT:,}"
    return ""


def _named(entry: object) -> str:
    try:
        return storable(json.dumps(entry, ensure_ascii=False))
    except (ValueError, RecursionError):
        return type(entry).__name__
