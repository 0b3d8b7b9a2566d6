"""HTTP/1.1 on one connection, without input or output: bytes in, requests out, answers to bytes.

Owns the limits of a head and a body and the headers of every answer. h11 owns the grammar. Knows no
socket, no route and no message.
"""

from __future__ import annotations

from http import HTTPStatus

import h11
import msgspec

from memoryd import __version__
from memoryd.core.text import cut
from memoryd.errors import RequestError
from memoryd.protocol import (
    BODY_LIMIT,
    GENERATION,
    GENERATION_HEADER,
    HEADER_LIMIT,
    VERSION_HEADER,
)

JSON = "application/json"
JSON_LINES = "application/x-ndjson"

METHODS = (b"POST", b"GET")
FRAMING = (b"transfer-encoding", b"connection", b"expect", b"upgrade")
"""With another method or one of these headers, a request's end is found by h11."""

PIECES = 32
"""Parts of a request that are parsed at once, each 0.1 ms: a chunk may hold a single byte."""

RAW_HELP = "memoryctl raw --help"
"""The hint for what was put together wrongly: how one request is sent by hand."""

FACT_LIMIT = 200
"""Characters of h11's own words in a refusal: they may quote the request."""

_IDENTITY = [
    (VERSION_HEADER.encode(), __version__.encode()),
    (GENERATION_HEADER.encode(), str(GENERATION).encode()),
]
_END = h11.EndOfMessage()

Header = tuple[bytes, bytes]


class Request(msgspec.Struct, frozen=True):
    """A whole request; header names are lower case."""

    method: str
    target: str
    headers: list[Header]
    body: bytes

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target.partition('?')[0]}, {len(self.body)} bytes)"


