from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.daemon.caller import Caller, Peer
from memoryd.daemon.dispatch import Dispatcher, RawAnswer, Stream, shim_headers
from memoryd.daemon.http import Answer, Request
from memoryd.errors import RequestError, StorageError
from memoryd.protocol import (
    EVENT_BODY_LIMIT,
    ROUTES,
    Done,
    GetLog,
    GetStatus,
    GetVersion,
    HookEvent,
    Message,
    Problem,
    PromptSubmitted,
    Save,
    SessionStarted,
    ShimHeaders,
    ToolsRan,
    TurnEnded,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
PEER = Peer(1000, 17)
EVENTS = Path(__file__).parents[1] / "fixtures" / "events"
ROUTE_OF = {
    "SessionStart": "session_started",
    "UserPromptSubmit": "prompt_submitted",
    "PostToolBatch": "tools_ran",
    "Stop": "turn_ended",
    "StopFailure": "turn_failed",
    "SessionEnd": "session_ended",
    "STATUSLINE": "statusline",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Recorder:
    """Handlers for every route that keep what they got and answer with `reply`."""

    def __init__(self, reply: Message | RawAnswer | Stream | Exception | None = None) -> None:
        self.reply = reply
        self.got: list[Message] = []
        self.callers: list[Caller] = []
        self.dispatcher = Dispatcher(dict.fromkeys(ROUTES.values(), self.handle))

    async def handle(self, message: Message, caller: Caller) -> Message | RawAnswer | Stream | None:
        self.got.append(message)
        self.callers.append(caller)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        pairs = [(f"memoryd-{k}".encode(), v.encode()) for k, v in headers.items()]
        request = Request(method, target, pairs, body)
        answer = await self.dispatcher.contained(
            self.dispatcher.answer(request, PEER, None), request
        )
        assert isinstance(answer, Answer)
        return answer

    async def post(self, route: str, body: bytes) -> Answer:
        return await self.ask("POST", f"/v1/{route}", body)


def recorded(file: Path) -> bytes:
    return file.read_bytes()


def problem(answer: Answer) -> Problem:
    found = msgspec.json.decode(answer.body, type=Problem)
    assert found.hint.startswith("memoryctl ") or answer.status >= 500
    return found


async def test_a_hook_event_becomes_its_type() -> None:
    recorder = Recorder()
    body = b'{"session_id":"s","cwd":"/p","stop_hook_active":true,"new_field":[1]}'
    answer = await recorder.post("turn_ended", body)
    assert (answer.status, answer.body) == (200, b"")
    assert recorder.got == [TurnEnded(session_id="s", cwd="/p", stop_hook_active=True)]


async def test_a_read_takes_its_fields_from_the_query() -> None:
    recorder = Recorder(Done(sentence="well"))
    answer = await recorder.ask("GET", "/v1/log?cwd=%2Fp%20q&limit=7&skipped=true&later=1")
    assert recorder.got == [GetLog(cwd="/p q", limit=7, skipped=True)]
    assert msgspec.json.decode(answer.body, type=Done) == Done(sentence="well")


async def test_a_caller_says_what_the_shim_and_the_kernel_said() -> None:
    recorder = Recorder()
    await recorder.ask("POST", "/v1/tools_ran", b'{"session_id":"s"}', env="pid=3331")
    (caller,) = recorder.callers
    assert (caller.peer, caller.shim) == (PEER, ShimHeaders(pid=31))
    assert caller.spooled
    await caller.gone()


async def test_a_raw_answer_goes_out_as_it_is() -> None:
    recorder = Recorder(RawAnswer(b"memory: +1", "text/plain"))
    answer = await recorder.ask("GET", "/v1/statusline")
    assert (answer.status, answer.body, answer.content_type) == (200, b"memory: +1", "text/plain")
    recorder.reply = RawAnswer(b"")
    assert (await recorder.ask("GET", "/v1/statusline")).status == 200


async def test_a_stream_is_handed_on() -> None:
    @asynccontextmanager
    async def source() -> AsyncIterator[AsyncIterator[Message]]:
        yield aiter_of(Done(sentence="a"))

    async def aiter_of(message: Message) -> AsyncIterator[Message]:
        yield message

    stream = Stream(source())
    recorder = Recorder(stream)
    request = Request("GET", "/v1/follow", [], b"")
    assert await recorder.dispatcher.answer(request, PEER, None) is stream
    assert recorder.dispatcher.line(Done(sentence="a")) == b'{"sentence":"a"}\n'


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b"", b'"s"', b"7", b'{"session_id":""}'])
async def test_what_is_no_event_is_refused(body: bytes) -> None:
    recorder = Recorder()
    answer = await recorder.post("turn_ended", body)
    assert answer.status == 400
    assert problem(answer).code == "bad_body"
    assert not recorder.got


