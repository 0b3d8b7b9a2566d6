"""What one row of a transcript is to us, and how much of it is kept.

Owns the shapes of rows and blocks. Thinking blocks, cache marks and citations have no shape here: they
are dropped. Texts are cut while they are read, to the limits of `texts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from memoryd.core.transcript.who import Who


@dataclass(frozen=True, slots=True)
class Text:
    """Words of a person or a model, or the host's own, cut to `MESSAGE_LIMIT`."""

    text: str

    def __repr__(self) -> str:
        return f"Text({len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model called; `input` is the JSON of what it was given, long texts cut."""

    id: str
    name: str
    input: str

    def __repr__(self) -> str:
        return f"ToolCall({self.id!r}, {self.name!r}, {len(self.input)} characters)"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the tool answered to the call `id`, cut to `RESULT_LIMIT`."""

    id: str
    text: str
    error: bool

    def __repr__(self) -> str:
        return f"ToolResult({self.id!r}, {len(self.text)} characters, error={self.error})"


@dataclass(frozen=True, slots=True)
class Media:
    """A mark where an image or a document stood; its bytes are never kept."""

    kind: Literal["image", "document"]
    form: str
    """Its media type, or empty."""


Block = Text | ToolCall | ToolResult | Media


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a boundary row says: the conversation starts anew here, but for the rows it preserves."""

    previous: str
    """Uuid of the row that the conversation ended with before; empty where it isn't told."""
    anchor: str = ""
    """Uuid of the row behind which the preserved ones now hang."""
    preserved: tuple[str, ...] = ()
    """Uuids in order; empty where only `head` and `tail` are told."""
    head: str = ""
    tail: str = ""


LOST = "?"
"""The parent of a row that names none, not even that it is a root."""


class Row(NamedTuple):
    """A row of the main session. `offset` is the byte at which its line starts.

    `author` is None where the row says nothing itself and only links its children to its parent. A
    tuple, since a frozen dataclass of ten fields takes four times as long to make, and a transcript
    has ten thousands of rows.
    """

    offset: int
    uuid: str
    parent: str
    """Uuid of the row that it hangs off; empty for a root."""
    author: Who | None = None
    blocks: tuple[Block, ...] = ()
    message: str = ""
    """`message.id`, shared by the rows of one message of the model."""
    prompt: str = ""
    """The host's id of the prompt that the row belongs to."""
    typed: str = ""
    """What a person typed, uncut to `TYPED_LIMIT`; empty where nobody did."""
    compaction: Compaction | None = None
    said: int = 0
    """Characters of its blocks before they were cut."""
    passing: bool = False
    """A row of a type that we do not know: others may hang off it, a branch never ends with it."""

    def __repr__(self) -> str:
        return f"Row({self.offset}, {self.uuid!r}, {self.author}, {len(self.blocks)} blocks)"


class Rewind(NamedTuple):
    """The host's mark of a rewind: the last jump was one; `leaf` ends the branch if it is known."""

    offset: int
    leaf: str
