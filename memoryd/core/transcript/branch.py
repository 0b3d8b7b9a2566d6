"""Which rows of a transcript are the live branch.

All rules of the tree on top, once:

- A row hangs off its `parent`. The branch is the walk of parents from the last row of the file; an
  earlier row that a rewind names as its leaf replaces it until the next row.
- A compaction's boundary is a root. Rows that it preserved hang behind its anchor, in the order it lists;
  what hung behind the anchor hangs behind them. All else of before is gone: a later row that names one as
  its parent hangs behind the preserved rows, or behind the row before it in the file.
- A rewind may go past a compaction. It differs from the odd order of a compaction by the mark that the
  host writes behind the new row; then the old rows live again.
- A parent that is missing before the row (damage) is replaced by the row before in the file.
- Rows of one message of the model, and the results of its calls, belong together wherever they hang, as
  long as they stand before the next turn: a turn that has ended never changes.
- A session that is open twice grows two branches by turns. It differs from a rewind by a row that goes on
  with the older branch; from then on the turns of both are read, in the order of the file.

It must not know files or what a row's text says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memoryd.core.transcript.assembly import build, speaks, split, starts_turn
from memoryd.core.transcript.conversation import Activity, Conversation, Reading, Turn
from memoryd.core.transcript.rows import Rewind
from memoryd.core.transcript.store import NOWHERE, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memoryd.core.transcript.rows import Compaction, Row

_STRAGGLERS = frozenset({None, "tool", "meta", "interrupt"})
"""Authors of rows that may still come for a branch after it was rewound, without reviving it."""

OUTDATED_ROWS = 1_000
"""Fewer rows of before a compaction are not worth reading a transcript anew."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row that the branch needs, and that stands before the first one that was handed over."""

    uuid: str
    whole: bool
    """All that leads to it is needed too."""


