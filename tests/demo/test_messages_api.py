from __future__ import annotations

import json
import time
from http.client import HTTPConnection, RemoteDisconnected
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from memoryd.demo.messages_api import ScriptedApi
from memoryd.demo.script import (
    Answer,
    Call,
    Failure,
    Hang,
    Script,
    Text,
    Tokens,
    ToolUse,
    text,
    tool,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as served:
        yield served


def ask(api: ScriptedApi, *words: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a conversation of one user message."""
    content = [{"type": "text", "text": word} for word in words]
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": content}],
        **more,
    }
    return send(api, "POST", "/v1/messages?beta=true", json.dumps(body).encode())


def send(
    api: ScriptedApi, method: str, path: str, body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(api.url.removeprefix("http://"), timeout=20.0)
    try:
        connection.request(method, path, body, {"X-Api-Key": "made-up"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def events(stream: bytes) -> list[dict[str, Any]]:
    """The data of a stream's events; checks that each carries its type as its name."""
    found = []
    for block in stream.decode().strip().split("\n\n"):
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


class TestAnswers:
    def test_a_text(self, api: ScriptedApi) -> None:
        api.script = Script(
            Answer((Text("hello"),), tokens=Tokens(input=1, cache_read=2, cache_write=3, output=4))
        )
        status, _, body = ask(api, "hi")
        message = json.loads(body)
        assert (status, message["role"], message["model"]) == (200, "assistant", "m")
        assert message["content"] == [{"type": "text", "text": "hello"}]
        assert message["stop_reason"] == "end_turn"
        assert message["usage"] == {
            "input_tokens": 1,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 2,
            "output_tokens": 4,
        }

    def test_a_tool_use_has_an_id_of_its_own(self, api: ScriptedApi) -> None:
        api.script = Script(tool("Bash", command="true"))
        first, second = (json.loads(ask(api, "go")[2]) for _ in range(2))
        assert first["stop_reason"] == "tool_use"
        assert first["content"][0]["input"] == {"command": "true"}
        assert first["content"][0]["id"] != second["content"][0]["id"]
        assert first["id"] != second["id"]

    @pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
    def test_another_end(self, api: ScriptedApi, reason: Any) -> None:
        api.script = Script(text("half", stop_reason=reason))
        assert json.loads(ask(api, "hi")[2])["stop_reason"] == reason

    def test_a_stream(self, api: ScriptedApi) -> None:
        blocks = (Text("hello"), ToolUse("Bash", {"command": "true"}))
        api.script = Script(Answer(blocks, stop_reason="tool_use"))
        status, headers, body = ask(api, "hi", stream=True)
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        found = events(body)
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        assert [event["type"] for event in found] == [
            "message_start",
            *block,
            *block,
            "message_delta",
            "message_stop",
        ]
        assert found[0]["message"]["content"] == []
        assert found[2]["delta"] == {"type": "text_delta", "text": "hello"}
        assert json.loads(found[5]["delta"]["partial_json"]) == {"command": "true"}
        assert found[7]["delta"]["stop_reason"] == "tool_use"

    def test_a_failure(self, api: ScriptedApi) -> None:
        api.script = Script(Failure(429, "rate_limit_error", "slowly", retry_after="7"))
        status, headers, body = ask(api, "hi")
        assert (status, headers["retry-after"]) == (429, "7")
        assert json.loads(body) == {
            "type": "error",
            "error": {"type": "rate_limit_error", "message": "slowly"},
        }

    def test_no_answer_until_the_end(self) -> None:
        ended: list[str] = []

        def wait(served: ScriptedApi) -> None:
            try:
                ask(served, "hi")
            except RemoteDisconnected:
                ended.append("closed")

        with ScriptedApi(Script(Hang())) as served:
            client = Thread(target=wait, args=(served,))
            client.start()
            served.wait_for(lambda call: call.is_messages)
            assert ended == []
        client.join(20.0)
        assert ended == ["closed"]

    def test_an_answer_waits_for_its_event(self, api: ScriptedApi) -> None:
        go = Event()
        api.script = Script(text("late", hold=go))
        answers: list[bytes] = []
        client = Thread(target=lambda: answers.append(ask(api, "hi")[2]))
        client.start()
        api.wait_for(lambda call: call.is_messages)
        assert answers == []
        go.set()
        client.join(20.0)
        assert json.loads(answers[0])["content"][0]["text"] == "late"

    def test_a_stream_waits_with_its_text_shown(self, api: ScriptedApi) -> None:
        go = Event()
        api.script = Script(Answer((Text("shown"),), hold_inside=go))
        connection = HTTPConnection(api.url.removeprefix("http://"), timeout=20.0)
        connection.request("POST", "/v1/messages", json.dumps({"stream": True, "messages": []}))
        answer = connection.getresponse()
        seen = b""
        while b"content_block_stop" not in seen:
            seen += answer.read1()
        assert b"shown" in seen
        assert b"message_stop" not in seen
        go.set()
        assert b"message_stop" in answer.read()
        connection.close()


class TestScript:
    def test_the_first_rule_that_fits_and_its_replies_in_turn(self, api: ScriptedApi) -> None:
        api.script = (
            Script(text("other"))
            .on("count", text("one"), text("two"))
            .on(lambda call: call.model == "m" and call.holds("c"), text("second rule"))
        )
        said = [json.loads(ask(api, words)[2])["content"][0]["text"] for words in WORDS]
        assert said == ["one", "two", "two", "second rule", "other"]

    def test_a_rule_looks_at_what_came_since_the_last_answer(self, api: ScriptedApi) -> None:
        api.script = Script(text("other")).on("old", text("wrong")).on("result", text("right"))
        messages = [
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": "old answer"},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "content": [{"type": "text", "text": "a result"}]}
                ],
            },
            {"role": "system", "content": "injected"},
        ]
        body = json.dumps({"messages": messages}).encode()
        answer = json.loads(send(api, "POST", "/v1/messages", body)[2])
        assert answer["content"][0]["text"] == "right"


