"""Rows of a branch put together to turns of messages.

Owns where a turn starts, which rows form one message, and what stands for a result that is missing. It
takes a branch as it is given: which rows are on it is not decided here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from memoryd.core.transcript.conversation import Message, Turn
from memoryd.core.transcript.rows import ToolCall, ToolResult
from memoryd.core.transcript.who import PERSON, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memoryd.core.transcript.rows import Row
    from memoryd.core.transcript.store import Store

NO_RESULT = "no result: the call was interrupted, or its result is not in the transcript"

_START: frozenset[Who] = frozenset(
    {"human", "sdk", "notice", "scheduled", "other", "command", "summary"}
)


def starts_turn(row: Row) -> bool:
    """Whether a turn starts with it: a user message that is no tool result, mark or host's note."""
    return row.author in _START


def split(store: Store, path: Iterable[int]) -> list[list[int]]:
    """The rows of a path by turns; those before the first turn's start are a group of their own."""
    groups: list[list[int]] = [[]]
    for index in path:
        if starts_turn(store[index]):
            groups.append([])
        groups[-1].append(index)
    return [group for group in groups if group]


def build(store: Store, groups: Sequence[Sequence[int]], prompt: str) -> list[Turn]:
    """A turn of each group of rows; a group that says nothing gives none.

    `prompt` is the host's id of the prompt before, for a turn that names none.
    """
    turns = []
    taken: set[int] = set()
    for group, following in pairwise([*groups, [len(store)]]):
        # rows of before a compaction may stand behind later ones: nothing comes too late for them
        before = following[0] if following[0] > group[-1] else len(store)
        turn = _Build(store, min(group), before, taken).turn(group, prompt)
        if turn.messages:
            turns.append(turn)
        prompt = turn.prompt
    return turns


class _Build:
    """One turn under construction: rows before `first` and from `before` on are none of it."""

    def __init__(self, store: Store, first: int, before: int, taken: set[int]) -> None:
        self._store = store
        self._first = first
        self._before = before
        self._taken = taken
        self._answered: set[str] = set()
        self._messages: list[Message] = []
        self._calls: list[int] = []

    def turn(self, group: Sequence[int], prompt: str) -> Turn:
        for index in group:
            if index not in self._taken:
                self._add(index)
        first = self._store[group[0]]
        return Turn(
            id=first.uuid,
            start=first.offset,
            end=self._store[max(group)].offset,
            prompt=next(filter(None, (self._store[at].prompt for at in group)), prompt),
            messages=tuple(self._messages),
            typed=first.typed,
            asked=first.author in PERSON,
            calls=tuple(self._calls),
        )

    def _add(self, index: int) -> None:
        row = self._store[index]
        match row.author:
            case None | "meta":
                return
            case "assistant":
                together = self._store.of_message(index, self._first, self._before)
                self._add_answer([at for at in together if at not in self._taken])
            case "tool":
                self._add_results(row)
            case author:
                self._messages.append(Message(author, row.blocks))

    def _add_answer(self, together: list[int]) -> None:
        self._taken.update(together)
        rows = [self._store[index] for index in together]
        self._messages.append(Message("assistant", tuple(b for row in rows for b in row.blocks)))
        self._calls += [row.offset for row in rows for b in row.blocks if isinstance(b, ToolCall)]
        blocks = self._messages[-1].blocks
        # the provider's own tools answer within the message
        self._answered.update(b.id for b in blocks if isinstance(b, ToolResult))
        calls = [b.id for b in blocks if isinstance(b, ToolCall) and b.id not in self._answered]
        if calls:
            self._messages.append(Message("tool", tuple(map(self._answer, calls))))

    def _answer(self, call: str) -> ToolResult:
        self._answered.add(call)
        return self._store.result(call, self._before) or ToolResult(call, NO_RESULT, error=True)

    def _add_results(self, row: Row) -> None:
        """What of the row was not attached to a call: a late result, or words beside one."""
        left = tuple(
            block
            for block in row.blocks
            if not (isinstance(block, ToolResult) and block.id in self._answered)
        )
        if left:
            self._messages.append(Message("tool", left))
