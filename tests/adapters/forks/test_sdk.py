from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
import pytest

from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks.sdk import DigestBackend
from memoryd.adapters.forks.sizing import CHARACTERS_PER_TOKEN, LEFT_OUT
from memoryd.adapters.secrets import Secrets
from memoryd.config import ForkSettings, Settings
from memoryd.demo.script import Call, Failure, Reply, Script, text
from memoryd.ports import ForkFailure, ForkReply, ForkRequest, SessionRef

if TYPE_CHECKING:
    from memoryd.adapters.forks.worker_link import WorkerLink
    from memoryd.demo.messages_api import ScriptedApi

pytestmark = pytest.mark.anyio

SESSION = SessionRef("session", Path("/none.jsonl"), Path("/none"), Path("/"))
KEY = "sk-ant-made-up"
REFUSAL = Failure(401, "authentication_error")


def request(*conversation: str, shrunk: bool = False) -> ForkRequest:
    return ForkRequest(uuid4().hex, SESSION, "what to keep?", conversation, 20.0, shrunk=shrunk)


class Bench:
    """A digest backend whose config and environment a test changes."""

    def __init__(self, api: ScriptedApi, worker: WorkerLink, home: Path) -> None:
        self.api = api
        self.home = home
        self.settings = Settings()
        self.env = {"HOME": str(home), "PATH": os.defpath, "ANTHROPIC_API_KEY": KEY}
        self.env["ANTHROPIC_BASE_URL"] = api.url
        secrets = Secrets(self.env, lambda: self.settings, SystemClock())
        self.backend = DigestBackend(self.env, lambda: self.settings, secrets, worker)

    @property
    def last(self) -> Call:
        return self.api.messages[-1]

    async def fault(self) -> str:
        return await anyio.to_thread.run_sync(self.backend.fault, SESSION)


@pytest.fixture
def bench(api: ScriptedApi, worker: WorkerLink, tmp_path: Path) -> Bench:
    return Bench(api, worker, tmp_path)


async def test_the_conversation_comes_first_with_the_mark_on_its_last_text(bench: Bench) -> None:
    await bench.backend.fork(request("turn one", "turn two"))
    body = bench.last.body
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "turn one"},
                {"type": "text", "text": "turn two", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "what to keep?"},
            ],
        }
    ]
    assert body["model"] == "claude-haiku-5-5"
    assert body["max_tokens"] <= 21_333
    assert "stream" not in body
    assert "material" in bench.last.system


async def test_it_speaks_to_the_api_as_the_host_does(bench: Bench) -> None:
    await bench.backend.fork(request("turn"))
    assert bench.last.headers["x-api-key"] == KEY
    assert bench.last.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in bench.last.headers


async def test_the_base_url_of_the_config_stands_before_the_environments(
    bench: Bench, api: ScriptedApi
) -> None:
    bench.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:1"
    bench.settings = Settings(base_url=api.url)
    assert isinstance(await bench.backend.fork(request("turn")), ForkReply)


async def test_a_changed_config_counts_with_the_next_fork(bench: Bench) -> None:
    await bench.backend.fork(request("turn"))
    bench.settings = Settings(fork=ForkSettings(digest_model="another-model"))
    bench.env["ANTHROPIC_API_KEY"] = "sk-ant-made-up-2"
    await bench.backend.fork(request("turn"))
    assert bench.last.model == "another-model"
    assert bench.last.headers["x-api-key"] == "sk-ant-made-up-2"


async def test_it_is_sized_beforehand_and_halved_where_that_was_too_long(bench: Bench) -> None:
    bench.settings = Settings(fork=ForkSettings(digest_tokens=2000))
    turns = [f"{number}".ljust(1000, "x") for number in range(20)]
    await bench.backend.fork(request(*turns))
    sent = bench.last.texts[:-1]
    assert sent[0] == LEFT_OUT
    assert sum(map(len, sent)) <= 2000 * CHARACTERS_PER_TOKEN
    await bench.backend.fork(request(*turns, shrunk=True))
    halved = bench.last.texts[:-1]
    assert sum(map(len, halved)) <= sum(map(len, sent)) // 2
    assert halved[-1] == turns[-1]


async def test_words_of_an_answer_decide_nothing(bench: Bench) -> None:
    words = "429 overloaded_error Not logged in prompt is too long credit balance too low"
    bench.api.script = Script(text(words))
    reply = await bench.backend.fork(request(words))
    assert isinstance(reply, ForkReply)
    assert reply.text == words
    assert await bench.fault() == ""


