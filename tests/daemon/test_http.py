from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import event, request

from memoryd import __version__
from memoryd.daemon.http import JSON_LINES, Answer, Exchange, Request
from memoryd.errors import RequestError
from memoryd.protocol import BODY_LIMIT, HEADER_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence


def parsed(data: bytes) -> Request:
    exchange = Exchange()
    exchange.receive(data)
    found = exchange.next_request()
    assert found is not None
    return found


def refused(data: bytes) -> RequestError:
    exchange = Exchange()
    exchange.receive(data)
    with pytest.raises(RequestError) as caught:
        exchange.next_request()
    assert caught.value.hint.startswith("memoryctl ")
    return caught.value


def seen_by_client(data: bytes, *, method: str = "POST") -> Sequence[h11.Event]:
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("host", "m")]))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    events: list[h11.Event] = []
    while not events or not isinstance(events[-1], h11.EndOfMessage):
        found = http.next_event()
        assert isinstance(found, h11.Event)
        events.append(found)
    return events


def test_a_request_is_read_whole() -> None:
    found = parsed(request("/v1/save?x=1", b"{}", headers={"memoryd-event": "0123abcd"}))
    assert (found.method, found.target, found.body) == ("POST", "/v1/save?x=1", b"{}")
    assert (b"memoryd-event", b"0123abcd") in found.headers


@given(st.lists(st.integers(0, 200), max_size=6))
def test_it_does_not_matter_where_the_bytes_are_split(cuts: list[int]) -> None:
    data = event(last_assistant_message="x" * 50)
    exchange = Exchange()
    found = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        if data[start:end]:
            exchange.receive(data[start:end])
            found.append(exchange.next_request())
    assert found[-1] == parsed(data)
    assert not any(found[:-1])


@pytest.mark.parametrize("cut", [1, 40, 1000])
@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "CONNECT", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"connection": "keep-alive"}, {"Connection": "close"}, {"upgrade": "x"}, {"X-A": "b"}],
)
def test_the_short_way_finds_what_h11_finds(cut: int, method: str, headers: dict[str, str]) -> None:
    """All at once, and in two pieces, which is never the short way."""
    data = request("/v1/save", b'{"cwd":"/p"}', method=method, headers=headers)
    at_once, in_pieces = Exchange(), Exchange()
    at_once.receive(data)
    found = at_once.next_request()
    slowly: Request | None = None
    for piece in (data[:-cut], data[-cut:]):
        if piece:
            in_pieces.receive(piece)
            slowly = in_pieces.next_request()
    assert found == slowly
    answer = Answer(200, b"{}")
    assert at_once.answer(answer) == in_pieces.answer(answer)
    assert at_once.over == in_pieces.over


def test_a_length_beside_chunks_does_not_frame() -> None:
    head = b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert parsed(head + b"2\r\n{}\r\n0\r\n\r\n").body == b"{}"


def test_two_lengths_are_no_request() -> None:
    data = request(body=b"{}", headers={"Content-Length": "1"})
    assert refused(data).code == "bad_request"


def test_two_requests_at_once_come_one_after_the_other() -> None:
    exchange = Exchange()
    exchange.receive(request(body=b"1") + request(body=b"2"))
    first = exchange.next_request()
    assert first is not None
    assert first.body == b"1"
    assert exchange.begun
    exchange.answer(Answer(200))
    second = exchange.next_request()
    assert second is not None
    assert second.body == b"2"


def test_an_answer_says_who_answers() -> None:
    exchange = Exchange()
    exchange.receive(request())
    exchange.next_request()
    head, data, _ = seen_by_client(exchange.answer(Answer(200, b'{"a":1}')))
    assert isinstance(head, h11.Response)
    assert isinstance(data, h11.Data)
    assert head.status_code == 200
    assert dict(head.headers) == {
        b"memoryd-version": __version__.encode(),
        b"memoryd-generation": b"1",
        b"content-type": b"application/json",
        b"content-length": b"7",
    }
    assert data.data == b'{"a":1}'
    assert not exchange.over


def test_an_answer_without_a_body_has_no_content_type() -> None:
    exchange = Exchange()
    exchange.receive(request())
    exchange.next_request()
    head = seen_by_client(exchange.answer(Answer(200)))[0]
    assert isinstance(head, h11.Response)
    assert dict(head.headers) == {
        b"memoryd-version": __version__.encode(),
        b"memoryd-generation": b"1",
        b"content-length": b"0",
    }


@pytest.mark.parametrize("header", [{"connection": "close"}, {}])
def test_the_connection_ends_where_either_side_says_so(header: dict[str, str]) -> None:
    exchange = Exchange()
    exchange.receive(request(headers=header))
    exchange.next_request()
    data = exchange.answer(Answer(200), last=not header)
    assert b"connection: close" in data.lower()
    assert exchange.over


