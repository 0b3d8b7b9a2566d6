"""The host's transcript as this product understands it: rows, the live branch, and its rendering.

Owns what a row means, who wrote it, which rows the model still sees, and the one text form in which a
conversation leaves for a model. It must not know files, JSON or offsets' origin: an adapter decodes rows
and hands them over in file order.
"""

from __future__ import annotations

from memoryd.core.transcript.branch import Branch, Wanted
from memoryd.core.transcript.conversation import Activity, Conversation, Message, Reading, Turn
from memoryd.core.transcript.render import holds, render
from memoryd.core.transcript.rows import (
    LOST,
    Block,
    Compaction,
    Media,
    Rewind,
    Row,
    Text,
    ToolCall,
    ToolResult,
)
from memoryd.core.transcript.texts import (
    INPUT_LIMIT,
    MESSAGE_LIMIT,
    RESULT_LIMIT,
    TYPED_LIMIT,
    clean,
    clip,
)
from memoryd.core.transcript.who import Marks, Who, typed_by, who_queued, who_wrote

__all__ = [
    "INPUT_LIMIT",
    "LOST",
    "MESSAGE_LIMIT",
    "RESULT_LIMIT",
    "TYPED_LIMIT",
    "Activity",
    "Block",
    "Branch",
    "Compaction",
    "Conversation",
    "Marks",
    "Media",
    "Message",
    "Reading",
    "Rewind",
    "Row",
    "Text",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Wanted",
    "Who",
    "clean",
    "clip",
    "holds",
    "render",
    "typed_by",
    "who_queued",
    "who_wrote",
]
