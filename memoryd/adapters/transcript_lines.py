"""A line of the host's JSONL, decoded to rows.

Owns what a record is to the core, and what damage does to a line: cut lines, records glued together, runs
of NUL bytes, bytes that are no UTF-8, lone surrogates. Nothing in a line raises. It must not know files
or branches.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Literal, TypeVar

import msgspec

from memoryd.adapters import transcript_fields as fields
from memoryd.adapters.transcript_fields import Line
from memoryd.core.transcript import (
    INPUT_LIMIT,
    MESSAGE_LIMIT,
    RESULT_LIMIT,
    Block,
    Compaction,
    Marks,
    Media,
    Rewind,
    Row,
    Text,
    ToolCall,
    ToolResult,
    clip,
    typed_by,
    who_queued,
    who_wrote,
)

_T = TypeVar("_T", bound=msgspec.Struct)

_RECORDS_OF_A_LINE = 64
"""Starts of records that are tried in a damaged line: each try may look at the whole line."""

_SALVAGE_BUDGET = 16_000_000
"""Characters that are looked at for that, about."""

_LINE = msgspec.json.Decoder(Line)
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ANYTHING = msgspec.json.Decoder()
_RECORD = json.JSONDecoder(strict=False)

_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)

_START_OF_RECORD = re.compile(
    r"""(?<![:\[,\s])\{\s*" | \{\s*"(?:parentUuid|type|uuid|isSidechain|sessionId)"\s*:""",
    re.VERBOSE,
)
_GOES_ON = frozenset(",:]}")
"""What may follow an object within another one, and never follows a record."""

_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.", re.DOTALL)
_LENGTH_OF_LONE_SURROGATE = 6
_RAW_CONTROL = re.compile("[\x00-\x1f]")

_PARTS: dict[str, type[msgspec.Struct]] = {
    "message": fields.Message,
    "attachment": fields.Attachment,
    "content": fields.Block,
    "prompt": fields.Block,
}
"""Fields of which the good parts are taken where others are of another shape; blocks are several."""

_LONG_INPUT = 4 * INPUT_LIMIT
"""Bytes of a tool call's input up to which it is kept as it is."""

_SYNTHETIC_MODEL = "<synthetic>"
"""What the host itself says in the model's name, such as an error."""


def add_events(events: list[Row | Rewind], raw: memoryview, offset: int) -> None:
    """Append what a line says of the main session: nothing, a row, several where some were glued.

    It takes the list since a transcript has ten thousands of lines: a generator for each is a fifth of
    the time.
    """
    try:
        event = _event(_LINE.decode(raw), offset)
    except _UNREADABLE:
        found = (_event(line, offset) for line in _salvaged(raw))
        events += (event for event in found if event is not None)
    else:
        if event is not None:
            events.append(event)


def _event(line: Line, offset: int) -> Row | Rewind | None:
    uuid = line.uuid
    if uuid is None:
        return Rewind(offset, line.leaf_uuid or "") if line.is_rewind else None
    if line.is_sidechain:
        return None
    match line.type:
        case "assistant":
            row = _assistant_row(line, uuid, offset)
        case "user":
            row = _user_row(line, uuid, offset)
        case "attachment":
            row = _attachment_row(line, uuid, offset)
        case "system":
            row = _boundary_row(line, uuid, offset)
        case _:
            return Row(offset, uuid, line.parent, passing=True)
    return row or Row(offset, uuid, line.parent)


# ── rows: None where the record says nothing and only links others ─────────────────────────────────


def _user_row(line: Line, uuid: str, offset: int) -> Row | None:
    if line.message is None or line.is_virtual:
        return None
    if line.is_visible_in_transcript_only and not line.is_compact_summary:
        return None
    content = line.message.content
    blocks = _blocks(content)
    for block in blocks:
        if isinstance(block, ToolResult):
            return Row(offset, uuid, line.parent, "tool", blocks, said=_size(content))
    marks = Marks(
        origin=line.origin.kind if line.origin else "",
        subkind=line.origin.subkind if line.origin else "",
        prompt_source=line.prompt_source or "",
        row_source=line.row_source or "",
        turn_origin=line.turn_origin or "",
        meta=line.is_meta,
        scheduled=line.wakeup_source is not None,
        summary=line.is_compact_summary,
        interrupted=bool(line.interrupted_message_id),
        not_typed=line.text_not_typed or line.prompt_rewritten,
    )
    texts = _texts(content)
    who = who_wrote(marks, texts)
    typed = typed_by(who, marks, texts)
    prompt, said = line.prompt_id or "", _size(content)
    return Row(offset, uuid, line.parent, who, blocks, "", prompt, typed, said=said)


def _assistant_row(line: Line, uuid: str, offset: int) -> Row | None:
    message = line.message
    if message is None or line.is_api_error_message or line.is_virtual:
        return None
    if message.model == _SYNTHETIC_MODEL:
        return None
    blocks = _blocks(message.content)
    said = _size(message.content)
    return Row(offset, uuid, line.parent, "assistant", blocks, message.id or "", said=said)


def _attachment_row(line: Line, uuid: str, offset: int) -> Row | None:
    found = line.attachment
    if found is None or found.type != "queued_command":
        return None
    marks = Marks(
        origin=found.origin.kind if found.origin else "",
        subkind=found.origin.subkind if found.origin else "",
        meta=found.is_meta or line.is_meta,
        not_typed=found.text_not_typed or found.prompt_rewritten,
    )
    who = who_queued(marks, found.command_mode, human=found.human_turn, host=found.hosts_own_turn)
    typed = typed_by(who, marks, _texts(found.prompt))
    return Row(offset, uuid, line.parent, who, _blocks(found.prompt), typed=typed)


def _boundary_row(line: Line, uuid: str, offset: int) -> Row | None:
    if line.subtype != "compact_boundary":
        return None
    previous = line.logical_parent_uuid or ""
    metadata = line.compact_metadata or fields.CompactMetadata()
    if (listed := metadata.preserved_messages) is not None:
        compaction = Compaction(previous, listed.anchor_uuid, tuple(listed.uuids))
    elif (segment := metadata.preserved_segment) is not None:
        head, tail = segment.head_uuid, segment.tail_uuid
        compaction = Compaction(previous, segment.anchor_uuid, head=head, tail=tail)
    else:
        compaction = Compaction(previous)
    return Row(offset, uuid, "", compaction=compaction)


# ── blocks ─────────────────────────────────────────────────────────────────────────────────────────


def _texts(content: str | list[fields.Block]) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple(block.text for block in content if block.type == "text")


def _size(content: str | list[fields.Block]) -> int:
    """About how many characters a model was sent."""
    if isinstance(content, str):
        return len(content)
    size = 0
    for block in content:
        size += len(block.text) + len(block.input)
        if isinstance(block.content, str):
            size += len(block.content)
        elif block.content:
            size += _size(block.content)
    return size


def _blocks(content: str | list[fields.Block]) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (Text(clip(content.strip(), MESSAGE_LIMIT)),)
    found = [_block(block) for block in content]
    return tuple([block for block in found if block is not None])


def _block(block: fields.Block) -> Block | None:
    match block.type:
        case "text":
            return Text(clip(block.text.strip(), MESSAGE_LIMIT))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return ToolCall(block.id, block.name, _input(block.input))
        case "image" | "document":
            return _media(block)
        case kind if kind.endswith("tool_result"):
            text = clip(_result(block.content), RESULT_LIMIT)
            return ToolResult(block.tool_use_id, text, error=bool(block.is_error))
        case _:
            return None


def _media(block: fields.Block) -> Media:
    kind: Literal["image", "document"] = "image" if block.type == "image" else "document"
    return Media(kind, block.source.media_type if block.source else "")


def _result(content: str | list[fields.Block] | None) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        f"[{block.type}]" if block.type in ("image", "document") else block.text
        for block in content or ()
    )


