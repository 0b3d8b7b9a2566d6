"""One pass of a reply's ops over a memory file: each applied, or left out with its reason.

Owns what becomes of each op and the account of it. What an op may touch is `guard`'s, which ops belong
together `plan`'s; the caps and the decision to write are `edit`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from memoryd.core import redact
from memoryd.core.memory import appends, rules
from memoryd.core.memory.document import TOPICS, in_shape, is_bullet, is_none_yet, parse
from memoryd.core.memory.draft import Draft, NotFound
from memoryd.core.memory.guard import NO_QUOTE, Guard
from memoryd.core.memory.plan import Move, Split, groups
from memoryd.core.memory.reply import Op, Refusal, TopicAppend
from memoryd.core.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memoryd.core.memory.merge import Concurrent

_TOPICS_KEY = TOPICS.casefold()

OpOutcome = Literal["applied", "moved", "skipped", "refused", "duplicate", "dropped"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a save is bound to besides the file and the reply.

    `typed` are the user's own messages that a quote must stand in; None asks for no quotes. `secrets` are
    exact values that may stand nowhere. `max_removal` is a share of the file's bullets.
    """

    project: str
    typed: tuple[str, ...] | None = None
    max_removal: float = 0.5
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Terms({self.project!r}, {len(self.typed or ())} messages)"


@dataclass(frozen=True, slots=True)
class OpResult:
    """What became of one op; `was` is the line that it replaced or removed, if it did."""

    op: Op
    outcome: OpOutcome
    reason: str = ""
    was: str = ""

    def __repr__(self) -> str:
        return f"OpResult({self.op.kind!r}, {self.outcome!r}, {self.reason!r})"


@dataclass(frozen=True, slots=True)
class Start:
    """What a pass starts from: the file in shape, and what it is bound to.

    `offloading`: a soft cap was reached in the text that the model saw. `has_secrets`: some text of the
    reply may hold one; most replies hold none, and one look at all of it is enough to know.
    """

    before: str
    terms: Terms
    offloading: bool
    concurrent: Concurrent | None = None
    has_secrets: bool = True

    def __repr__(self) -> str:
        return f"Start({len(self.before)} characters, offloading={self.offloading})"


