"""What the scripted Messages API was asked, and what it is to answer.

Owns the values that a test or the demo works with; knows nothing of HTTP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from threading import Event

    JsonObject = Mapping[str, Any]

HOLD_LIMIT = 60.0
"""Seconds after which an answer that waits for an event is given all the same."""

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


# ── what is asked ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes

    def __repr__(self) -> str:
        return f"Call({self.method} {self.path}, {len(self.data)} bytes)"

    @property
    def body(self) -> JsonObject:
        """The JSON object of the body; empty where there is none."""
        try:
            found = json.loads(self.data)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def is_messages(self) -> bool:
        """Whether an answer of a model was asked for."""
        return self.method == "POST" and self.path.partition("?")[0] == "/v1/messages"

    @property
    def texts(self) -> list[str]:
        """All texts of the messages in order, tool results included."""
        return [text for message in self.body.get("messages", []) for text in _texts(message)]

    @property
    def new_texts(self) -> list[str]:
        """The texts since the model's last answer: a prompt or tool results, and what was injected."""
        texts: list[str] = []
        for message in self.body.get("messages", []):
            texts = [] if message.get("role") == "assistant" else [*texts, *_texts(message)]
        return texts

    @property
    def system(self) -> str:
        """The system prompt, its blocks joined by a blank line."""
        return "\n\n".join(_texts({"content": self.body.get("system", "")}))

    def holds(self, text: str) -> bool:
        """Whether some text of the messages contains `text`."""
        return any(text in found for found in self.texts)


# ── what is answered ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Text:
    """A text block of an answer."""

    text: str

    def __repr__(self) -> str:
        return f"Text({len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of an answer; `input` is a JSON object."""

    name: str
    input: JsonObject

    def __repr__(self) -> str:
        return f"ToolUse({self.name!r})"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The usage that an answer reports."""

    input: int = 10
    cache_read: int = 0
    cache_write: int = 0
    output: int = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of the model."""

    blocks: tuple[Text | ToolUse, ...]
    stop_reason: StopReason = "end_turn"
    tokens: Tokens = field(default_factory=Tokens)
    hold: Event | None = None
    """Wait for this (at most HOLD_LIMIT) before the answer begins."""
    hold_inside: Event | None = None
    """Streamed: wait for this after the blocks and before the end, with the text already shown."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error with the API's body; `retry_after` is seconds, empty for no such header."""

    status: int
    type: str = "api_error"
    message: str = "scripted failure"
    retry_after: str = ""
    hold: Event | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer: the connection stays open until the server closes."""


Reply = Answer | Failure | Hang


def text(words: str, *, stop_reason: StopReason = "end_turn", hold: Event | None = None) -> Answer:
    """An answer of one text block."""
    return Answer((Text(words),), stop_reason=stop_reason, hold=hold)


def tool(name: str, **arguments: Any) -> Answer:  # noqa: ANN401  a tool's input has any shape
    """An answer that calls one tool."""
    return Answer((ToolUse(name, arguments),), stop_reason="tool_use")


class Script:
    """Replies by rule: the first rule that fits gives its replies in turn, its last one for ever.

    A rule's `when` is a text that came since the model's last answer, or a function of the call. A call
    that no rule fits, such as the client's request for a title, gets `otherwise`.
    """

    def __init__(self, otherwise: Reply | None = None) -> None:
        self._otherwise = otherwise or text("ok")
        self._rules: list[tuple[Callable[[Call], bool], list[Reply]]] = []

    def on(self, when: str | Callable[[Call], bool], *replies: Reply) -> Self:
        """Add a rule, after those that stand already; returns the script."""
        fits = when if callable(when) else _new_holds(when)
        self._rules.append((fits, list(replies)))
        return self

    def __call__(self, call: Call) -> Reply:
        for fits, replies in self._rules:
            if fits(call):
                return replies.pop(0) if len(replies) > 1 else replies[0]
        return self._otherwise


def _texts(message: JsonObject) -> Iterator[str]:
    content = message.get("content", "")
    if isinstance(content, str):
        yield content
        return
    for block in content:
        if isinstance(block.get("text"), str):
            yield block["text"]
        elif block.get("type") == "tool_result":
            yield from _texts(block)


def _new_holds(words: str) -> Callable[[Call], bool]:
    return lambda call: any(words in found for found in call.new_texts)