WORDS = ["count", "please count", "count", "c", "x"]


class TestRecord:
    def test_what_was_asked(self, api: ScriptedApi) -> None:
        ask(api, "first", "second", system=[{"type": "text", "text": "rules"}], stream=False)
        (call,) = api.messages
        assert (call.model, call.system, call.streamed) == ("m", "rules", False)
        assert call.texts == ["first", "second"]
        assert call.headers["x-api-key"] == "made-up"
        assert call.holds("irs")
        assert "first" not in repr(call)
        assert "made-up" not in repr(call)

    def test_probes_are_answered_and_are_no_messages(self, api: ScriptedApi) -> None:
        assert send(api, "HEAD", "/")[0] == 200
        assert send(api, "GET", "/v1/models")[0] == 200
        status, _, body = send(api, "POST", "/v1/messages/count_tokens", b"x" * 40)
        assert (status, json.loads(body)) == (200, {"input_tokens": 10})
        assert [call.path for call in api.calls] == ["/", "/v1/models", "/v1/messages/count_tokens"]
        assert api.messages == []

    @pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{}"])
    def test_rubbish_is_answered(self, api: ScriptedApi, body: bytes) -> None:
        assert send(api, "POST", "/v1/messages", body)[0] == 200
        assert api.messages[0].texts == []

    def test_waiting_for_what_never_comes(self, api: ScriptedApi) -> None:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            api.wait_for(lambda call: call.is_messages, seconds=0.01)
        assert time.monotonic() - begun < 10.0

    def test_it_listens_on_the_loopback_only(self, api: ScriptedApi) -> None:
        assert api.url.startswith("http://127.0.0.1:")


def test_values_that_hold_text_show_its_length() -> None:
    assert repr(Text("secret words")) == "Text(12 characters)"
    assert "secret" not in repr(tool("Bash", command="secret"))
    assert "secret" not in repr(Call("POST", "/", {}, b"secret"))
