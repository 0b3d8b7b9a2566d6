"""From a request to its handler and back: routes, typed decoding, the problem that a client reads.

Owns what a route's body or query may look like and how a fault is told. Knows no socket and nothing
of what a handler does; the app gives it the handlers by message type.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from memoryd import __version__
from memoryd.core import cut_json
from memoryd.daemon import log
from memoryd.daemon.caller import Caller
from memoryd.daemon.http import JSON, RAW_HELP, Answer
from memoryd.errors import MemorydError, RequestError
from memoryd.protocol import (
    EVENT_BODY_LIMIT,
    GENERATION,
    LOAD_PARTS,
    ROUTES,
    HookEvent,
    Message,
    Problem,
    ShimHeaders,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from memoryd.daemon.caller import Line, Peer
    from memoryd.daemon.http import Header, Request

T = TypeVar("T")

CUT_TEXTS = frozenset({"prompt", "last_assistant_message"})
"""Members of a hook event whose beginning is of use where the body was cut."""

QUERY_LIMIT = 32
"""Fields of a query."""

ENV_LIMIT = 32
"""Values of an environment."""

_BAD_JSON = (msgspec.DecodeError, RecursionError)
_GENERATION = re.compile(r"/v(\d{1,4})/")
_EVENT_ID = re.compile(r"[0-9a-f]{8,64}\Z")


class RawAnswer(msgspec.Struct, frozen=True):
    """A body that a shim prints as it is; an empty one prints nothing."""

    body: bytes
    content_type: str = JSON

    def __repr__(self) -> str:
        return f"RawAnswer({len(self.body)} bytes)"


class Stream(msgspec.Struct, frozen=True):
    """Messages as JSON lines, until the source ends or the client is gone.

    The receiving end of a memory stream is such a source.
    """

    source: AbstractAsyncContextManager[AsyncIterator[Message]]


Handler = Callable[[Any, Caller], Awaitable[Message | RawAnswer | Stream | None]]
"""Takes a message of its type; None is answered with an empty body.

A RequestError becomes its own status, any other MemorydError 500, both with sentence and hint.
"""


class _Route(msgspec.Struct, frozen=True):
    kind: type[Message]
    handler: Handler
    decoder: msgspec.json.Decoder[Message]


class Dispatcher:
    """The routes of this generation that have a handler."""

    def __init__(self, handlers: Mapping[type[Message], Handler]) -> None:
        self._encoder = msgspec.json.Encoder()
        self._routes = {
            (method, f"/v{GENERATION}/{name}"): _Route(
                kind, handlers[kind], msgspec.json.Decoder(kind)
            )
            for (method, name), kind in ROUTES.items()
            if kind in handlers
        }

    async def answer(self, request: Request, peer: Peer, line: Line | None) -> Answer | Stream:
        """What the client gets; call it inside `contained`: a handler's errors come out of it."""
        route = self._route(request)
        if isinstance(route, Answer):
            return route
        message = _decoded(route, request)
        caller = Caller(peer, shim_headers(request.headers), line)
        return self._wrapped(await route.handler(message, caller))

    async def contained(self, work: Awaitable[T], request: Request) -> T | Answer:
        """`work`'s result, or the answer that tells what went wrong with `request`.

        The one place where an unexpected exception of a request ends: its connection goes on.
        """
        try:
            return await work
        except RequestError as error:
            return self.refusal(error)
        except MemorydError as error:
            log.failure("request refused", error, request=request)
            return self._problem(500, _code(error), str(error), error.hint)
        except Exception as error:  # noqa: BLE001  see above
            log.failure("request failed", error, request=request)
            sentence = f"memoryd failed on this request ({type(error).__name__})"
            return self._problem(500, "internal", sentence, "memoryctl logs")

    def takes_event(self, request: Request) -> bool:
        """It is a hook event, and there is a handler for it."""
        route = self._route(request)
        return isinstance(route, _Route) and issubclass(route.kind, HookEvent)

    def refusal(self, error: RequestError) -> Answer:
        """The answer to a request that its client must mend."""
        return self._problem(error.status, error.code, error.sentence, error.hint)

    def line(self, message: Message) -> bytes:
        """One line of a stream."""
        return self._encoder.encode(message) + b"\n"

    def _route(self, request: Request) -> _Route | Answer:
        path = request.target.partition("?")[0]
        if route := self._routes.get((request.method, path)):
            return route
        if (found := _GENERATION.match(path)) and int(found[1]) != GENERATION:
            return self.refusal(_other_generation(int(found[1])))
        if allowed := [method for method, known in self._routes if known == path]:
            return self._problem(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "wrong_method",
                f"{path} takes {allowed[0]}, not {request.method}",
                RAW_HELP,
                allow=", ".join(allowed),
            )
        return self._problem(
            HTTPStatus.NOT_FOUND,
            "unknown_route",
            self._what_is_near(request.method, path),
            RAW_HELP,
        )

    def _what_is_near(self, method: str, path: str) -> str:
        # Only a client in error pays for this import.
        from difflib import get_close_matches  # noqa: PLC0415

        routes = {known: method for method, known in self._routes}
        near = get_close_matches(path, routes, n=3) or list(routes)
        shown = ", ".join(f"{routes[route]} {route}" for route in near)
        return f"no route {method} {path}; there is {shown}"

    def _wrapped(self, reply: Message | RawAnswer | Stream | None) -> Answer | Stream:
        if isinstance(reply, Stream):
            return reply
        if isinstance(reply, Message):
            return Answer(HTTPStatus.OK, self._encoder.encode(reply))
        if reply is None or not reply.body:
            return Answer(HTTPStatus.OK)
        return Answer(HTTPStatus.OK, reply.body, reply.content_type)

    def _problem(
        self, status: int, code: str, sentence: str, hint: str, *, allow: str = ""
    ) -> Answer:
        body = self._encoder.encode(Problem(code=code, sentence=sentence, hint=hint))
        return Answer(status, body, allow=allow)