async def test_a_key_that_was_changed_where_it_is_kept_is_tried_at_once(bench: Bench) -> None:
    old, new = "sk-ant-made-up-old", "sk-ant-made-up-new"
    file = bench.home / "store"
    file.write_text(old)
    bench.settings = Settings(api_key_command=f"cat '{file}'")
    await bench.backend.fork(request("turn"))
    assert bench.last.headers["x-api-key"] == old
    file.write_text(new)

    def only_new(call: Call) -> Reply:
        return text("ok") if call.headers["x-api-key"] == new else REFUSAL

    bench.api.script = only_new
    assert isinstance(await bench.backend.fork(request("turn")), ForkReply)
    assert [call.headers["x-api-key"] for call in bench.api.messages] == [old, old, new]


async def test_a_refused_key_is_not_sent_again_until_config_or_file_change(bench: Bench) -> None:
    file = bench.home / "key"
    file.write_text("sk-ant-made-up-old")
    file.chmod(0o600)
    bench.settings = Settings(api_key_file="~/key")
    bench.api.script = Script(REFUSAL)
    failure = await bench.backend.fork(request("turn"))
    assert failure == ForkFailure("credentials", 401, "authentication_error")
    assert len(bench.api.messages) == 1
    assert await bench.fault() == (
        "the fork got an API error, 401 (authentication):"
        " set a key that works: `memoryctl config path` names the file"
    )
    file.unlink()
    file.write_text("sk-ant-made-up-new")
    file.chmod(0o600)
    assert await bench.fault() == ""
    await bench.backend.fork(request("turn"))
    assert await bench.fault() != ""
    bench.settings = msgspec.structs.replace(bench.settings, base_url=bench.api.url)
    assert await bench.fault() == ""


@pytest.mark.parametrize(
    ("status", "type_"),
    [(401, "authentication_error"), (402, "billing_error"), (403, "permission_error")],
)
async def test_what_the_account_refuses_stops_the_backend(
    bench: Bench, status: int, type_: str
) -> None:
    bench.api.script = Script(Failure(status, type_))
    failure = await bench.backend.fork(request("turn"))
    assert isinstance(failure, ForkFailure)
    assert failure.kind == "credentials"
    assert await bench.fault() != ""


async def test_without_a_key_nothing_is_sent(bench: Bench) -> None:
    del bench.env["ANTHROPIC_API_KEY"]
    assert await bench.fault() == "no API key is set (api_key_file or api_key_command)"
    failure = await bench.backend.fork(request("turn"))
    assert failure == ForkFailure("credentials", type="no_api_key")
    assert bench.api.calls == []


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (Settings(base_url="api.example.org"), "base_url is no http or https address"),
        (Settings(base_url="http://[broken"), "base_url is no http or https address"),
        (Settings(https_proxy="proxy:3128"), "https_proxy is no http or https address"),
        (Settings(ca_bundle="/nowhere.pem"), "ca_bundle /nowhere.pem is no file"),
    ],
)
async def test_a_setting_that_can_not_work_is_named(
    bench: Bench, settings: Settings, fault: str
) -> None:
    bench.settings = settings
    assert await bench.fault() == fault


async def test_a_ca_bundle_without_certificates_is_named_and_hurts_no_other(bench: Bench) -> None:
    bundle = bench.home / "bundle.pem"
    bundle.write_text("no certificate\n")
    bench.settings = Settings(ca_bundle=str(bundle))
    failure = await bench.backend.fork(request("turn"))
    assert failure == ForkFailure("rejected", type="ca_bundle_unusable")
    bench.settings = Settings()
    assert isinstance(await bench.backend.fork(request("turn")), ForkReply)


async def test_a_text_that_utf_8_can_not_hold_is_sent_mended(bench: Bench) -> None:
    await bench.backend.fork(request("half a \ud83d pair"))
    assert bench.last.texts[0] == "half a \ufffd pair"


async def test_no_answer_of_a_server_that_is_not_there(bench: Bench) -> None:
    bench.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:1"
    failure = await bench.backend.fork(request("turn"))
    assert failure == ForkFailure("transient")


async def test_a_large_conversation_and_a_large_answer_pass(bench: Bench) -> None:
    bench.settings = Settings(fork=ForkSettings(digest_tokens=1_000_000))
    answer = "é" * 2_500_000
    bench.api.script = Script(text(answer))
    reply = await bench.backend.fork(request("x" * 2_000_000))
    assert isinstance(reply, ForkReply)
    assert reply.text == answer
