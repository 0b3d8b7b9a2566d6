from __future__ import annotations

import socketserver
from collections.abc import Callable
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from memoryd.adapters.forks.messages import Answer, Ask, Connect, Failed
from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import Answer as Reply
from memoryd.demo.script import Failure, Script, StopReason, Text, Tokens, ToolUse
from memoryd.protocol import Usage
from memoryd.worker.api import Api, _retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

Send = Callable[[bytes], object]

USAGE = Usage(input=11, cache_read=33, cache_write=22, output=44)
TOKENS = Tokens(input=11, cache_read=33, cache_write=22, output=44)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def scripted() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


def ask(seconds: float = 20.0) -> Ask:
    return Ask(
        id="1",
        model="m",
        max_tokens=100,
        seconds=seconds,
        system="s",
        conversation=("one",),
        message="two",
    )


async def asked(url: str, ask: Ask) -> Answer | Failed:
    api = Api(Connect(api_key="sk-made-up", base_url=url))
    try:
        return await api.ask(ask)
    finally:
        await api.close()


def reply(text: str, stop_reason: StopReason = "end_turn") -> Reply:
    return Reply((Text(text),), stop_reason, TOKENS)


@pytest.mark.parametrize(
    "text",
    [
        '{"ops": [], "topics": []}',
        '```json\n{"ops": []}\n```',
        'Prose {"first": 1} and more. {"ops": []}',
        '{"ops": []} and prose after it',
        '{"ops": []}\n{"ops": []}',
        '{"ops": [], "weight": NaN}',
        '{"ops": [], "ops": []}',
        "Your credit balance is too low: 429, prompt is too long, Not logged in",
    ],
)
async def test_a_text_is_passed_on_as_it_is(scripted: ScriptedApi, text: str) -> None:
    scripted.script = Script(reply(text))
    answer = await asked(scripted.url, ask())
    assert answer == Answer(id="1", text=text, model="m", stop="end", usage=USAGE)


async def test_texts_of_several_blocks_are_one(scripted: ScriptedApi) -> None:
    scripted.script = Script(Reply((Text('{"ops"'), Text(": []}")), tokens=TOKENS))
    answer = await asked(scripted.url, ask())
    assert answer == Answer(id="1", text='{"ops": []}', model="m", stop="end", usage=USAGE)


async def test_a_lone_surrogate_is_mended(scripted: ScriptedApi) -> None:
    scripted.script = Script(reply("half \ud83d pair"))
    answer = await asked(scripted.url, ask())
    assert isinstance(answer, Answer)
    assert answer.text == "half \ufffd pair"


@pytest.mark.parametrize(
    ("scripted_reply", "kind"),
    [
        (reply("I will not", "refusal"), "refused"),
        (Reply((), "refusal", TOKENS), "refused"),
        (reply(""), "empty"),
        (reply(" \n"), "empty"),
        (Reply((), "end_turn", TOKENS), "empty"),
        (Reply((ToolUse("Bash", {"command": "true"}),), "tool_use", TOKENS), "empty"),
        (Reply((Text("I use"), ToolUse("Bash", {})), "tool_use", TOKENS), "empty"),
    ],
)
async def test_no_text_has_its_class_and_its_cost(
    scripted: ScriptedApi, scripted_reply: Reply, kind: str
) -> None:
    scripted.script = Script(scripted_reply)
    failed = await asked(scripted.url, ask())
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.status, failed.model, failed.usage) == (kind, 0, "m", USAGE)


async def test_a_text_that_was_cut_says_so(scripted: ScriptedApi) -> None:
    scripted.script = Script(reply('{"ops": [', "max_tokens"))
    answer = await asked(scripted.url, ask())
    assert answer == Answer(id="1", text='{"ops": [', model="m", stop="cut", usage=USAGE)


async def test_an_error_is_sent_once_and_keeps_status_type_and_wish(scripted: ScriptedApi) -> None:
    scripted.script = Script(Failure(429, "rate_limit_error", retry_after="30"))
    failed = await asked(scripted.url, ask())
    assert failed == Failed(
        id="1", kind="transient", status=429, type="rate_limit_error", retry_after=30.0
    )
    assert len(scripted.messages) == 1


async def test_a_server_that_never_answers_is_cut_at_the_deadline() -> None:
    stop = Event()
    with serving(lambda _send: stop.wait(60)) as url:
        failed = await asked(url, ask(0.2))
        stop.set()
    assert failed == Failed(id="1", kind="transient", type="timeout")


async def test_a_server_that_drips_is_cut_at_the_deadline() -> None:
    stop = Event()

    def drip(send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while not stop.wait(0.02):
            send(b" ")

    with serving(drip) as url:
        failed = await asked(url, ask(0.3))
        stop.set()
    assert failed == Failed(id="1", kind="transient", type="timeout")


def page(status: str, body: bytes, *headers: str) -> Callable[[Send], object]:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    data = "\r\n".join([*lines, "", ""]).encode() + body
    return lambda send: send(data)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>log in here</html>",
        b'"a text"',
        b"[]",
        b'{"content": null, "model": "m"}',
        b'{"content": [',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_what_is_no_message_under_status_200_is_no_response(body: bytes) -> None:
    with serving(page("200 OK", body, "content-type: application/json")) as url:
        failed = await asked(url, ask())
    assert failed == Failed(id="1", kind="transient", type="not_json")


@pytest.mark.parametrize(
    ("status", "kind"), [("502 Bad Gateway", "transient"), ("403 Forbidden", "credentials")]
)
async def test_a_gateways_own_page_is_told_by_its_status(status: str, kind: str) -> None:
    with serving(page(status, b"<html/>", "content-type: text/html")) as url:
        failed = await asked(url, ask())
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.status, failed.type) == (kind, int(status[:3]), "")


async def test_a_code_tells_that_the_account_stands_in_the_way() -> None:
    body = (
        b'{"type": "error", "error": {"type": "rate_limit_error", "message": "m",'
        b' "details": {"error_code": "enforced_spend_limit_reached"}}}'
    )
    with serving(page("429 Too Many Requests", body, "content-type: application/json")) as url:
        failed = await asked(url, ask())
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.type) == ("credentials", "enforced_spend_limit_reached")


async def test_no_key_follows_a_redirect(scripted: ScriptedApi) -> None:
    with serving(page("307 Moved", b"", f"location: {scripted.url}/v1/messages")) as url:
        failed = await asked(url, ask())
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.status) == ("rejected", 307)
    assert scripted.calls == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_a_wish_to_wait_is_read_in_all_its_forms(headers: dict[str, str], seconds: float) -> None:
    assert _retry_after(headers, now=100.0) == seconds


@contextmanager
def serving(answer: Callable[[Send], object]) -> Iterator[str]:
    """A server that reads a request's head and answers with bytes as they are."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            try:
                answer(self.wfile.write)
            except OSError:
                return  # the client has gone

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
