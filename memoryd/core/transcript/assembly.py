"""Rows of a branch gathered to turns.

Owns where a turn starts, and which rows that hang elsewhere belong to it. It takes a branch as it is
given: which rows are on it is not decided here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from memoryd.core.transcript.conversation import Turn
from memoryd.core.transcript.rows import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memoryd.core.transcript.rows import Row
    from memoryd.core.transcript.store import Store
    from memoryd.core.transcript.who import Who

_START: frozenset[Who] = frozenset(
    {"human", "sdk", "notice", "scheduled", "other", "command", "summary"}
)


def starts_turn(row: Row) -> bool:
    """Whether a turn starts with it: a user message that is no tool result, mark or host's note."""
    return row.author in _START


def speaks(row: Row) -> bool:
    """Whether it says something that is read: no mere link, no note of the host."""
    return row.author is not None and row.author != "meta"


def split(store: Store, path: Iterable[int]) -> list[list[int]]:
    """Those rows of a path that say something, by turns; the first may lack its start."""
    groups: list[list[int]] = [[]]
    for index in path:
        author = store[index].author
        if author is None or author == "meta":
            continue
        if author in _START:
            groups.append([])
        groups[-1].append(index)
    return [group for group in groups if group]


def build(store: Store, groups: Sequence[Sequence[int]], prompt: str) -> list[Turn]:
    """A turn of each group of rows; one whose rows all belong to others gives none.

    `prompt` is the host's id of the prompt before, for a turn that names none.
    """
    turns = []
    taken: set[int] = set()
    for group, following in pairwise([*groups, [len(store)]]):
        # rows of before a compaction may stand behind later ones: nothing comes too late for them
        before = following[0] if following[0] > group[-1] else len(store)
        rows = [store[at] for at in _gathered(store, group, before, taken)]
        if rows:
            prompt = next((row.prompt for row in rows if row.prompt), prompt)
            turns.append(Turn(tuple(rows), prompt))
    return turns


def _gathered(store: Store, group: Sequence[int], before: int, taken: set[int]) -> list[int]:
    """A group with the rest of the model's messages, and the results behind the calls.

    Rows at `before` and later come too late; those of before the group belong to what is gone.
    """
    first = min(group)
    rows: list[int] = []

    def take(indexes: Iterable[int]) -> None:
        for at in indexes:
            if first <= at < before and at not in taken:
                taken.add(at)
                rows.append(at)

    for index in group:
        if index in taken:
            continue
        if store[index].author != "assistant":
            taken.add(index)
            rows.append(index)
            continue
        start = len(rows)
        take(store.of_message(index))
        blocks = [block for at in rows[start:] for block in store[at].blocks]
        take(store.result(block.id) for block in blocks if isinstance(block, ToolCall))
    return rows