class Answer(msgspec.Struct, frozen=True):
    """A whole answer; `allow` is the value of that header, or empty.

    One without a body has the status 200 too, not 204: that one may not say its length, and a shim
    reads up to a length.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON
    allow: str = ""

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


class Exchange:
    """The requests and answers of one connection, one after the other.

    `receive` takes what came in, `next_request` gives a request once it is whole, and its answer
    goes through `answer` or `begin_stream`, `stream` and `end_stream` before the next is looked at.
    """

    def __init__(self) -> None:
        self._http = _new()
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._received = 0
        self._rest: bytes | None = None
        self.owed = False
        """A request waits for the first byte of its answer."""
        self.over = False
        """No further request can come: the client or the last answer said so."""
        self.unread = False

    @property
    def begun(self) -> bool:
        """Something of the next request is here."""
        return self._head is not None or bool(self._http.trailing_data[0])

    @property
    def wants_continue(self) -> bool:
        """The client holds its body until it is told to go on."""
        return self._http.they_are_waiting_for_100_continue

    def receive(self, data: bytes) -> None:
        self._received += len(data)
        self._http.receive_data(data)

    def next_request(self) -> Request | None:
        """The next request, or None while more of it has to come; raises RequestError.

        None too after `PIECES` of a body in chunks, `unread` being true then: call it again, and let
        others have their turn before.
        """
        self.unread = False
        if not self._received:
            return None
        for _ in range(PIECES):
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise _refusal(error) from error
            if isinstance(event, h11.Request):
                self._head = event
                if self._received > HEADER_LIMIT:
                    _require_size(event)
                if request := self._short_way(event):
                    return request
            elif isinstance(event, h11.Data):
                self._add(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return self._whole()
            else:
                if self._head is not None:
                    _require_size(self._head)
                return None
        self.unread = True
        return None

    def go_on(self) -> bytes:
        """The answer to a client that holds its body."""
        event = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
        return self._http.send(event)

    def answer(self, answer: Answer, *, last: bool = False) -> bytes:
        """The bytes of `answer`; with `last` it says that the connection ends."""
        # h11 takes half as long to write as to read, and there is nothing to decide here.
        head = _HEADS.get(answer.status) or _head(answer.status)
        bodiless = self._head is not None and self._head.method == b"HEAD"
        self._head, self.owed = None, False
        self.over = last or (self._rest is None and self._http.their_state is not h11.DONE)
        if answer.allow:
            head += b"allow: %s\r\n" % answer.allow.encode()
        if self.over:
            head += b"connection: close\r\n"
        else:
            self._renew()
        if answer.body:
            head += b"content-type: %s\r\n" % answer.content_type.encode()
        body = b"" if bodiless else answer.body
        return b"%scontent-length: %d\r\n\r\n%s" % (head, len(answer.body), body)

    def begin_stream(self, content_type: str) -> bytes:
        """The head of an answer whose length nobody knows."""
        self.owed = False
        self._head = None
        headers = [*_IDENTITY, (b"content-type", content_type.encode())]
        return self._http.send(h11.Response(status_code=HTTPStatus.OK, headers=headers))

    def stream(self, data: bytes) -> bytes:
        return self._http.send(h11.Data(data=data))

    def end_stream(self) -> bytes:
        data = self._http.send(_END)
        self.over = h11.MUST_CLOSE in (self._http.our_state, self._http.their_state)
        if not self.over:
            self._renew()
        return data

    def _short_way(self, head: h11.Request) -> Request | None:
        """The request, where all of its body is here and nothing but a length frames it.

        This is how nearly every request comes, and it saves h11 two of three events.
        """
        headers, length = _pairs(head), 0
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name in FRAMING:
                return None
        left, _ = self._http.trailing_data
        if len(left) < length or head.method not in METHODS or head.http_version != b"1.1":
            return None
        self._rest, self.owed = left[length:], True
        return Request(head.method.decode(), head.target.decode(), headers, left[:length])

    def _renew(self) -> None:
        """For the next request; what came of it is kept."""
        left = self._http.trailing_data[0] if self._rest is None else self._rest
        self._rest = None
        self._http = _new()
        self._received = 0
        if left:
            self.receive(left)

    def _add(self, data: bytes) -> None:
        if len(self._body) + len(data) > BODY_LIMIT:
            raise _body_too_long()
        self._body += data

    def _whole(self) -> Request:
        head = self._head
        assert head is not None
        self.owed = True
        body, self._body = bytes(self._body), bytearray()
        # h11 lets visible ASCII alone through in both.
        return Request(head.method.decode(), head.target.decode(), _pairs(head), body)


def _new() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_LIMIT)


def _head(status: int) -> bytes:
    """The status line and the headers of every answer."""
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [b"%s: %s" % pair for pair in _IDENTITY]
    return b"\r\n".join([*lines, b""])


def _pairs(head: h11.Request) -> list[Header]:
    # Iterating over h11's own headers makes each pair in Python code.
    return [(name.lower(), value) for name, value in head.headers.raw_items()]


def _require_size(head: h11.Request) -> None:
    """Raise RequestError where the head is too long, or announces a body that is."""
    size = len(head.target)
    for name, value in _pairs(head):
        size += len(name) + len(value) + 4
        if name == b"content-length" and int(value) > BODY_LIMIT:
            raise _body_too_long()
    if size > HEADER_LIMIT:
        raise _head_too_long()


def _refusal(error: h11.RemoteProtocolError) -> RequestError:
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return _head_too_long()
    fact = cut(str(error), FACT_LIMIT)
    sentence = f"no HTTP/1.1 request: {fact}"
    return RequestError(HTTPStatus.BAD_REQUEST, "bad_request", sentence, RAW_HELP)


def _head_too_long() -> RequestError:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    sentence = f"the head is longer than {HEADER_LIMIT} bytes"
    return RequestError(status, "head_too_long", sentence, RAW_HELP)


def _body_too_long() -> RequestError:
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    sentence = f"the body is longer than {BODY_LIMIT} bytes"
    return RequestError(status, "body_too_long", sentence, RAW_HELP)


_HEADS: dict[int, bytes] = {HTTPStatus.OK: _head(HTTPStatus.OK)}