@pytest.mark.parametrize(
    "body",
    [
        b'{"session_id":5}',
        b'{"session_id":"s","stop_hook_active":"x"}',
        b"\xff" * 999,
        b"[" * 99999,
    ],
)
async def test_a_wrong_type_is_refused_with_its_place(body: bytes) -> None:
    assert (await Recorder().post("turn_ended", body)).status == 400


async def test_a_cut_event_is_read_as_far_as_it_goes() -> None:
    recorder = Recorder()
    whole = json.dumps({"session_id": "s", "cwd": "/p", "prompt": "x" * 300_000})
    await recorder.post("prompt_submitted", whole.encode()[:EVENT_BODY_LIMIT])
    (got,) = recorder.got
    assert isinstance(got, PromptSubmitted)
    assert (got.session_id, got.cwd) == ("s", "/p")
    assert 262_000 < len(got.prompt) < EVENT_BODY_LIMIT


async def test_half_a_path_is_not_taken_for_a_path() -> None:
    recorder = Recorder()
    await recorder.post("tools_ran", b'{"session_id":"s","cwd":"/p","transcript_path":"/home/u')
    assert recorder.got == [ToolsRan(session_id="s", cwd="/p")]


async def test_a_cut_command_is_refused() -> None:
    assert (await Recorder().post("save", b'{"cwd":"/p","project":"x')).status == 400


async def test_lone_surrogates_and_bytes_that_are_no_text_are_replaced() -> None:
    recorder = Recorder()
    body = rb'{"session_id":"s","prompt":"a\ud83d b\ud83d\ude00 ' + b'\xff"}'
    await recorder.post("prompt_submitted", body)
    assert recorder.got == [PromptSubmitted(session_id="s", prompt="a\ufffd b😀 \ufffd")]


@given(st.binary(max_size=300), st.sampled_from(["turn_ended", "save", "session_started"]))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_body_hurts(body: bytes, route: str) -> None:
    answer = await Recorder().post(route, body)
    assert answer.status in (200, 400)


@pytest.mark.parametrize("file", sorted(EVENTS.glob("*-*.json")), ids=lambda file: file.stem)
async def test_the_recorded_events_of_the_host_are_read(file: Path) -> None:
    recorder = Recorder()
    kind = file.stem.partition("-")[0]
    answer = await recorder.post(ROUTE_OF[kind], recorded(file))
    assert answer.status == 200
    (got,) = recorder.got
    if isinstance(got, HookEvent):
        assert got.hook_event_name == kind
        assert all((got.session_id, got.cwd, got.transcript_path))


async def test_an_unknown_route_says_what_is_near() -> None:
    answer = await Recorder().post("turn_end", b"{}")
    assert (answer.status, problem(answer).code) == (404, "unknown_route")
    assert "POST /v1/turn_ended" in problem(answer).sentence
    assert (await Recorder().ask("GET", "/")).status == 404


async def test_a_wrong_method_says_the_right_one() -> None:
    answer = await Recorder().ask("GET", "/v1/save")
    assert (answer.status, answer.allow) == (405, "POST")
    assert problem(answer).sentence == "/v1/save takes POST, not GET"


@pytest.mark.parametrize(
    ("generation", "side", "hint"),
    [(0, "client", "memoryctl plugin-dir"), (2, "daemon", "memoryctl restart")],
)
async def test_another_generation_is_told_which_side_to_update(
    generation: int, side: str, hint: str
) -> None:
    answer = await Recorder().ask("POST", f"/v{generation}/turn_ended", b"{}")
    found = problem(answer)
    assert (answer.status, found.code, found.hint) == (404, "other_generation", hint)
    assert found.sentence.endswith(f"update the {side}")


