"""A session's transcript as the host writes it: its fields, its proportions, words without meaning.

The host writes most of a tool's result twice, and a changed file whole beside the change.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from transcripts import line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = tuple(
    """the test fails since a lock is taken twice and (reader) waits for it; file line 42 call foo.bar()
    return "value" path/config module import error -> state""".split()  # noqa: SIM905  legible
)
FILE_LINES = (20, 600)
"""Least and most lines of a file that is read or changed."""

LARGE_SHARE = 0.05

PATH = "/home/user/project/src/module/component.py"
STAMP = "2026-11-30T19:53:43.042Z"
SESSION = {
    "session_id": "22222222-2222-4222-8222-222222222222",
    "userType": "external",
    "entrypoint": "cli",
    "cwd": "/home/user/project",
    "sessionId": "22222222-2222-4222-8222-222222222222",
    "version": "2.1.332",
    "gitBranch": "main",
}
USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 900,
    "cache_read_input_tokens": 90_000,
    "output_tokens": 200,
    "output_tokens_details": {"thinking_tokens": 0},
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 900},
    "iterations": [],
    "speed": "standard",
}
PARAMS = {
    "model": "claude-x",
    "betas": [f"a-beta-2026-0{n}-01" for n in range(1, 10)],
    "max_tokens": 128_000,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
}
ODD_WORDS = ("größe", "→", "変更")
ODD_SHARE = 0.2
"""How many texts have them: the rest is ASCII, as code mostly is."""


class Host:
    """Writes turns of a session with the fields, and in the proportions, of the host's own rows."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.seed = seed
        self.count = 0
        self.leaf: str | None = None

    def sessions(self, size: int) -> Iterator[bytes]:
        """Lines of about `size` bytes."""
        while size > 0:
            for line in self.turn():
                size -= len(line)
                yield line

    def turn(self) -> Iterator[bytes]:
        """A prompt, tools with results of a few KB, now and then a large one, an answer."""
        prompt = self.id()
        yield self.row(
            "user",
            message={"role": "user", "content": self.words(5, 80)},
            promptId=prompt,
            origin={"kind": "human"},
            promptSource="typed",
            turnOrigin="human",
            permissionMode="default",
        )
        for kind in ("environment", "date", "hook_additional_context"):
            attachment = {"type": kind, "content": [self.words(5, 60)]}
            yield self.row("attachment", attachment=attachment, renderedRole="system")
        for _ in range(self.chosen.randrange(8)):
            yield from self.tool(prompt)
        yield self.model(self.id(), {"type": "text", "text": self.words(20, 200)}, "end_turn")
        yield self.row(
            "system", subtype="stop_hook_summary", hookCount=1, hookInfos=[{"durationMs": 9}]
        )
        yield self.row("system", subtype="turn_duration", durationMs=900, messageCount=self.count)
        yield self.record("last-prompt", lastPrompt="and now?", leafUuid=self.leaf, sessionId="s")
        snapshot = {"messageId": self.id(), "trackedFileBackups": {}, "timestamp": STAMP}
        yield self.record("file-history-snapshot", messageId=self.id(), snapshot=snapshot)

    def tool(self, prompt: str) -> Iterator[bytes]:
        """One request of the model: thinking, a remark, a call; then the call's result."""
        message, call = self.id(), f"toolu_{self.id()}"
        thread = {
            "base": self.id(),
            "keep": 9,
            "tail": [f"{self.chosen.getrandbits(256):064x}"] * 3,
        }
        yield self.record("api-request", id=self.id(), params=PARAMS, **thread)
        signature = f"{self.chosen.getrandbits(4_000):x}"
        thinking = {"type": "thinking", "thinking": self.words(0, 60), "signature": signature}
        yield self.model(message, thinking, "tool_use")
        yield self.model(message, {"type": "text", "text": self.words(5, 40)}, "tool_use")
        name, given, content, result = self.chosen.choice((self.bash, self.read, self.edit))()
        said = {"type": "tool_use", "id": call, "name": name, "input": given}
        yield self.model(message, said, "tool_use")
        block = {"tool_use_id": call, "type": "tool_result", "content": content, "is_error": False}
        yield self.row(
            "user",
            message={"role": "user", "content": [block]},
            promptId=prompt,
            toolUseResult=result,
            sourceToolAssistantUUID=self.leaf,
            permissionDecision={"decision": "accept", "source": "config", "reasonType": "rule"},
        )

    def bash(self) -> tuple[str, Any, str, Any]:
        """Output of some lines, one time in twenty a hundred kilobytes."""
        count = 1_500 if self.chosen.random() < LARGE_SHARE else self.chosen.randrange(60)
        output = self.lines(count)
        given = {"command": self.words(3, 30), "description": self.words(3, 8)}
        return "Bash", given, output, {"stdout": output, "stderr": "", "interrupted": False}

    def read(self) -> tuple[str, Any, str, Any]:
        """A file of some kilobytes with numbered lines, and once more without numbers."""
        text = self.lines(self.chosen.randrange(*FILE_LINES))
        numbered = "\n".join(f"{at}\t{line}" for at, line in enumerate(text.split("\n"), 1))
        file = {"filePath": PATH, "content": text, "numLines": text.count("\n"), "startLine": 1}
        return "Read", {"file_path": PATH}, numbered, {"type": "text", "file": file}

    def edit(self) -> tuple[str, Any, str, Any]:
        """A change of some lines, with the file before it and its difference."""
        old, new = (self.lines(self.chosen.randrange(1, 20)) for _ in range(2))
        given = {"file_path": PATH, "old_string": old, "new_string": new, "replace_all": False}
        patch = [f"-{line}" for line in old.split("\n")] + [f"+{line}" for line in new.split("\n")]
        result = {
            "filePath": PATH,
            "oldString": old,
            "newString": new,
            "originalFile": self.lines(self.chosen.randrange(*FILE_LINES)),
            "structuredPatch": [{"oldStart": 1, "newStart": 1, "lines": patch}],
            "userModified": False,
        }
        return "Edit", given, f"The file {PATH} has been updated.", result

    def model(self, message: str, block: Any, reason: str) -> bytes:
        said: dict[str, Any] = {"id": message, "type": "message", "role": "assistant"}
        said |= {
            "model": "claude-x",
            "content": [block],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": USAGE,
        }
        return self.row(
            "assistant", message=said, requestRef=self.id(), effort="medium", madeBy="model"
        )

    def row(self, type: str, **fields: Any) -> bytes:  # noqa: A002
        uuid = self.id()
        first = {"parentUuid": self.leaf, "isSidechain": False}
        self.leaf = uuid
        return self.record(type, first, **fields, uuid=uuid, timestamp=STAMP, **SESSION)

    def record(self, type: str, first: dict[str, Any] | None = None, /, **fields: Any) -> bytes:  # noqa: A002
        return line_of({**(first or {}), "type": type, **fields}) + b"\n"

    def id(self) -> str:
        self.count += 1
        return f"{self.seed:08x}-{self.count:04x}-4000-8000-{self.chosen.getrandbits(48):012x}"

    def words(self, least: int, most: int) -> str:
        words = self.chosen.choices(WORDS, k=self.chosen.randrange(least, most))
        return " ".join(words if self.chosen.random() > ODD_SHARE else [*words, *ODD_WORDS])

    def lines(self, count: int) -> str:
        """Lines of about sixty characters, indented like code."""
        words = self.words(10 * count + 1, 10 * count + 2).split(" ")
        starts = range(0, len(words), 10)
        return "\n".join("    " * (at % 3) + " ".join(words[at : at + 10]) for at in starts)
