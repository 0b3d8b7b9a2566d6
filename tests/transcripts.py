"""Transcripts made for tests: as rows of the core, and as records that the host writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memoryd.core.transcript import (
    Branch,
    Compaction,
    Reading,
    Row,
    Text,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from memoryd.core.transcript import Block, Who

ROW_SIZE = 100
"""Bytes from one row's offset to the next one's."""


class Rows:
    """Rows of one transcript, each hanging off the one before unless `parent` says otherwise."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.leaf = ""

    def add(self, uuid: str, parent: str | None = None, **fields: Any) -> str:
        offset = len(self.rows) * ROW_SIZE
        row = Row(offset, uuid, self.leaf if parent is None else parent, **fields)
        self.rows.append(row)
        self.leaf = uuid
        return uuid

    def link(self, parent: str | None = None) -> str:
        return self.add(f"link{len(self.rows)}", parent)

    def user(
        self, text: str, who: Who = "human", *, parent: str | None = None, prompt: str = ""
    ) -> str:
        typed = text if who in ("human", "sdk") else ""
        blocks = (Text(text),)
        uuid = f"{who}{len(self.rows)}"
        return self.add(uuid, parent, author=who, blocks=blocks, typed=typed, prompt=prompt)

    def model(self, *blocks: Block | str, message: str = "", parent: str | None = None) -> str:
        """One row per block, as the host writes them."""
        message = message or f"m{len(self.rows)}"
        for block in blocks:
            said = Text(block) if isinstance(block, str) else block
            uuid = f"model{len(self.rows)}"
            self.add(uuid, parent, author="assistant", blocks=(said,), message=message)
            parent = None
        return self.leaf

    def call(self, id: str, name: str = "Bash", given: str = "command: ls", **where: str) -> str:  # noqa: A002
        return self.model(ToolCall(id, name, given), **where)

    def result(self, id: str, text: str = "done", *, parent: str | None = None) -> str:  # noqa: A002
        blocks = (ToolResult(id, text, error=False),)
        return self.add(f"result{len(self.rows)}", parent, author="tool", blocks=blocks)

    def compaction(self, summary: str = "all before", **fields: Any) -> str:
        previous = self.leaf
        uuid = f"boundary{len(self.rows)}"
        self.add(uuid, "", compaction=Compaction(previous, **fields))
        return self.user(summary, "summary")

    def branch(self) -> Branch:
        branch = Branch()
        for row in self.rows:
            branch.add(row)
        return branch

    def reading(self, since: int = 0) -> Reading:
        return self.branch().reading(since=since, end=self.end)

    @property
    def end(self) -> int:
        return len(self.rows) * ROW_SIZE


def said(reading: Reading) -> list[str]:
    """What stands in each message, by its author: `human: text`, `assistant: text, Bash()`."""
    return [
        f"{message.author}: {', '.join(map(_spoken, message.blocks))}"
        for message in reading.conversation.messages
    ]


def _spoken(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case ToolCall(_, name):
            return f"{name}()"
        case ToolResult(_, text, error):
            return f"error {text}" if error else f"-> {text}"
        case _:
            return f"[{block.kind}]"


class Records:
    """JSON records of one transcript, with the fields that the host writes."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.leaf: str | None = None

    def add(self, type: str, parent: str | None = None, **fields: Any) -> str:  # noqa: A002
        uuid = f"{type}-{len(self.records):04d}"
        record = {
            "parentUuid": parent or self.leaf,
            "isSidechain": False,
            "type": type,
            "uuid": uuid,
            "sessionId": "s",
            **fields,
        }
        self.records.append(record)
        if not record["isSidechain"]:
            self.leaf = uuid
        return uuid

    def other(self, type: str, **fields: Any) -> None:  # noqa: A002
        """A record without a uuid, such as `last-prompt`."""
        self.records.append({"type": type, **fields})

    def user(self, content: Any, parent: str | None = None, **marks: Any) -> str:
        return self.add("user", parent, message={"role": "user", "content": content}, **marks)

    def human(self, text: str, parent: str | None = None, **marks: Any) -> str:
        marks = {"origin": {"kind": "human"}, "promptSource": "typed", **marks}
        return self.user(text, parent, **marks)

    def model(self, *content: Any, id: str = "", parent: str | None = None, **marks: Any) -> str:  # noqa: A002
        id = id or f"msg-{len(self.records)}"  # noqa: A001
        for block in content:
            said = {"type": "text", "text": block} if isinstance(block, str) else block
            message = {"id": id, "role": "assistant", "model": "claude-x", "content": [said]}
            self.add("assistant", parent, message=message, **marks)
            parent = None
        return str(self.leaf)

    def call(self, id: str, name: str = "Bash", parent: str | None = None, **given: Any) -> str:  # noqa: A002
        return self.model(
            {"type": "tool_use", "id": id, "name": name, "input": given}, parent=parent
        )

    def result(self, id: str, content: Any = "done", parent: str | None = None, **more: Any) -> str:  # noqa: A002
        block = {"type": "tool_result", "tool_use_id": id, "content": content, **more}
        # the host writes most results twice
        return self.user([block], parent, toolUseResult={"stdout": content})

    def boundary(self, **metadata: Any) -> str:
        previous, self.leaf = self.leaf, None
        return self.add(
            "system",
            subtype="compact_boundary",
            logicalParentUuid=previous,
            compactMetadata={"trigger": "auto", **metadata},
        )

    def compaction(self, summary: str = "all before", **metadata: Any) -> str:
        self.boundary(**metadata)
        return self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    @property
    def lines(self) -> list[bytes]:
        return [line_of(record) for record in self.records]

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)


def line_of(record: Any) -> bytes:
    """The record as the host writes it, without the newline."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