async def test_a_route_without_a_handler_is_unknown() -> None:
    async def version(_message: GetVersion, _caller: Caller) -> None:
        return None

    dispatcher = Dispatcher({GetVersion: version})
    answer = await dispatcher.answer(Request("GET", "/v1/status", [], b""), PEER, None)
    assert isinstance(answer, Answer)
    assert answer.status == 404


@pytest.mark.parametrize(
    ("error", "status", "code", "hint"),
    [
        (
            RequestError(409, "paused", "saves are paused", "memoryctl resume"),
            409,
            "paused",
            "memoryctl resume",
        ),
        (StorageError("/p", "write", "No space left on device"), 500, "storage", ""),
        (ValueError("a prompt"), 500, "internal", "memoryctl logs"),
        (ExceptionGroup("x", [KeyError("a prompt")]), 500, "internal", "memoryctl logs"),
    ],
)
async def test_a_handlers_error_becomes_a_problem(
    error: Exception, status: int, code: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await Recorder(error).post("save", b"{}")
    found = problem(answer)
    assert (answer.status, found.code, found.hint) == (status, code, hint)
    assert "a prompt" not in found.sentence + caplog.text


@pytest.mark.parametrize("query", ["limit=x", "limit=7.5", "&".join(f"a{n}=1" for n in range(99))])
async def test_a_wrong_query_is_refused(query: str) -> None:
    answer = await Recorder().ask("GET", f"/v1/log?{query}")
    assert (answer.status, problem(answer).code) == (400, "bad_query")


async def test_what_counts_as_an_event() -> None:
    dispatcher = Recorder().dispatcher
    assert dispatcher.takes_event(Request("POST", "/v1/turn_ended", [], b""))
    for method, target in (
        ("POST", "/v1/shutdown"),
        ("GET", "/v1/status"),
        ("POST", "/v2/turn_ended"),
    ):
        assert not dispatcher.takes_event(Request(method, target, [], b""))


PLAIN = {"event", "part"}


def said(**values: str) -> ShimHeaders:
    plain = [(f"memoryd-{name}".encode(), values.pop(name).encode()) for name in PLAIN & {*values}]
    env = ";".join(f"{name}={value}" for name, value in values.items())
    return shim_headers([*plain, (b"memoryd-env", env.encode())])


def test_every_value_of_a_shim_is_read() -> None:
    assert said(
        event="0123456789abcdef",
        part="3",
        pid=b"4711".hex(),
        config_dir="/home/ü/.claude\n".encode().hex(),
        project_dir=b"/p".hex(),
        executable=b"/usr/bin/claude".hex(),
        entrypoint=b"cli".hex(),
        attended=b"1".hex(),
        origin=b"/shim.py".hex(),
    ) == ShimHeaders(
        event="0123456789abcdef",
        part=3,
        pid=4711,
        config_dir="/home/ü/.claude\n",
        project_dir="/p",
        executable="/usr/bin/claude",
        entrypoint="cli",
        attended="1",
        origin="/shim.py",
    )


@pytest.mark.parametrize(
    "values",
    [
        {"config_dir": "zz"},
        {"config_dir": "abc"},
        {"config_dir": b"\xff\xfe".hex()},
        {"config_dir": b"/a\0b".hex()},
        {"event": "../../etc"},
        {"event": "0123456789ABCDEF"},
        {"part": "-1"},
        {"part": "7"},
        {"part": "\u0661"},
        {"pid": b"-5".hex()},
        {"pid": b"99999999999".hex()},
        {"pid": b"1e3".hex()},
        {"unknown": "00"},
        {"pid": ""},
        {"": ";;"},
        {},
    ],
)
def test_a_value_that_cant_be_read_counts_as_not_said(values: dict[str, str]) -> None:
    assert said(**values) == ShimHeaders()


@given(
    st.lists(st.tuples(st.sampled_from(["event", "part", "env", "cwd"]), st.binary(max_size=40)))
)
def test_no_header_hurts(pairs: list[tuple[str, Any]]) -> None:
    shim_headers([(f"memoryd-{name}".encode(), value) for name, value in pairs])


def test_reads_and_commands_have_no_other_base() -> None:
    assert not issubclass(GetStatus, HookEvent)
    assert not issubclass(Save, HookEvent)
    assert issubclass(SessionStarted, HookEvent)
