"""What comes out of a transcript: the conversation by turns, what happened since, what was typed.

Owns the assembly of a turn's rows to messages, and what stands for a result that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING

from memoryd.core.transcript.rows import ToolCall, ToolResult
from memoryd.core.transcript.who import PERSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memoryd.core.transcript.rows import Block, Row
    from memoryd.core.transcript.who import Who

NO_RESULT = "no result: the call was interrupted, or its result is not in the transcript"


@dataclass(frozen=True, slots=True)
class Message:
    """What one author said at once; each tool call of the model is followed by its result.

    The results stand in a message of the author `tool` right behind, in the order of the calls.
    """

    author: Who
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """From a user message that is no tool result up to the next one."""

    rows: tuple[Row, ...]
    """At least one; rows of one message stand together, results behind the calls."""
    prompt: str
    """The host's id of its prompt, as the events have it (`prompt_id`); may be empty."""

    @property
    def start(self) -> int:
        """Offset of its first row."""
        return self.rows[0].offset

    @property
    def asked(self) -> bool:
        """Whether a person's prompt started it: typed, queued, over the bridge, through the SDK."""
        return self.rows[0].author in PERSON

    @property
    def typed(self) -> str:
        """What the person typed to start it; empty where nobody did."""
        return self.rows[0].typed

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its messages, assembled at each call."""
        return tuple(assemble(self.rows))

    def tools_since(self, offset: int) -> int:
        """How many tools were called in its rows from `offset` on."""
        rows = (row for row in self.rows if row.offset >= offset)
        return sum(isinstance(block, ToolCall) for row in rows for block in row.blocks)

    def __repr__(self) -> str:
        return f"Turn({self.start}, {len(self.rows)} rows)"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The live branch from its last compaction on."""

    turns: tuple[Turn, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in order."""
        return tuple(chain.from_iterable(turn.messages for turn in self.turns))

    def __repr__(self) -> str:
        return f"Conversation({len(self.turns)} turns)"


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened on the live branch since an offset."""

    prompts: int = 0
    """Prompts of a person: typed, queued, over the bridge, or through the SDK."""
    tools: int = 0
    """Tool calls of the main session."""
    interrupted: bool = False
    """The branch ends with the mark that a turn was interrupted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a transcript."""

    conversation: Conversation
    activity: Activity
    end: int
    """Offset behind the last whole line: what a save of this reading covers."""
    leaf: str
    """Uuid of the branch's last row; empty where there is none."""
    earlier: tuple[str, ...] = ()
    """What was typed since the offset, but before the compaction that the conversation starts with."""

    @property
    def typed(self) -> tuple[str, ...]:
        """The texts that the person typed, oldest first."""
        return (*self.earlier, *(turn.typed for turn in self.conversation.turns if turn.typed))

    def __repr__(self) -> str:
        return f"Reading({self.conversation!r}, {self.activity!r}, end {self.end})"


def assemble(rows: Sequence[Row]) -> Iterator[Message]:
    """The messages of rows that stand as in a turn."""
    results = {
        block.id: block
        for row in reversed(rows)
        for block in row.blocks
        if row.author == "tool" and isinstance(block, ToolResult)
    }
    answered: set[str] = set()
    for (author, _), group in groupby(rows, key=lambda row: (row.author, row.message or row.uuid)):
        blocks = tuple(chain.from_iterable(row.blocks for row in group))
        if author is None:
            continue
        if author == "tool":
            blocks = tuple(block for block in blocks if _is_left(block, answered))
        if blocks or author != "tool":
            yield Message(author, blocks)
        if author == "assistant" and (calls := _open_calls(blocks)):
            answered.update(calls)
            yield Message("tool", tuple(results.get(call) or _missing(call) for call in calls))


def _open_calls(blocks: Iterable[Block]) -> list[str]:
    """The calls that are not answered within the message, as the provider's own tools are."""
    within = {block.id for block in blocks if isinstance(block, ToolResult)}
    return [b.id for b in blocks if isinstance(b, ToolCall) and b.id not in within]


def _missing(call: str) -> ToolResult:
    return ToolResult(call, NO_RESULT, error=True)


def _is_left(block: Block, answered: set[str]) -> bool:
    return not (isinstance(block, ToolResult) and block.id in answered)
