from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from memoryd import protocol

RECORDED = Path(__file__).parent / "fixtures" / "wire"
"""A file for each generation, a line for each message with all of its fields. Lines are added, and a
field that comes later stands in a line of its own; what stands there once is never changed."""


class Recorded(msgspec.Struct, frozen=True):
    message: str
    route: str
    wire: dict[str, Any]


LINES = [
    msgspec.json.decode(line, type=Recorded)
    for line in (RECORDED / f"generation-{protocol.GENERATION}.jsonl").read_bytes().split(b"\n")
    if line
]

KINDS: dict[str, type[protocol.Message]] = {
    name: kind
    for name, kind in vars(protocol).items()
    if isinstance(kind, type) and issubclass(kind, protocol.Message) and name != "Message"
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.message)
def test_a_recorded_message_says_the_same_today(line: Recorded) -> None:
    message = msgspec.convert(line.wire, KINDS[line.message])
    assert msgspec.json.decode(msgspec.json.encode(message)) == line.wire


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.message)
def test_a_recorded_route_takes_the_same_today(line: Recorded) -> None:
    method, _, path = line.route.partition(f" /v{protocol.GENERATION}/")
    if line.route:
        assert protocol.ROUTES[method, path].__name__ == line.message


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.message)
def test_a_field_of_a_later_version_is_ignored(line: Recorded) -> None:
    known = msgspec.convert(line.wire, KINDS[line.message])
    assert msgspec.convert({**line.wire, "of_later": [1]}, KINDS[line.message]) == known


def test_every_message_route_and_field_is_recorded() -> None:
    recorded: dict[str, set[str]] = {}
    for line in LINES:
        recorded.setdefault(line.message, set()).update(line.wire)
    fields = {name: set(kind.__struct_fields__) for name, kind in KINDS.items()}
    assert {name: found - {"type"} for name, found in recorded.items()} == fields
    routes = {f"{method} /v{protocol.GENERATION}/{name}" for method, name in protocol.ROUTES}
    assert {line.route for line in LINES} - {""} == routes


def test_what_a_person_wrote_is_in_no_repr() -> None:
    said = "something that was said"
    holders = (
        protocol.PromptSubmitted(session_id="s", prompt=said),
        protocol.TurnEnded(session_id="s", last_assistant_message=said),
        protocol.MemoryText(project="p", path="/p", text=said),
        protocol.OpRecord(kind="add", line=said, text=said, reason=said, because=said),
        protocol.RunRecord(id="r", project="p", session="s", state="done", event=said),
        protocol.ProjectStatus(name="p", directory="/p", event=said),
        protocol.EventShown(project="p", at=0.0, text=said),
        protocol.Statusline(text=said),
    )
    assert [holder for holder in holders if said in repr(holder)] == []
