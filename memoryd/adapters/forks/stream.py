"""What the `claude` child says, line by line, and the moment at which it has said enough.

Owns the translation of the client's events into a reply or a failure: by status, type and stop reason,
never by the words of a text. Knows no process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from memoryd.core.failure import classify
from memoryd.core.text import storable
from memoryd.ports import ForkFailure, ForkReply
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from memoryd.core.failure import FailureKind

Outcome = ForkReply | ForkFailure

_TOO_LONG = frozenset({"prompt_too_long", "blocking_limit", "rapid_refill_breaker"})
"""Reasons for an end that name the context window; the client finds some before it asks the API."""

_NAMED: dict[str, FailureKind] = {
    "refusal": "refused",
    "max_output_tokens": "cut",
    "max_turns": "empty",
    "malformed_tool_use_exhausted": "empty",
}
"""Ends without an API error, by the word for them; the last two follow attempts to use tools."""

_REJECTED = frozenset({"invalid_request", "model_not_found"})
"""Words of the client's own refusal, without a request."""

_LOGIN_REASONS = frozenset(
    {
        "gateway_access_denied",
        "gateway_signin_required",
        "org_pin_api_key_conflict",
        "org_pin_mismatch",
        "org_verify_failed",
        "provider_not_allowed",
    }
)
"""Reasons for no start that a login or another key mends."""

_SYNTHETIC = "<synthetic>"
"""Model of a message that the client wrote itself."""


class _Usage(msgspec.Struct):
    input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    output_tokens: int | None = 0

    def counted(self) -> Usage:
        return Usage(
            input=self.input_tokens or 0,
            cache_read=self.cache_read_input_tokens or 0,
            cache_write=self.cache_creation_input_tokens or 0,
            output=self.output_tokens or 0,
        )


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""

    def __repr__(self) -> str:
        return f"_Block({self.type!r}, {len(self.text)} characters)"


class _Message(msgspec.Struct):
    model: str = ""
    content: list[_Block] = []
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _StreamEvent(msgspec.Struct):
    """The API's own events, passed on."""

    type: str = ""
    message: _Message | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class _Retry(msgspec.Struct):
    """`system`, `api_retry`: the client is about to ask again."""

    error_status: int | None = None
    retry_delay_ms: float = 0.0


class _Limit(msgspec.Struct):
    """A subscription's limit; `resetsAt` is Unix seconds."""

    status: str = ""
    resetsAt: float | None = None  # noqa: N815  the client's name


class _LimitEvent(msgspec.Struct):
    rate_limit_info: _Limit


class _Assistant(msgspec.Struct):
    message: _Message
    error: str = ""
    """A word of a closed list where the message stands for an error."""


class _Streamed(msgspec.Struct):
    event: _StreamEvent


class _Result(msgspec.Struct):
    """The last line."""

    is_error: bool
    subtype: str = ""
    result: str | None = None
    num_turns: int = 0
    stop_reason: str | None = None
    terminal_reason: str | None = None
    startup_failure_reason: str | None = None
    api_error: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)

    def __repr__(self) -> str:
        return f"_Result({self.subtype!r}, {len(self.result or '')} characters)"