def _input(raw: msgspec.Raw) -> str:
    """The JSON of a call's input; of a long one each text is cut, which keeps it JSON."""
    if len(raw) <= _LONG_INPUT:
        return bytes(raw).decode("utf-8", "replace")
    try:
        given = _ANYTHING.decode(raw)
        named = given if isinstance(given, dict) else {"": given}
        return json.dumps({name: _shortened(value) for name, value in named.items()})
    except _UNREADABLE:
        return ""


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clip(text, INPUT_LIMIT)


# ── damage ─────────────────────────────────────────────────────────────────────────────────────────


def _salvaged(raw: memoryview) -> list[Line]:
    """What can be had of a line that is no record as we know them."""
    try:
        return [_lenient(Line, raw)]
    except RecursionError:
        # never looked into: what lies so deep is what some tool put there
        return []
    except _UNREADABLE:
        return _records(bytes(raw))


def _records(raw: bytes) -> list[Line]:
    """The whole records in a line that is no JSON."""
    text = _mended(raw.replace(b"\0", b"").decode("utf-8", "replace"))
    try:
        return [_LINE.decode(text)]
    except _UNREADABLE:
        pass
    records: list[Line] = []
    at = whole = 0
    for _ in range(max(2, min(_RECORDS_OF_A_LINE, _SALVAGE_BUDGET // (len(text) + 1)))):
        found = _START_OF_RECORD.search(text, at)
        if found is None:
            break
        at = found.start()
        try:
            _, end = _RECORD.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if not text[whole:at].strip() or text[end : end + 1] not in _GOES_ON:
            records += _lenient_lines(text[at:end].encode())
            whole = end
        at = end
    return records


def _mended(text: str) -> str:
    """JSON text without the characters and escapes that no JSON may hold."""
    return _RAW_CONTROL.sub(" ", _ESCAPE.sub(_without_lone_surrogate, text))


def _without_lone_surrogate(escape: re.Match[str]) -> str:
    lone = escape[0][1] == "u" and len(escape[0]) == _LENGTH_OF_LONE_SURROGATE
    return r"\ufffd" if lone else escape[0]


def _lenient_lines(raw: bytes | memoryview) -> list[Line]:
    """The record, with what is of another type than we know left out; none where it is no object."""
    try:
        return [_lenient(Line, raw)]
    except _UNREADABLE:
        return []


def _lenient(kind: type[_T], raw: bytes | memoryview | msgspec.Raw) -> _T:
    given = _RAW_FIELDS.decode(raw)
    known = {}
    for field in msgspec.structs.fields(kind):
        if (value := given.get(field.encode_name)) is None:
            continue
        try:
            known[field.name] = msgspec.json.decode(value, type=field.type)
        except _UNREADABLE:
            if field.name in _PARTS:
                known[field.name] = _lenient_parts(field.name, value)
    return kind(**known)


def _lenient_parts(name: str, raw: msgspec.Raw) -> object:
    """The struct of the field `name`, or where it holds several, a list of those that are objects."""
    kind = _PARTS[name]
    if kind is fields.Block:
        return _lenient_blocks(raw)
    try:
        return _lenient(kind, raw)
    except _UNREADABLE:
        return None


def _lenient_blocks(raw: msgspec.Raw) -> list[fields.Block]:
    try:
        items = _RAW_ITEMS.decode(raw)
    except _UNREADABLE:
        items = [raw]
    blocks = []
    for item in items:
        with suppress(*_UNREADABLE):
            blocks.append(_lenient(fields.Block, item))
    return blocks
