"""The rows of one transcript in file order, and how to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.transcript.rows import ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memoryd.core.transcript.rows import Row

NOWHERE = -1
"""The index of no row."""


class Store:
    """Rows by index; an index is also a row's place in the file."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._at: dict[str, int] = {}
        self._up: list[int] = []
        self._parents: set[str] = set()
        self._messages: dict[str, list[int]] = {}
        self._results: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def add(self, row: Row) -> int:
        """Its index, or NOWHERE where it has no uuid or is a double."""
        if not row.uuid or row.uuid in self._at:
            return NOWHERE
        index = len(self._rows)
        self._rows.append(row)
        self._up.append(self._at.get(row.parent, NOWHERE))
        self._at[row.uuid] = index
        self._parents.add(row.parent)
        if row.author == "assistant" and row.message:
            self._messages.setdefault(row.message, []).append(index)
        elif row.author == "tool":
            for block in row.blocks:
                if isinstance(block, ToolResult):
                    self._results.setdefault(block.id, index)
        return index

    def at(self, uuid: str) -> int:
        """The index of the row `uuid`, or NOWHERE."""
        return self._at.get(uuid, NOWHERE)

    def up(self, index: int) -> int:
        """The row that the one at `index` names as its parent, NOWHERE if it is not before it."""
        return self._up[index]

    def is_parent(self, uuid: str) -> bool:
        """Whether a row hangs off the row `uuid`."""
        return uuid in self._parents

    def of_message(self, index: int, first: int, before: int) -> list[int]:
        """The rows between `first` and `before` of the message that the row at `index` is one of."""
        together = self._messages.get(self._rows[index].message, [index])
        return [at for at in together if first <= at < before or at == index]

    def result(self, call: str, before: int) -> ToolResult | None:
        """The result of a tool call, where it stands before the row `before`."""
        at = self._results.get(call, NOWHERE)
        if not 0 <= at < before:
            return None
        return next(
            block
            for block in self._rows[at].blocks
            if isinstance(block, ToolResult) and block.id == call
        )

    def same_message(self, one: int, other: int) -> bool:
        """Whether both are rows of one message of the model, or answer calls of it."""
        family = self._family(one)
        return bool(family) and family == self._family(other)

    def previous(self, index: int) -> int:
        """The row before it in the file that a branch may end with, or NOWHERE."""
        index -= 1
        while index >= 0 and self._rows[index].passing:
            index -= 1
        return index

    def _family(self, index: int) -> str:
        row = self._rows[index]
        if row.author != "tool":
            return row.message
        parent = self.at(row.parent)
        return self._rows[parent].message if parent != NOWHERE else ""