class Reading:
    """Takes lines until one of them settles the outcome; `now` is the start's Unix seconds."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._model = ""
        self._texts: list[str] = []
        self._earlier = Usage()
        """Of messages before the current one: an attempt to use a tool."""
        self._usage = Usage()
        self._error = ""
        self._reset = 0.0

    def take(self, line: bytes) -> Outcome | None:
        """The outcome, or None: go on reading. A line that is none of the client's is passed over."""
        try:
            # Not msgspec's own decoder, which refuses a text with a lone surrogate.
            raw = json.loads(line)
            return self._take(raw) if isinstance(raw, dict) else None
        except (ValueError, RecursionError):
            return None

    def ended(self) -> ForkFailure:
        """The outcome where no line settled it: the child was killed or crashed."""
        return ForkFailure("transient", type="no_result", usage=self._spent(), model=self._model)

    def _take(self, raw: dict[str, Any]) -> Outcome | None:
        match raw.get("type"):
            case "system" if raw.get("subtype") == "api_retry":
                return self._retry(msgspec.convert(raw, _Retry))
            case "stream_event":
                return self._event(msgspec.convert(raw, _Streamed).event)
            case "rate_limit_event":
                self._limit(msgspec.convert(raw, _LimitEvent).rate_limit_info)
            case "assistant":
                self._assistant(msgspec.convert(raw, _Assistant))
            case "result":
                return self._result(msgspec.convert(raw, _Result))
        return None

    def _retry(self, retry: _Retry) -> Outcome | None:
        """An overloaded API is waited for by our own back-off alone.

        A 401 is the client's business: it renews its login and asks again.
        """
        status = retry.error_status or 0
        if status != 429 and status < 500:  # noqa: PLR2004
            return None
        return ForkFailure(classify(status, ""), status, "", retry.retry_delay_ms / 1000)

    def _event(self, event: _StreamEvent) -> Outcome | None:
        if event.message is not None:
            self._model = event.message.model
            self._earlier, self._usage, self._texts = self._spent(), Usage(), []
        if event.usage is not None:
            self._usage = event.usage.counted()
        stop = event.delta.stop_reason if event.delta else None
        # Here the client would ask once more, on its own account, for the rest or for a better answer.
        if stop == "max_tokens":
            return ForkReply(self._text(), self._model, self._spent(), "cut")
        if stop == "refusal":
            return ForkFailure("refused", usage=self._spent(), model=self._model)
        return None

    def _limit(self, limit: _Limit) -> None:
        """On a subscription the background waits for the reset."""
        if limit.status == "rejected":
            self._reset = limit.resetsAt or 0.0

    def _spent(self) -> Usage:
        return Usage(
            input=self._earlier.input + self._usage.input,
            cache_read=self._earlier.cache_read + self._usage.cache_read,
            cache_write=self._earlier.cache_write + self._usage.cache_write,
            output=self._earlier.output + self._usage.output,
        )

    def _assistant(self, line: _Assistant) -> None:
        if line.message.model == _SYNTHETIC:
            self._error = line.error
            return
        self._model = line.message.model
        self._texts += [block.text for block in line.message.content if block.type == "text"]

    def _text(self) -> str:
        return storable("".join(self._texts))

    def _result(self, line: _Result) -> Outcome:
        usage = line.usage.counted()
        if not line.is_error:
            text = storable(line.result or "")
            if text.strip():
                return ForkReply(text, self._model, usage)
            return ForkFailure("empty", usage=usage, model=self._model)
        status, type_ = line.api_error_status or 0, line.api_error_type or self._error
        kind = _kind(line, status, type_)
        retry_after = max(0.0, self._reset - self._now) if kind == "transient" else 0.0
        if kind in ("nothing", "refused", "empty", "cut"):
            status, type_ = 0, ""
        elif line.startup_failure_reason:
            type_ = line.startup_failure_reason
        return ForkFailure(kind, status, type_, retry_after, usage, self._model)


def _kind(line: _Result, status: int, type_: str) -> FailureKind:
    """The class of a result that is an error."""
    if line.terminal_reason in _TOO_LONG:
        return "too_long"
    if status:
        return classify(status, type_)
    named = _NAMED.get(line.stop_reason or "") or _NAMED.get(line.api_error or "")
    if named or (named := _NAMED.get(line.terminal_reason or "")):
        return named
    if line.subtype == "error_during_execution" and not line.num_turns:
        return _start_kind(line.startup_failure_reason or "")
    return "rejected" if type_ in _REJECTED else classify(0, type_)


def _start_kind(reason: str) -> FailureKind:
    """The client refused to start; without a known reason it has no such conversation."""
    if not reason:
        return "nothing"
    return "credentials" if reason in _LOGIN_REASONS else "rejected"
