"""The lines between the daemon and its worker: JSON, one message a line, over stdin and stdout.

Both sides read these types only. They stand here and not in the worker's own package, because adapters
may not import it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from memoryd.core.failure import FailureKind  # noqa: TC001  msgspec reads the annotations
from memoryd.protocol import Usage


class Line(msgspec.Struct, kw_only=True, frozen=True, tag_field="is"):
    """Base of all: the field `is` names the type."""


class Connect(Line, kw_only=True, frozen=True, tag="connect"):
    """With what the requests that follow are sent. The key travels here: never argv, never a file."""

    api_key: str
    base_url: str
    proxy: str = ""
    ca_bundle: str = ""

    def __repr__(self) -> str:
        return f"Connect({self.base_url!r})"


class Ask(Line, kw_only=True, frozen=True, tag="ask"):
    """One request to the model; `seconds` is its deadline as a whole."""

    id: str
    model: str
    max_tokens: int
    seconds: float
    system: str
    conversation: tuple[str, ...]
    message: str

    def __repr__(self) -> str:
        return f"Ask({self.id!r}, {self.model!r}, {len(self.conversation)} texts)"


class Drop(Line, kw_only=True, frozen=True, tag="drop"):
    """Nobody waits for this answer any more."""

    id: str


class Ready(Line, kw_only=True, frozen=True, tag="ready"):
    """The worker's first line: it can ask."""


class Broken(Line, kw_only=True, frozen=True, tag="broken"):
    """Its only line where it can't: `fact` names what is missing."""

    fact: str


class Answer(Line, kw_only=True, frozen=True, tag="answer"):
    """The model's text."""

    id: str
    text: str
    model: str
    stop: Literal["end", "cut"]
    usage: Usage

    def __repr__(self) -> str:
        return f"Answer({self.id!r}, {len(self.text)} characters)"


class Failed(Line, kw_only=True, frozen=True, tag="failed"):
    """No text, and why; the fields of ports.ForkFailure."""

    id: str
    kind: FailureKind
    status: int = 0
    type: str = ""
    retry_after: float = 0.0
    model: str = ""
    usage: Usage = msgspec.field(default_factory=Usage)


ToWorker = Connect | Ask | Drop
FromWorker = Ready | Broken | Answer | Failed

_ENCODER = msgspec.json.Encoder()
_TO_WORKER = msgspec.json.Decoder(ToWorker)
_FROM_WORKER = msgspec.json.Decoder(FromWorker)


def encode(message: ToWorker | FromWorker) -> bytes:
    """One line with its end. Texts hold no lone surrogate."""
    return _ENCODER.encode(message) + b"\n"


def to_worker(line: bytes) -> ToWorker:
    """Raises msgspec.DecodeError."""
    return _TO_WORKER.decode(line)


def from_worker(line: bytes) -> FromWorker:
    """Raises msgspec.DecodeError."""
    return _FROM_WORKER.decode(line)
