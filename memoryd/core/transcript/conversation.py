"""What comes out of a transcript: the conversation by turns, what happened since, what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memoryd.core.transcript.rows import Block
    from memoryd.core.transcript.who import Who


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

    id: str
    """Uuid of its first row."""
    start: int
    """Offset of its first row."""
    end: int
    """Offset of its last row."""
    prompt: str
    """The host's id of its prompt, as the events have it (`prompt_id`); may be empty."""
    messages: tuple[Message, ...]
    typed: str = ""
    """What the person typed to start it; empty where nobody did."""
    asked: bool = False
    """A person's prompt started it: typed, queued, over the bridge, or through the SDK."""
    calls: tuple[int, ...] = ()
    """Offset of the row of each tool call."""

    def __repr__(self) -> str:
        return f"Turn({self.start}..{self.end}, {len(self.messages)} messages)"


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

    @property
    def to_read(self) -> bool:
        """Whether a save has something to read: a prompt was sent or a tool ran."""
        return bool(self.prompts or self.tools)


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
