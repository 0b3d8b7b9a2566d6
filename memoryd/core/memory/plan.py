"""Which ops of a reply belong together: moves, and rules of the user's that are split.

Knows the ops and the file as it is before the first of them. What becomes of a group is `ops`'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memoryd.core.memory import rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memoryd.core.memory.draft import Draft
    from memoryd.core.memory.guard import Guard
    from memoryd.core.memory.reply import Op


@dataclass(frozen=True, slots=True)
class Move:
    """An add and a remove of one text, by their numbers: both happen or neither."""

    add: int
    remove: int

    @property
    def members(self) -> tuple[int, ...]:
        return (self.add, self.remove)


@dataclass(frozen=True, slots=True)
class Split:
    """The remove or replace of a rule, and the adds whose words are an ordered part of that rule's.

    The pieces need no words of the user's, but only where the rule gives way to them.
    """

    source: int
    pieces: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        return (self.source, *self.pieces)


Group = Move | Split


def groups(ops: Sequence[Op], draft: Draft, guard: Guard) -> dict[int, Group]:
    """The group of each op that has one, by the op's number."""
    moves = _by_member(_moves(ops))
    alone = {number: op for number, op in enumerate(ops) if number not in moves}
    return {**moves, **_by_member(_splits(alone, draft, guard))}


def _by_member(found: Iterable[Group]) -> dict[int, Group]:
    return {number: group for group in found for number in group.members}


def _moves(ops: Sequence[Op]) -> Iterator[Move]:
    waiting: dict[tuple[str, str], list[int]] = {}
    for number, op in enumerate(ops):
        if op.kind == "replace":
            continue
        other = "remove" if op.kind == "add" else "add"
        text = rules.key(op.text if op.kind == "add" else op.line)
        if partners := waiting.get((other, text)):
            partner = partners.pop(0)
            yield Move(number, partner) if op.kind == "add" else Move(partner, number)
        else:
            waiting.setdefault((op.kind, text), []).append(number)


def _splits(ops: Mapping[int, Op], draft: Draft, guard: Guard) -> Iterator[Split]:
    """A source with its pieces; a piece goes with the first source that holds it."""
    pieces = {
        number: rules.words(op.text)
        for number, op in ops.items()
        if op.kind == "add" and guard.adds_critical(op) and not guard.quoted(op)
    }
    for number, op in ops.items():
        if not pieces:
            return
        index = draft.find(op.line) if op.kind != "add" else None
        if not isinstance(index, int) or not guard.is_critical(index) or guard.is_heading(index):
            continue
        whole = rules.words(draft.lines[index])
        own = tuple(piece for piece, words in pieces.items() if rules.shortens(words, whole))
        if own:
            yield Split(number, own)
            pieces = {piece: words for piece, words in pieces.items() if piece not in own}
