"""One pass of a reply's ops over a memory file: each applied, or left out with its reason.

Owns what an op may touch. The caps and the decision to write are `edit`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from memoryd.core import redact
from memoryd.core.memory import appends, rules
from memoryd.core.memory.document import (
    CRITICAL,
    SECTION_LEVEL,
    TOPICS,
    is_bullet,
    is_none_yet,
    is_title,
)
from memoryd.core.memory.draft import Draft, NotFound
from memoryd.core.memory.reply import Op, Refusal, TopicAppend
from memoryd.core.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memoryd.core.memory.document import Heading
    from memoryd.core.memory.merge import Concurrent

NO_QUOTE = "touches CRITICAL RULES without words that the user typed"

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
    """What became of one op; `was` is the line that it replaced or removed."""

    op: Op
    outcome: OpOutcome
    reason: str = ""
    was: str = ""

    def __repr__(self) -> str:
        return f"OpResult({self.op.kind!r}, {self.outcome!r}, {self.reason!r})"


@dataclass(frozen=True, slots=True)
class Start:
    """What a pass starts from: the file in shape, and what it is bound to.

    `offloading`: a soft cap was reached in the text that the model saw.
    """

    before: str
    terms: Terms
    offloading: bool
    concurrent: Concurrent | None = None

    def __repr__(self) -> str:
        return f"Start({len(self.before)} characters, offloading={self.offloading})"


class Pass:
    """The ops of a reply applied to `start`; with `shrink`, without its adds and moves.

    Lists keep the order of the reply. `topics` are the appends that go with the result.
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
        self._ops = ops
        self._draft = Draft(start.before)
        self._introduced: set[str] = set()
        self._dropped = {"add": 0, "move": 0, "topic append": 0}
        self._split_sources = self._lines_to_split()
        self._run_ops()
        self._run_topics(topics)

    @property
    def text(self) -> str:
        return self._draft.text()

    @property
    def dropped(self) -> str:
        """What a shrinking pass left out: `2 adds, 1 topic append`."""
        return ", ".join(plural(count, word) for word, count in self._dropped.items() if count)

    def takes_in(self, append: TopicAppend) -> bool:
        """Whether a topic append holds one of the removed lines."""
        return any(appends.holds(append, line) for line in (*self.gone, *self.retired))

    # ── ops ────────────────────────────────────────────────────────────────────────────────────────

    def _run_ops(self) -> None:
        moves = dict(_moves(self._ops))
        partners = set(moves.values())
        for number, op in enumerate(self._ops):
            if number in moves:
                self._move(op, self._ops[moves[number]])
            elif number in partners:
                continue
            elif op.kind == "add":
                self._add(op)
            elif op.kind == "remove":
                self._remove(op)
            elif op.kind == "replace":
                self._replace(op)
            else:
                assert_never(op.kind)

    def _add(self, op: Op) -> None:
        if self._shrink:
            self._drop("add", op)
            return
        bullet = rules.bullet(op.text)
        heading = self._draft.heading(op.section)
        if fault := rules.text_fault(bullet, self._start.terms.secrets):
            self._refuse(op, fault)
        elif heading is None:
            self._refuse(op, _unknown(op.section))
        elif self._draft.holds(bullet):
            self._double(op, bullet)
        elif self._is_critical(heading.at) and not self._may_add(op, bullet):
            self._refuse(op, NO_QUOTE)
        elif self._start.concurrent and self._start.concurrent.removed_by_user(bullet):
            self._refuse(op, "the user removed it during the save")
        else:
            self._insert(heading, bullet)
            self.added += 1
            self._note(op, "applied")

    def _remove(self, op: Op) -> None:
        index = self._locate(op)
        if index is None:
            return
        if fault := self._removal_fault(index):
            self._refuse(op, fault)
        elif self._is_critical(index) and not self._may_remove(op, index):
            self._refuse(op, NO_QUOTE)
        else:
            self._note(op, "applied", was=self._take(index))

    def _replace(self, op: Op) -> None:
        bullet = rules.bullet(op.text)
        if fault := rules.text_fault(bullet, self._start.terms.secrets):
            self._refuse(op, fault)
            return
        index = self._locate(op)
        if index is None:
            return
        old = self._draft.lines[index].rstrip()
        if fault := self._line_fault(index):
            self._refuse(op, fault)
        elif bullet == old:
            self._double(op, bullet)
        elif self._is_critical(index) and not self._may_replace(op, bullet, old):
            self._refuse(op, NO_QUOTE)
        elif self._start.concurrent and self._start.concurrent.removed_by_user(bullet):
            self._refuse(op, "the user removed it during the save")
        elif self._draft.holds(bullet, but=index):
            self._replace_by_double(op, index, bullet)
        else:
            was = self._draft.replace(index, bullet)
            self._introduced.add(bullet)
            self.replaced += 1
            self._note(op, "applied", was=was)

    def _replace_by_double(self, op: Op, index: int, bullet: str) -> None:
        """The new text stands elsewhere already: the named line goes."""
        if fault := self._removal_fault(index):
            self._refuse(op, fault)
        else:
            self.duplicates.append(bullet)
            self._note(op, "duplicate", was=self._take(index))

    def _move(self, first: Op, second: Op) -> None:
        """An add and a remove of one text: the old line goes, the new one stands, or neither."""
        add, remove = (first, second) if first.kind == "add" else (second, first)
        if self._shrink:
            self._drop("move", add, remove)
            return
        bullet = rules.bullet(add.text)
        heading = self._draft.heading(add.section)
        index = self._locate(remove)
        if index is None:
            self._note(add, "dropped", "the line to move is not in the file")
        elif fault := rules.text_fault(bullet, self._start.terms.secrets):
            self._refuse_move(add, remove, fault)
        elif heading is None:
            self._refuse_move(add, remove, _unknown(add.section))
        elif fault := self._removal_fault(index) or self._leaving_fault(
            add, remove, index, heading
        ):
            self._refuse_move(add, remove, fault)
        else:
            was = self._draft.remove(index)
            target = self._draft.heading(add.section)
            assert target is not None  # a move takes no heading out
            self._insert(target, bullet)
            self.added += 1
            self.removed += 1
            self._note(add, "moved")
            self._note(remove, "moved", was=was)

    # ── what an op may touch ───────────────────────────────────────────────────────────────────────

    def _locate(self, op: Op) -> int | None:
        """The line that the op names; where there is none it may touch, the op is skipped."""
        found = self._draft.find(op.line)
        if isinstance(found, NotFound):
            self._skip(op, found.why)
            return None
        line = self._draft.lines[found].rstrip()
        concurrent = self._start.concurrent
        if concurrent and line not in self._introduced and not concurrent.untouched(line):
            self._skip(op, "changed during the save")
            return None
        return found

    def _line_fault(self, index: int) -> str:
        line = self._draft.lines[index].rstrip()
        outline = self._draft.outline
        if index in outline.fences:
            return "one line of a code fence"
        if index in outline.fenced:
            return ""
        heading = next((found for found in outline.headings if found.at == index), None)
        if is_title(line) or (heading and heading.level == SECTION_LEVEL):
            return "a heading of level 1 or 2 stays"
        return ""

    def _removal_fault(self, index: int) -> str:
        if fault := self._line_fault(index):
            return fault
        if self._start.offloading and self._is_critical(index):
            return "at a soft cap no line of CRITICAL RULES is removed, shorten it by replace"
        return ""

    def _leaving_fault(self, add: Op, remove: Op, index: int, heading: Heading) -> str:
        """Moving a line into CRITICAL RULES or within needs no quote; out of them does."""
        if not self._is_critical(index) or self._is_critical(heading.at):
            return ""
        return "" if self._quoted(add) or self._quoted(remove) else NO_QUOTE

    def _may_add(self, op: Op, bullet: str) -> bool:
        return self._quoted(op) or any(
            rules.ordered_part(bullet, line) for line in self._split_sources
        )

    def _may_remove(self, op: Op, index: int) -> bool:
        line = self._draft.lines[index]
        if self._quoted(op) or is_none_yet(line):
            return True
        pieces = [
            piece.text
            for piece in self._ops
            if piece.kind == "add"
            and self._adds_critical(piece)
            and rules.ordered_part(piece.text, line)
        ]
        return rules.covered(line, pieces)

    def _may_replace(self, op: Op, bullet: str, old: str) -> bool:
        return self._quoted(op) or is_none_yet(old) or rules.ordered_part(bullet, old)

    def _quoted(self, op: Op) -> bool:
        typed = self._start.terms.typed
        return typed is None or rules.quoted(op.because, typed)

    def _is_critical(self, index: int) -> bool:
        return self._draft.section(index) == CRITICAL.casefold()

    def _adds_critical(self, op: Op) -> bool:
        heading = self._draft.heading(op.section)
        return heading is not None and self._is_critical(heading.at)

    def _lines_to_split(self) -> list[str]:
        """Lines under CRITICAL RULES that the reply removes or replaces: pieces of them may be added."""
        found = (self._draft.find(op.line) for op in self._ops if op.kind != "add")
        indices = [index for index in found if isinstance(index, int) and self._is_critical(index)]
        return [self._draft.lines[index] for index in indices]

    # ── keeping account ────────────────────────────────────────────────────────────────────────────

    def _insert(self, heading: Heading, bullet: str) -> None:
        self._draft.insert(heading, bullet)
        self._introduced.add(bullet)

    def _take(self, index: int) -> str:
        critical = self._is_critical(index)
        line = self._draft.remove(index)
        self.removed += 1
        if not is_none_yet(line):
            (self.retired if critical else self.gone).append(line)
        return line

    def _note(self, op: Op, outcome: OpOutcome, reason: str = "", *, was: str = "") -> None:
        self.results.append(OpResult(op, outcome, reason, was))

    def _skip(self, op: Op, reason: str) -> None:
        self.skipped.append(op.line)
        self._note(op, "skipped", reason)

    def _double(self, op: Op, bullet: str) -> None:
        self.duplicates.append(bullet)
        self._note(op, "duplicate")

    def _refuse(self, op: Op, why: str) -> None:
        self.refused.append(Refusal(op.text or op.line, why, op.kind))
        self._note(op, "refused", why)

    def _refuse_move(self, add: Op, remove: Op, why: str) -> None:
        self.refused.append(Refusal(add.text, why, "move"))
        self._note(add, "refused", why)
        self._note(remove, "refused", why)

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
            elif self._shrink and not self.takes_in(topic):
                self._dropped["topic append"] += 1
            else:
                self.topics.append(self._masked(topic.file, topic.text))
        if self.retired:
            retired = appends.of_retired(self.retired)
            self.topics.append(self._masked(retired.file, retired.text))
        for file in dict.fromkeys(topic.file for topic in self.topics):
            self._list_topic(file)

    def _masked(self, file: str, text: str) -> TopicAppend:
        return TopicAppend(file, redact.mask(text, self._start.terms.secrets))

    def _list_topic(self, file: str) -> None:
        heading = self._draft.heading(TOPICS)
        assert heading is not None  # the file is in shape
        listed = (
            line
            for index, line in enumerate(self._draft.lines)
            if self._draft.section(index) == heading.key and index > heading.at
        )
        if not any(appends.names(line, file) for line in listed):
            self._insert(heading, f"- `{file}`.")


def bullets(text: str) -> int:
    """Bullets of a file, `- None yet.` not counted."""
    return sum(is_bullet(line) and not is_none_yet(line) for line in Draft(text).lines)


def _moves(ops: Sequence[Op]) -> Iterator[tuple[int, int]]:
    """Pairs of an add and a remove of one text: the earlier op's number, then the later's."""
    waiting: dict[tuple[str, str], list[int]] = {}
    for number, op in enumerate(ops):
        if op.kind == "replace":
            continue
        other = "remove" if op.kind == "add" else "add"
        text = rules.key(op.text if op.kind == "add" else op.line)
        if partners := waiting.get((other, text)):
            yield partners.pop(0), number
        else:
            waiting.setdefault((op.kind, text), []).append(number)


def _unknown(section: str) -> str:
    return f"no heading “{section.strip()}” in the file"