class Pass:
    """The ops of a reply applied to `start`; with `shrink`, without its adds, moves and splits.

    Lists keep the order in which the ops ran. `topics` are the appends that go with the result.
    """

    def __init__(
        self,
        start: Start,
        ops: Sequence[Op],
        topics: Sequence[TopicAppend],
        *,
        shrink: bool = False,
    ) -> None:
        self.added = self.removed = self.replaced = 0
        self.skipped: list[str] = []
        self.refused: list[Refusal] = []
        self.duplicates: list[str] = []
        self.retired: list[str] = []
        self.gone: list[str] = []
        """Removed lines that are no moves, not retired and no `- None yet.`."""
        self.results: list[OpResult] = []
        self.topics: list[TopicAppend] = []
        self._start = start
        self._shrink = shrink
        self._draft = Draft(start.before)
        self._guard = Guard(start, self._draft)
        self._dropped = {"add": 0, "move": 0, "split": 0, "topic append": 0}
        self._run_ops(ops)
        self._run_topics(topics)

    @property
    def text(self) -> str:
        return self._draft.text()

    @property
    def in_shape(self) -> bool:
        return in_shape(self._draft.outline)

    @property
    def dropped(self) -> str:
        """What a shrinking pass left out: `2 adds, 1 topic append`."""
        return ", ".join(plural(count, word) for word, count in self._dropped.items() if count)

    # ── ops ────────────────────────────────────────────────────────────────────────────────────────

    def _run_ops(self, ops: Sequence[Op]) -> None:
        """Each in its turn; a group in that of its first member."""
        together = groups(ops, self._draft, self._guard)
        for number, op in enumerate(ops):
            group = together.get(number)
            if group is None:
                self._run(op)
            elif number == min(group.members):
                if isinstance(group, Move):
                    self._move(ops[group.add], ops[group.remove])
                elif isinstance(group, Split):
                    self._split(ops[group.source], [ops[piece] for piece in group.pieces])
                else:
                    assert_never(group)

    def _run(self, op: Op) -> None:
        if op.kind == "add":
            self._add(op)
        elif op.kind == "remove":
            self._remove(op)
        elif op.kind == "replace":
            self._replace(op)
        else:
            assert_never(op.kind)

    def _add(self, op: Op, *, is_piece: bool = False) -> None:
        if self._shrink:
            self._drop("add", op)
            return
        bullet = rules.bullet(op.text)
        if fault := self._guard.add_fault(op, bullet):
            self._refuse(op, fault)
        elif self._draft.double(bullet) is not None:
            self._double(op, bullet)
        elif not is_piece and not self._guard.may_add(op):
            self._refuse(op, NO_QUOTE)
        else:
            self._insert(op.section, bullet)
            self.added += 1
            self._note(op, "applied")

    def _remove(self, op: Op, pieces: Sequence[Op] = ()) -> None:
        index = self._locate(op)
        if index is None:
            return
        if fault := self._guard.removal_fault(index):
            self._refuse(op, fault)
        elif self._guard.may_remove(op, index) or self._any_fits(pieces, index):
            self._note(op, "applied", was=self._take(index))
        else:
            self._refuse(op, NO_QUOTE)

    def _replace(self, op: Op) -> None:
        bullet = rules.bullet(op.text)
        if fault := self._guard.text_fault(bullet):
            self._refuse(op, fault)
            return
        index = self._locate(op)
        if index is None:
            return
        if fault := self._guard.line_fault(index):
            self._refuse(op, fault)
        elif bullet == self._draft.lines[index].rstrip():
            self._double(op, bullet)
        elif not self._guard.may_replace(op, index):
            self._refuse(op, NO_QUOTE)
        elif (double := self._draft.double(bullet, but=index)) is not None:
            self._replace_by_double(op, index, bullet, double)
        else:
            was = self._draft.replace(index, bullet)
            self._guard.introduced.add(bullet)
            self.replaced += 1
            self._note(op, "applied", was=was)

    def _replace_by_double(self, op: Op, index: int, bullet: str, double: int) -> None:
        """The new text stands elsewhere already: the named line goes."""
        if fault := self._guard.removal_fault(index):
            self._refuse(op, fault)
        elif not (self._guard.is_critical(double) or self._guard.may_remove(op, index)):
            self._refuse(op, NO_QUOTE)
        else:
            self.duplicates.append(bullet)
            self._note(op, "duplicate", was=self._take(index))

    def _move(self, add: Op, remove: Op) -> None:
        """The old line goes, the new one stands, or neither."""
        if self._shrink:
            self._drop("move", add, remove)
            return
        index = self._locate(remove)
        if index is None:
            self._note(add, "dropped", "the line to move is not in the file")
        elif fault := self._guard.move_fault(add, remove, index):
            self.refused.append(Refusal(add.text, fault, "move"))
            self._note(add, "refused", fault)
            self._note(remove, "refused", fault)
        else:
            was = self._draft.remove(index)
            self._insert(add.section, rules.bullet(add.text))
            self.added += 1
            self.removed += 1
            self._note(add, "moved")
            self._note(remove, "moved", was=was)

    def _split(self, source: Op, pieces: Sequence[Op]) -> None:
        """A rule gives way to pieces of it; where it stays, they need the user's words like any add."""
        if self._shrink:
            self._drop("split", source, *pieces)
            return
        if source.kind == "replace":
            self._replace(source)
        else:
            self._remove(source, pieces)
        gave_way = bool(self.results[-1].was)
        for piece in pieces:
            self._add(piece, is_piece=gave_way)

    def _any_fits(self, pieces: Sequence[Op], index: int) -> bool:
        """Whether a piece will stand under CRITICAL RULES once the line at `index` is gone."""
        for piece in pieces:
            bullet = rules.bullet(piece.text)
            double = self._draft.double(bullet, but=index)
            if not self._guard.add_fault(piece, bullet) and (
                double is None or self._guard.is_critical(double)
            ):
                return True
        return False

    # ── the draft, and keeping account ─────────────────────────────────────────────────────────────

    def _locate(self, op: Op) -> int | None:
        """The line that the op names; where there is none it may touch, the op is skipped."""
        found = self._guard.locate(op)
        if isinstance(found, NotFound):
            self.skipped.append(op.line)
            self._note(op, "skipped", found.why)
            return None
        return found

    def _insert(self, section: str, bullet: str) -> None:
        heading = self._draft.heading(section)
        assert heading is not None  # the guard was asked
        self._draft.insert(heading, bullet)
        self._guard.introduced.add(bullet)

    def _take(self, index: int) -> str:
        critical = self._guard.is_critical(index)
        line = self._draft.remove(index)
        self.removed += 1
        if not is_none_yet(line):
            (self.retired if critical else self.gone).append(line)
        return line

    def _note(self, op: Op, outcome: OpOutcome, reason: str = "", *, was: str = "") -> None:
        self.results.append(OpResult(op, outcome, reason, was))

    def _double(self, op: Op, bullet: str) -> None:
        self.duplicates.append(bullet)
        self._note(op, "duplicate")

    def _refuse(self, op: Op, why: str) -> None:
        self.refused.append(Refusal(op.text or op.line, why, op.kind))
        self._note(op, "refused", why)

    def _drop(self, word: str, *ops: Op) -> None:
        self._dropped[word] += 1
        for op in ops:
            self._note(op, "dropped", "over a cap")

    # ── topics ─────────────────────────────────────────────────────────────────────────────────────

    def _run_topics(self, topics: Sequence[TopicAppend]) -> None:
        for topic in topics:
            fault = appends.fault(topic)
            if fault:
                self.refused.append(Refusal(topic.file, fault, "append to"))
            elif self._shrink and not self._takes_in(topic):
                self._dropped["topic append"] += 1
            else:
                self.topics.append(self._masked(topic) if self._start.has_secrets else topic)
        if self.retired:
            self.topics.append(self._masked(appends.of_retired(self.retired)))
        for file in dict.fromkeys(topic.file for topic in self.topics):
            self._list_topic(file)

    def _takes_in(self, topic: TopicAppend) -> bool:
        kept = appends.Kept((topic,))
        return any(kept.holds(line) for line in (*self.gone, *self.retired))

    def _masked(self, topic: TopicAppend) -> TopicAppend:
        return TopicAppend(topic.file, redact.mask(topic.text, self._start.terms.secrets))

    def _list_topic(self, file: str) -> None:
        if not any(appends.names(line, file) for line in self._draft.body(_TOPICS_KEY)):
            section = next(x for x in self._draft.outline.sections if x.key == _TOPICS_KEY)
            self._draft.insert(section, f"- `{file}`.")


def bullets(text: str) -> int:
    """Bullets of a file, `- None yet.` not counted."""
    return sum(is_bullet(line) and not is_none_yet(line) for line in parse(text).lines)
