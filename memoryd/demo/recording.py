"""The recorded session: what the host told its hooks, and what it wrote into the transcript meanwhile.

Owns the names that stand in the recording for places of the machine it is played on.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Tool(msgspec.Struct, frozen=True):
    """A tool call of PostToolBatch."""

    tool_name: str


class Event(msgspec.Struct, frozen=True):
    """A hook event; `line` is what the hook gets on stdin."""

    hook_event_name: str
    session_id: str
    transcript_path: str
    prompt: str = ""
    tool_calls: tuple[Tool, ...] = ()
    line: bytes = b""

    def __repr__(self) -> str:
        return f"Event({self.hook_event_name!r}, {len(self.line)} bytes)"


class Row(NamedTuple):
    """A line of the transcript, with its newline."""

    line: bytes

    def __repr__(self) -> str:
        return f"Row({len(self.line)} bytes)"


class _Line(msgspec.Struct):
    event: msgspec.Raw = msgspec.Raw()
    row: msgspec.Raw = msgspec.Raw()


def recorded(*, home: Path, project: Path) -> Iterator[Event | Row]:
    """The session in the order in which it happened, as if it were played in these places."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(project))
    places = {"@HOME@": str(home), "@PROJECT@": str(project), "@SLUG@": slug}
    text = (files("memoryd.demo") / "session.jsonl").read_text(encoding="utf-8")
    for name, place in places.items():
        text = text.replace(name, json.dumps(place)[1:-1])
    for line in text.rstrip("\n").split("\n"):
        found = msgspec.json.decode(line, type=_Line)
        if found.row:
            yield Row(bytes(found.row) + b"\n")
        else:
            yield as_event(bytes(found.event))


def as_event(line: bytes) -> Event:
    """The event that a hook gets as `line`."""
    return msgspec.structs.replace(msgspec.json.decode(line, type=Event), line=line)


def scripted_reply() -> str:
    """What the model answers when it is asked what to remember of the session."""
    return (files("memoryd.demo") / "reply.json").read_text(encoding="utf-8")