def test_a_client_of_http_1_0_is_answered_and_left() -> None:
    exchange = Exchange()
    exchange.receive(b"POST /v1/save HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
    exchange.next_request()
    head, data, _ = seen_by_client(exchange.answer(Answer(200, b"{}")))
    assert isinstance(head, h11.Response)
    assert (b"connection", b"close") in list(head.headers)
    assert isinstance(data, h11.Data)
    assert exchange.over


@pytest.mark.parametrize("status", [200, 400, 404, 405, 408, 409, 413, 431, 500])
def test_every_answer_is_what_h11_reads(status: int) -> None:
    exchange = Exchange()
    exchange.receive(request())
    exchange.next_request()
    answer = Answer(status, b"{}", "text/plain", "GET, POST")
    head = seen_by_client(exchange.answer(answer))[0]
    assert isinstance(head, h11.Response)
    assert head.status_code == status
    assert (b"allow", b"GET, POST") in list(head.headers)


def test_a_head_request_gets_no_body() -> None:
    exchange = Exchange()
    exchange.receive(request(method="HEAD"))
    exchange.next_request()
    events = seen_by_client(exchange.answer(Answer(405, b"{}")), method="HEAD")
    assert [type(each) for each in events] == [h11.Response, h11.EndOfMessage]


def test_a_stream_has_no_length() -> None:
    exchange = Exchange()
    exchange.receive(request("/v1/follow", method="GET"))
    exchange.next_request()
    data = exchange.begin_stream(JSON_LINES)
    data += exchange.stream(b'{"a":1}\n') + exchange.stream(b'{"b":2}\n') + exchange.end_stream()
    events = seen_by_client(data)
    assert [bytes(each.data) for each in events if isinstance(each, h11.Data)] == [
        b'{"a":1}\n',
        b'{"b":2}\n',
    ]


def test_a_client_that_holds_its_body_is_told_to_go_on() -> None:
    exchange = Exchange()
    exchange.receive(
        b"POST /v1/save HTTP/1.1\r\nhost: m\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    )
    assert exchange.next_request() is None
    assert exchange.wants_continue
    assert exchange.go_on().startswith(b"HTTP/1.1 100 ")
    exchange.receive(b"{}")
    assert exchange.next_request() is not None


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: m\r\ntransfer-encoding: gzip\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: m\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: 1, 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nhost: m\r\nbad header\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_bad_request(data: bytes) -> None:
    error = refused(data)
    assert (error.status, error.code) == (400, "bad_request")
    assert len(error.sentence) < 300


@pytest.mark.parametrize("whole", [True, False])
def test_a_long_head_is_refused(*, whole: bool) -> None:
    data = b"POST / HTTP/1.1\r\nhost: m\r\nx: " + b"a" * HEADER_LIMIT
    error = refused(data + (b"\r\n\r\n" if whole else b""))
    assert (error.status, error.code) == (431, "head_too_long")


def test_a_head_at_the_limit_is_read() -> None:
    filler = "a" * (HEADER_LIMIT - 200)
    assert dict(parsed(request(headers={"x": filler})).headers)[b"x"] == filler.encode()


def test_a_long_body_is_refused_by_its_head() -> None:
    head = f"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: {BODY_LIMIT + 1}\r\n\r\n".encode()
    error = refused(head)
    assert (error.status, error.code) == (413, "body_too_long")
    assert parsed(request(body=b"x" * BODY_LIMIT)).body == b"x" * BODY_LIMIT


def test_a_long_body_in_chunks_is_refused_when_it_is_too_long() -> None:
    exchange = Exchange()
    exchange.receive(b"POST / HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    for _ in range(BODY_LIMIT // 65536):
        exchange.receive(chunk)
        assert exchange.next_request() is None
    exchange.receive(chunk)
    with pytest.raises(RequestError) as caught:
        exchange.next_request()
    assert caught.value.status == 413
    assert exchange.answer(Answer(413), last=True)


def test_a_body_in_tiny_chunks_is_parsed_in_turns() -> None:
    exchange = Exchange()
    head = b"POST / HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n"
    exchange.receive(head + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n")
    turns = 0
    while (found := exchange.next_request()) is None:
        assert exchange.unread
        turns += 1
    assert found.body == b"x" * 100
    assert turns == 3


def test_a_repr_shows_no_body() -> None:
    assert "secret" not in repr(parsed(request("/v1/save?text=secret", b"secret")))
    assert "secret" not in repr(Answer(200, b"secret"))


FRAMES = 20_000


def test_mutated_frames_are_requests_or_refusals() -> None:
    rng = random.Random(20)
    seeds = [
        event(last_assistant_message="Done. " * 20),
        request("/v1/status?cwd=/p", method="GET", headers={"memoryd-pid": "31"}),
        b"POST /v1/save HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
        b"PUT / HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc" * 3,
    ]
    statuses: Counter[int] = Counter()
    for _ in range(FRAMES):
        exchange = Exchange()
        exchange.receive(_mutated(rng, rng.choice(seeds)))
        status = 200
        while status == 200 and not exchange.over:
            status = _served(exchange)
            statuses[status] += 1
    assert set(statuses) <= {0, 200, 400, 413, 431}
    assert min(statuses[0], statuses[200], statuses[400]) > FRAMES / 10


def _served(exchange: Exchange) -> int:
    """The status of one answer, 0 where the request is not whole."""
    try:
        while exchange.next_request() is None:
            if not exchange.unread:
                return 0
    except RequestError as error:
        assert exchange.answer(Answer(error.status, b"{}"), last=True)  # noqa: PT017
        return error.status
    assert exchange.answer(Answer(200, b"{}"))
    return 200


def _mutated(rng: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 20)]
            case 2:
                data[at:at] = rng.choice([b"\r\n", b"\0", b":", b" ", b"\xff", b"9" * 25])
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            case _:
                del data[max(1, at) :]
        data = data or bytearray(b"G")
    return bytes(data)
