"""The host's record in a line of its transcript: the names and types of the fields that matter to us.

Everything else is skipped undecoded: what was rendered, snapshots, request records, thinking, the bytes
of images. Shapes only; what they mean is decided in `transcript_lines` and the core.
"""

from __future__ import annotations

from typing import Any

import msgspec

from memoryd.core.transcript import LOST

NOTHING = msgspec.Raw(b"")


class Source(msgspec.Struct, gc=False):
    """Of an image or a document: its media type."""

    media_type: str = ""


class Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = NOTHING
    tool_use_id: str = ""
    content: str | list[Block] | None = None
    is_error: bool | None = None
    source: Source | None = None

    def __repr__(self) -> str:
        return f"Block({self.type!r}, {len(self.text)} characters)"


class Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: str | list[Block] = ""

    def __repr__(self) -> str:
        return f"Message({self.id!r}, content of {len(self.content)})"


class Origin(msgspec.Struct, gc=False):
    kind: str = ""
    subkind: str = ""


class Attachment(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    prompt: str | list[Block] = ""
    command_mode: str = ""
    human_turn: bool = False
    hosts_own_turn: bool = False
    origin: Origin | None = None
    is_meta: bool = False
    text_not_typed: bool = False
    prompt_rewritten: bool = False

    def __repr__(self) -> str:
        return f"Attachment({self.type!r}, prompt of {len(self.prompt)})"


class Segment(msgspec.Struct, rename="camel", gc=False):
    head_uuid: str = ""
    anchor_uuid: str = ""
    tail_uuid: str = ""


class Preserved(msgspec.Struct, rename="camel", gc=False):
    anchor_uuid: str = ""
    uuids: list[str] = []


class CompactMetadata(msgspec.Struct, rename="camel", gc=False):
    preserved_segment: Segment | None = None
    preserved_messages: Preserved | None = None


class Line(msgspec.Struct, rename="camel", gc=False):
    """The fields of a record that matter to us; everything else is skipped undecoded."""

    type: str = ""
    uuid: str | None = None
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    is_sidechain: bool = False
    is_meta: bool = False
    is_compact_summary: bool = False
    is_visible_in_transcript_only: bool = False
    is_virtual: bool = False
    is_api_error_message: bool = False
    message: Message | None = None
    attachment: Attachment | None = None
    subtype: str | None = None
    logical_parent_uuid: str | None = None
    compact_metadata: CompactMetadata | None = None
    origin: Origin | None = None
    prompt_source: str | None = None
    row_source: str | None = None
    turn_origin: str | None = None
    wakeup_source: Any = None
    prompt_id: str | None = None
    interrupted_message_id: str | None = None
    text_not_typed: bool = False
    prompt_rewritten: bool = False
    explicit: bool = False
    rewound: bool = False
    leaf_uuid: str | None = None

    @property
    def parent(self) -> str:
        """The parent's uuid; empty for a root."""
        return LOST if self.parent_uuid is msgspec.UNSET else self.parent_uuid or ""

    @property
    def is_rewind(self) -> bool:
        """Whether it marks that the person went back to an earlier row."""
        return self.type == "last-prompt" and (self.explicit or self.rewound)
