"""The Messages API, through its SDK: one request an ask, every foreign error translated here.

Owns the request's layout and the meaning of the answer's stop. The only module that imports
`anthropic`. Nothing of a conversation, an answer or a key gets into an error.
"""

from __future__ import annotations

import json
import ssl
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anthropic
import anyio
import msgspec

from memoryd.adapters.forks.messages import Answer, Ask, Connect, Failed
from memoryd.core.failure import classify
from memoryd.core.text import storable
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anthropic.types import TextBlockParam

API_VERSION = "2023-06-01"
"""As the host sends it, and as every gateway knows it; the SDK's own is newer."""

TIMED_OUT = "timeout"


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""

    def __repr__(self) -> str:
        return f"_Block({self.type!r}, {len(self.text)} characters)"


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    output_tokens: int = 0


class _Reply(msgspec.Struct):
    """What is read of an answer; the SDK's own types take anything and check nothing."""

    content: list[_Block]
    model: str
    stop_reason: str | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)


class Api:
    """One key at one base URL."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._client: anthropic.AsyncAnthropic | None = None

    async def close(self) -> None:
        """Let its connections go."""
        if self._client is not None:
            await self._client.close()

    async def ask(self, ask: Ask) -> Answer | Failed:
        """The answer within `ask.seconds`, or why there is none."""
        try:
            self._client = self._client or _client(self._connect)
        except OSError:
            return Failed(id=ask.id, kind="rejected", type="ca_bundle_unusable")
        with anyio.move_on_after(ask.seconds):
            try:
                reply = await _send(self._client, ask)
            except anthropic.APIStatusError as error:
                return _refused(ask.id, error)
            except anthropic.APIConnectionError:
                return Failed(id=ask.id, kind="transient")
            except (ValueError, RecursionError):
                # A proxy's page under status 200: nothing of the API answered.
                return Failed(id=ask.id, kind="transient", type="not_json")
            return _read(ask.id, reply)
        return Failed(id=ask.id, kind="transient", type=TIMED_OUT)


async def _send(client: anthropic.AsyncAnthropic, ask: Ask) -> _Reply:
    raw = await client.messages.with_raw_response.create(
        model=ask.model,
        max_tokens=ask.max_tokens,
        system=ask.system,
        messages=[{"role": "user", "content": _blocks(ask)}],
        timeout=ask.seconds,
    )
    # Not msgspec's own decoder, which refuses a text with a lone surrogate.
    return msgspec.convert(json.loads(await raw.read()), _Reply)


def _client(connect: Connect) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        api_key=connect.api_key,
        base_url=connect.base_url,
        max_retries=0,
        open_telemetry=False,
        default_headers=_headers(connect),
        http_client=_http(connect),
    )


def _headers(connect: Connect) -> dict[str, Any]:
    # The SDK sends a key as a bearer token; a gateway made for the host knows `x-api-key`.
    return {
        "anthropic-version": API_VERSION,
        "X-Api-Key": connect.api_key,
        "Authorization": anthropic.omit,
    }


def _http(connect: Connect) -> anthropic.DefaultAsyncHttpxClient:
    # No redirects: on another host the key's header would go along. No environment: the daemon told.
    options: dict[str, Any] = {"follow_redirects": False, "trust_env": False}
    if connect.proxy and urlsplit(connect.base_url).scheme == "https":
        options["proxy"] = connect.proxy
    if connect.ca_bundle:
        context = ssl.create_default_context()
        context.load_verify_locations(cafile=connect.ca_bundle)
        options["verify"] = context
    return anthropic.DefaultAsyncHttpxClient(**options)


def _blocks(ask: Ask) -> list[TextBlockParam]:
    """A block per text of the conversation, the last with the cache mark, then the message."""
    blocks: list[TextBlockParam] = [{"type": "text", "text": text} for text in ask.conversation]
    if blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return [*blocks, {"type": "text", "text": ask.message}]


def _read(id_: str, reply: _Reply) -> Answer | Failed:
    usage = _usage(reply.usage)
    text = storable("".join(block.text for block in reply.content if block.type == "text"))
    if reply.stop_reason == "refusal":
        return Failed(id=id_, kind="refused", model=reply.model, usage=usage)
    if reply.stop_reason in ("max_tokens", "model_context_window_exceeded"):
        return Answer(id=id_, text=text, model=reply.model, stop="cut", usage=usage)
    if not text.strip() or reply.stop_reason == "tool_use":
        return Failed(id=id_, kind="empty", model=reply.model, usage=usage)
    return Answer(id=id_, text=text, model=reply.model, stop="end", usage=usage)


def _refused(id_: str, error: anthropic.APIStatusError) -> Failed:
    status = error.status_code
    type_: str = error.type or ""
    # A code says more than its type where it is the account that stands in the way.
    if error.error_code and classify(status, error.error_code) == "credentials":
        type_ = error.error_code
    return Failed(
        id=id_,
        kind=classify(status, type_),
        status=status,
        type=type_,
        retry_after=_retry_after(error.response.headers, time()),
    )


def _retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds that the server asked for, as a number or as a date; 0 where it did not."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        asked = headers.get("retry-after", "0")
        if asked.replace(".", "", 1).isdecimal():
            return float(asked)
        return max(0.0, parsedate_to_datetime(asked).timestamp() - now)
    except ValueError:
        return 0.0


def _usage(usage: _Usage) -> Usage:
    return Usage(
        input=usage.input_tokens,
        cache_read=usage.cache_read_input_tokens or 0,
        cache_write=usage.cache_creation_input_tokens or 0,
        output=usage.output_tokens,
    )