def shim_headers(headers: Iterable[Header]) -> ShimHeaders:
    """What a shim said beside the event; a value that can't be read counts as not said."""
    said: dict[str, Any] = {}
    for name, value in headers:
        if name == b"memoryd-env":
            for pair in value.split(b";", ENV_LIMIT):
                field, _, text = pair.partition(b"=")
                if read := _ENV_FIELDS.get(field):
                    said[read[0]] = read[1](text)
        elif read := _PLAIN_FIELDS.get(name):
            said[read[0]] = read[1](value)
    return ShimHeaders(**said) if said else _NOTHING_SAID


def _decoded(route: _Route, request: Request) -> Message:
    if request.method == "GET":
        return _from_query(route.kind, request.target.partition("?")[2])
    try:
        message = route.decoder.decode(request.body)
    except _BAD_JSON as error:
        message = _mended(route, request.body, error)
    if isinstance(message, HookEvent) and not message.session_id:
        raise RequestError(400, "bad_body", "`session_id` is empty", RAW_HELP)
    return message


def _from_query(kind: type[Message], query: str) -> Message:
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_LIMIT)
        return msgspec.convert(dict(fields), kind, strict=False)
    except ValueError as error:
        sentence = f"the query is wrong: {error}"
        raise RequestError(400, "bad_query", sentence, RAW_HELP) from error


def _mended(route: _Route, body: bytes, fault: Exception) -> Message:
    """A body that is no sound JSON, read as far as it goes; raises RequestError."""
    if not isinstance(fault, msgspec.ValidationError):
        candidates = [cut_json.clean(body)]
        if issubclass(route.kind, HookEvent):
            whole = cut_json.closed(body[:EVENT_BODY_LIMIT], prefixes=CUT_TEXTS)
            candidates.append(cut_json.clean(whole or b""))
        for candidate in candidates:
            try:
                return route.decoder.decode(candidate)
            except _BAD_JSON as error:
                fault = error
    sentence = f"the body is no {route.kind.__name__}: {fault}"
    raise RequestError(400, "bad_body", sentence, RAW_HELP) from fault


def _other_generation(theirs: int) -> RequestError:
    older = theirs < GENERATION
    side, hint = ("client", "memoryctl plugin-dir") if older else ("daemon", "memoryctl restart")
    sentence = (
        f"memoryd {__version__} speaks generation {GENERATION}, not {theirs}: update the {side}"
    )
    return RequestError(404, "other_generation", sentence, hint)


def _code(error: MemorydError) -> str:
    """`StorageError` as `storage`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return words.removesuffix("_error")


def _text(value: bytes) -> str:
    """Hex of UTF-8 without NUL; a path in another encoding could not be stored."""
    try:
        text = unhexlify(value).decode()
    except ValueError:
        return ""
    return "" if "\0" in text else text


def _number(text: str, limit: int) -> int:
    short = len(text) <= len(str(limit)) and text.isascii() and text.isdigit()
    return int(text) if short and int(text) <= limit else 0


def _event_id(value: bytes) -> str:
    return value.decode() if _EVENT_ID.match(value.decode("ascii", "replace")) else ""


def _part(value: bytes) -> int:
    return _number(value.decode("ascii", "replace"), LOAD_PARTS)


def _pid(value: bytes) -> int:
    return _number(_text(value), 2**31 - 1)


_Reader = Callable[[bytes], str | int]
_PLAIN_FIELDS: dict[bytes, tuple[str, _Reader]] = {
    b"memoryd-event": ("event", _event_id),
    b"memoryd-part": ("part", _part),
}
_ENV_FIELDS: dict[bytes, tuple[str, _Reader]] = {
    field.encode(): (field, _pid if field == "pid" else _text)
    for field in ShimHeaders.__struct_fields__
    if field not in ("event", "part")
}
_NOTHING_SAID = ShimHeaders()
