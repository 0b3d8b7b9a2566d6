"""The rows of one transcript in file order, and how to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoryd.core.transcript.rows import ToolResult

if TYPE_CHECKING:
    from memoryd.core.transcript.rows import Row

NOWHERE = -1
"""The index of no row."""


class Store:
    """Rows by index; an index is also a row's place in the file."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._up: list[int] = []
        self._has_children: list[bool] = []
        self._at: dict[str, int] = {}
        self._messages: dict[str, list[int]] = {}
        self._results: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    def add(self, row: Row) -> int:
        """Its index, or NOWHERE where it has no uuid or is a double."""
        index = len(self._rows)
        up = self._at.get(row.parent, NOWHERE)
        if not row.uuid or self._at.setdefault(row.uuid, index) != index:
            return NOWHERE
        self._rows.append(row)
        self._up.append(up)
        self._has_children.append(False)
        if row.author == "assistant":
            if row.message:
                self._messages.setdefault(row.message, []).append(index)
        elif row.author == "tool":
            for block in row.blocks:
                if isinstance(block, ToolResult):
                    self._results.setdefault(block.id, index)
        return index

    def adopt(self, parent: int) -> bool:
        """Note that a row hangs off the one at `parent`; whether one did before."""
        before = self._has_children[parent]
        self._has_children[parent] = True
        return before

    def at(self, uuid: str) -> int:
        """The index of the row `uuid`, or NOWHERE."""
        return self._at.get(uuid, NOWHERE)

    def up(self, index: int) -> int:
        """The row that the one at `index` names as its parent, NOWHERE if it is not before it."""
        return self._up[index]

    def of_message(self, index: int) -> list[int]:
        """The rows of the message of the model that the row at `index` is one of, in order."""
        return self._messages.get(self._rows[index].message) or [index]

    def result(self, call: str) -> int:
        """The row with the result of a tool call, or NOWHERE."""
        return self._results.get(call, NOWHERE)

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