class Branch:
    """The rows of one transcript's main session: add them in file order, then take readings."""

    def __init__(self) -> None:
        self._store = Store()
        self._leaf = NOWHERE
        self._tip = NOWHERE
        """The last row of the file."""
        self._jumped = ""
        """The last row that did not hang off the tip; the tip that it left is `_left`."""
        self._left = NOWHERE
        self._rewound: set[str] = set()
        self._dead: set[str] = set()
        """Rows that a rewind left behind."""
        self._streams: list[int] = []
        """Ends of branches that live beside the one of the leaf."""
        self._boundary = NOWHERE
        self._kept: tuple[str, ...] = ()
        """What the last boundary preserved."""
        self._links: dict[str, str] = {}
        self._tails: dict[str, str] = {}
        self._missing_kept = ""
        self._missing_parent = ""
        self._given_up: set[str] = set()
        self._turns: list[Turn] = []
        self._starts: dict[str, int] = {}
        self._root = NOWHERE

    def add(self, event: Row | Rewind) -> None:
        """What the file says next; a double of an earlier row changes nothing."""
        if isinstance(event, Rewind):
            self._rewind(event.leaf)
            return
        index = self._store.add(event)
        if index == NOWHERE or event.passing:
            return
        if self._dead and event.parent in self._dead and event.author in _STRAGGLERS:
            self._dead.add(event.uuid)
            return
        parent = self._store.up(index)
        forks = parent != NOWHERE and self._store.adopt(parent)
        if event.compaction is not None:
            self._compact(index, event.compaction)
        elif parent != self._tip:
            self._note_jump(index, forks=forks)
        elif event.author == "assistant":
            self._jumped = ""
        self._tip = self._leaf = index

    def reading(self, *, since: int, end: int) -> Reading:
        """The branch as it is now; activity counts from the offset `since`."""
        self._build_turns()
        earlier = self._turns_before_compaction(since)
        recent = [*earlier, *_ending_from(self._turns, since)]
        return Reading(
            conversation=Conversation(tuple(self._turns)),
            activity=Activity(
                prompts=sum(turn.asked and turn.start >= since for turn in recent),
                tools=sum(turn.tools_since(since) for turn in recent),
                interrupted=_ends_interrupted(self._turns),
            ),
            end=end,
            leaf=self._store[self._end()].uuid if self._leaf != NOWHERE else "",
            earlier=tuple(turn.typed for turn in earlier if turn.typed),
        )

    @property
    def wanted(self) -> Wanted | None:
        """What the last reading missed: build a branch of more rows, or `give_up`."""
        for uuid, whole in ((self._missing_parent, True), (self._missing_kept, False)):
            if uuid and uuid not in self._given_up:
                return Wanted(uuid, whole=whole)
        return None

    def give_up(self, wanted: Wanted) -> None:
        """`wanted` is not to be had: do without it from now on."""
        self._given_up.add(wanted.uuid)

    def outdated(self, since: int) -> bool:
        """Whether most rows are of before the compaction, and no reading from `since` on needs them."""
        gone = self._root - len(self._kept)
        return (
            gone >= max(OUTDATED_ROWS, len(self._store) // 2)
            and self._store[self._root - 1].offset < since
        )

    # ── the tree ───────────────────────────────────────────────────────────────────────────────────

    def _parent(self, index: int) -> int:
        """Where the row at `index` hangs; NOWHERE for a root."""
        at = self._store.up(index)
        row = self._store[index]
        if self._links and (name := self._links.get(row.uuid) or self._tails.get(row.parent)):
            return self._store.at(name)
        if at != NOWHERE and not at < self._boundary <= index:
            return at
        return self._odd_parent(index, row, at)

    def _odd_parent(self, index: int, row: Row, at: int) -> int:
        """The same for a row whose parent is gone, missing or none."""
        if row.uuid in self._rewound:
            if at == NOWHERE:
                self._missing_parent = row.parent
            return at
        if row.compaction is not None or not row.parent:
            return NOWHERE
        if at == NOWHERE:
            return self._store.previous(index)
        if row.parent in self._kept:
            return at
        return self._store.at(self._kept[-1]) if self._kept else self._store.previous(index)

    def _walk(self, index: int) -> list[int]:
        """The rows from a root, or from the start of a turn that is built, to the one at `index`."""
        path: list[int] = []
        while index != NOWHERE and len(path) <= len(self._store):
            path.append(index)
            if self._starts and self._store[index].uuid in self._starts:
                break
            index = self._parent(index)
        path.reverse()
        return path

    def _compact(self, index: int, compaction: Compaction) -> None:
        names = self._preserved(compaction)
        self._missing_kept = names[0] if names and self._store.at(names[0]) == NOWHERE else ""
        names = [name for name in names if self._store.at(name) != NOWHERE]
        for name, before in zip(names, (compaction.anchor, *names), strict=False):
            self._links[name] = before
        if names:
            self._tails[compaction.anchor] = names[-1]
        self._kept = tuple(names)
        self._boundary = index
        self._streams.clear()
        self._forget_turns()

    def _preserved(self, compaction: Compaction) -> list[str]:
        if compaction.preserved or not compaction.head:
            return list(compaction.preserved)
        if self._store.at(compaction.head) == NOWHERE:
            return [compaction.head]
        names = [compaction.tail]
        while names[-1] != compaction.head:
            at = self._store.at(names[-1])
            if at == NOWHERE or len(names) > len(self._store):
                return []
            names.append(self._store[at].parent)
        names.reverse()
        return names

    # ── rewinds, and sessions that are open twice ──────────────────────────────────────────────────

    def _rewind(self, leaf: str) -> None:
        if self._jumped:
            self._rewound.add(self._jumped)
            self._abandon(self._left)
            self._forget_turns()
            lives = set(self._walk(self._store.at(self._jumped)))
            left = (at for at in self._walk(self._left) if at not in lives)
            self._dead.update(self._store[at].uuid for at in left)
        known = self._store.at(leaf)
        if known != NOWHERE:
            self._leaf = known
        self._forget_turns()

    def _note_jump(self, index: int, *, forks: bool) -> None:
        """`forks`: the row's parent had a child before."""
        row = self._store[index]
        parent = self._store.up(index)
        while parent != NOWHERE and self._store[parent].passing:
            parent = self._store.up(parent)
        if parent == self._tip or self._store.same_message(index, self._tip):
            return
        self._jumped = row.uuid
        self._left = self._tip
        if parent == NOWHERE:
            return
        if forks and row.author not in ("assistant", "tool"):
            self._abandon(self._tip)
        else:
            self._streams.append(self._tip)

    def _abandon(self, tip: int) -> None:
        """No branch that ends between the root and `tip` lives on."""
        if self._streams:
            self._forget_turns()
            dead = set(self._walk(tip))
            self._streams = [end for end in self._streams if end not in dead]

    def _stream(self, end: int, path: set[int]) -> tuple[int, list[int]]:
        """The speaking row of `path` behind which the branch up to `end` forks, and its own rows."""
        rows: list[int] = []
        while end != NOWHERE and end not in path:
            path.add(end)
            rows.append(end)
            end = self._parent(end)
        while end != NOWHERE and not speaks(self._store[end]):
            end = self._parent(end)
        rows.reverse()
        return end, rows

    # ── turns ──────────────────────────────────────────────────────────────────────────────────────

    def _build_turns(self) -> None:
        """Turns of before the first changed one stay as they are: a reading costs what is new."""
        if self._streams:
            self._forget_turns()
        missing, self._missing_parent = self._missing_parent, ""
        path = self._walk(self._end())
        if not path:
            return
        keep = self._starts.get(self._store[path[0]].uuid, NOWHERE)
        if keep == NOWHERE:
            self._forget_turns()
            self._root, keep = path[0], 0
        else:
            self._missing_parent = missing
        groups = split(self._store, path)
        known = set(path)
        for end in self._streams:
            fork, rows = self._stream(end, known)
            _weave(self._store, groups, fork, split(self._store, rows))
        for turn in self._turns[keep:]:
            del self._starts[turn.rows[0].uuid]
        del self._turns[keep:]
        self._turns += build(self._store, groups, self._turns[-1].prompt if keep else "")
        for place in range(keep, len(self._turns)):
            self._starts[self._turns[place].rows[0].uuid] = place

    def _end(self) -> int:
        """The leaf, or where it is an anchor, the last of the rows that hang behind it."""
        if self._leaf == NOWHERE:
            return NOWHERE
        tail = self._tails.get(self._store[self._leaf].uuid, "")
        return self._store.at(tail) if tail else self._leaf

    def _forget_turns(self) -> None:
        self._turns.clear()
        self._starts.clear()
        self._root = NOWHERE

    def _turns_before_compaction(self, since: int) -> list[Turn]:
        """What was live until the compaction that the branch starts with, from the offset `since` on."""
        if self._root == NOWHERE or self._store[self._root].compaction is None:
            return []
        path: list[int] = []
        at = self._before(self._root)
        while at != NOWHERE and self._store[at].offset >= since and len(path) <= len(self._store):
            if self._store[at].uuid not in self._kept:
                path.append(at)
            at = self._before(at)
        path.reverse()
        return build(self._store, split(self._store, path), "") if path else []

    def _before(self, index: int) -> int:
        """The row before on the branch, over compactions."""
        row = self._store[index]
        at = self._store.at(row.compaction.previous if row.compaction else row.parent)
        return at if at != NOWHERE else self._store.previous(index)


def _weave(store: Store, groups: list[list[int]], fork: int, parts: list[list[int]]) -> None:
    """Put the turns `parts` of another branch among those of the first, in the order of the file.

    Rows with which the other branch only goes on belong to the turn of the row that it forks from.
    """
    place = next((place for place, group in enumerate(groups) if fork in group), NOWHERE)
    for part in parts:
        if place != NOWHERE and not starts_turn(store[part[0]]):
            groups[place] += part
            continue
        later = (at for at in range(place + 1, len(groups)) if groups[at][0] > part[0])
        groups.insert(next(later, len(groups)), part)


def _ending_from(turns: list[Turn], since: int) -> Iterator[Turn]:
    for turn in reversed(turns):
        if max(turn.start, turn.rows[-1].offset) < since:
            return
        yield turn


def _ends_interrupted(turns: list[Turn]) -> bool:
    return bool(turns) and turns[-1].rows[-1].author == "interrupt"
