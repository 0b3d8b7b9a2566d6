"""A local server that speaks the Messages API and answers by a script.

Owns the wire format that the real client and the SDK expect, streamed and whole, and the record of what
was asked. Listens on the loopback only. Knows nothing of memoryd: the demo and the tests tell it what to
answer. It never sleeps: an answer that has to wait is given an event to wait for.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any, Self, assert_never

from memoryd.demo.script import (
    HOLD_LIMIT,
    Answer,
    Call,
    Failure,
    Hang,
    Reply,
    Script,
    Text,
    ToolUse,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    JsonObject = Mapping[str, Any]

CHARACTERS_PER_TOKEN = 4


class ScriptedApi:
    """The server; a context manager. `url` is what goes into ANTHROPIC_BASE_URL.

    `script` gives the reply to each `POST /v1/messages`, in the order in which they came. Counting
    tokens and every probe get a plain answer and are recorded too.
    """

    def __init__(self, script: Callable[[Call], Reply] | None = None) -> None:
        self.script: Callable[[Call], Reply] = script or Script()
        self._calls: list[Call] = []
        self._changed = Condition()
        self._closing = Event()
        self._ids = count(1)
        self._server = _Server(self)
        self._thread = Thread(target=self._serve, name="messages-api", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def calls(self) -> list[Call]:
        """Every request so far."""
        with self._changed:
            return list(self._calls)

    @property
    def messages(self) -> list[Call]:
        """The requests for an answer of a model so far."""
        return [call for call in self.calls if call.is_messages]

    def wait_for(self, wanted: Callable[[Call], bool], seconds: float = 20.0) -> Call:
        """The first request, past or to come, that fits; raises TimeoutError after `seconds`."""

        def found() -> Call | None:
            return next((call for call in self._calls if wanted(call)), None)

        with self._changed:
            call = self._changed.wait_for(found, seconds)
        if call is None:
            raise TimeoutError(f"no such request within {seconds:g} s")
        return call

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def _reply(self, call: Call) -> Reply:
        with self._changed:
            self._calls.append(call)
            reply = self.script(call) if call.is_messages else text("")
            self._changed.notify_all()
        return reply

    def _next_id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids):05}"


# ── the wire ───────────────────────────────────────────────────────────────────────────────────────


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, api: ScriptedApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """A client that went away in the middle of an answer is no fault of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401
        """Say nothing: a request's line is in the record."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(self.command, self.path, headers, data)
        reply = self.server.api._reply(call)  # noqa: SLF001
        match reply:
            case Hang():
                self.server.api._closing.wait()  # noqa: SLF001
                self.close_connection = True
            case Failure():
                self._wait(reply.hold)
                self._fail(reply)
            case Answer() if not call.is_messages:
                self._json(200, _probe_answer(call))
            case Answer():
                self._wait(reply.hold)
                self._message(call, reply)
            case _:
                assert_never(reply)

    def _wait(self, hold: Event | None) -> None:
        if hold is not None:
            hold.wait(HOLD_LIMIT)

    def _fail(self, failure: Failure) -> None:
        error = {"type": failure.type, "message": failure.message}
        self._json(failure.status, {"type": "error", "error": error}, failure.retry_after)

    def _message(self, call: Call, answer: Answer) -> None:
        message = _message(call, answer, self.server.api._next_id)  # noqa: SLF001
        if not call.streamed:
            self._json(200, message)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in _stream(message):
            if event["type"] == "message_delta":
                self._wait(answer.hold_inside)
            line = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            self.wfile.write(line.encode())

    def _json(self, status: int, body: JsonObject, retry_after: str = "") -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if retry_after:
            self.send_header("retry-after", retry_after)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _probe_answer(call: Call) -> JsonObject:
    if "count_tokens" in call.path:
        return {"input_tokens": len(call.data) // CHARACTERS_PER_TOKEN}
    return {}


def _message(call: Call, answer: Answer, new_id: Callable[[str], str]) -> JsonObject:
    tokens = answer.tokens
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [_block(block, new_id) for block in answer.blocks],
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
            "output_tokens": tokens.output,
        },
    }


def _block(block: Text | ToolUse, new_id: Callable[[str], str]) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case ToolUse():
            identifier = new_id("toolu")
            return {"type": "tool_use", "id": identifier, "name": block.name, "input": block.input}
        case _:
            assert_never(block)


def _stream(message: JsonObject) -> Iterator[JsonObject]:
    """The events of a streamed message, each with its `type`."""
    usage = message["usage"]
    opening = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(message["content"]):
        empty: JsonObject
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": usage}
    yield {"type": "message_stop"}
