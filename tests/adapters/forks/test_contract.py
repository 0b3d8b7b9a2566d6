"""What every backend owes: the digest with its worker, `claude` with a scripted program, the fake."""

from __future__ import annotations

import json
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from fake_forks import FakeBackend

from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks.claude import ClaudeBackend
from memoryd.adapters.forks.sdk import DigestBackend
from memoryd.adapters.secrets import Secrets
from memoryd.config import Settings
from memoryd.demo.script import Answer, Call, Failure, Hang, Reply, StopReason, Text, Tokens
from memoryd.ports import ForkFailure, ForkReply, ForkRequest, SessionRef
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memoryd.adapters.forks.worker_link import WorkerLink
    from memoryd.demo.messages_api import ScriptedApi
    from memoryd.ports import ForkBackend

pytestmark = pytest.mark.anyio

MODEL = "claude-haiku-5-5"
USAGE = Usage(input=11, cache_read=33, cache_write=22, output=44)
TOKENS = Tokens(input=11, cache_read=33, cache_write=22, output=44)
SESSION = SessionRef("session", Path("/none.jsonl"), Path("/none"), Path("/"))


def request(*, deadline: float = 20.0, conversation: tuple[str, ...] = ("one",)) -> ForkRequest:
    return ForkRequest(uuid4().hex, SESSION, "what to keep?", conversation, deadline)


class Arena(Protocol):
    """A backend together with what decides on its outcomes."""

    @property
    def backend(self) -> ForkBackend: ...

    def outcomes(self, *outcomes: ForkReply | ForkFailure) -> None: ...

    def hang(self) -> None: ...


class DigestArena:
    def __init__(self, api: ScriptedApi, worker: WorkerLink) -> None:
        env = {"ANTHROPIC_API_KEY": "sk-made-up", "ANTHROPIC_BASE_URL": api.url, "HOME": "/"}
        settings = Settings()
        secrets = Secrets(env, lambda: settings, SystemClock())
        self.backend = DigestBackend(env, lambda: settings, secrets, worker)
        self._api = api

    def outcomes(self, *outcomes: ForkReply | ForkFailure) -> None:
        replies = deque(_scripted(outcome) for outcome in outcomes)

        def script(_: Call) -> Reply:
            return replies.popleft() if len(replies) > 1 else replies[0]

        self._api.script = script

    def hang(self) -> None:
        self._api.script = lambda _: Hang()


NOW = 1_000.0

PROGRAM = """#!{python} -IS
import os, sys, time
sys.stdin.read()
folder = os.path.dirname(os.path.abspath(__file__)) + "/outcomes/"
while True:
    first, *others = sorted(name for name in os.listdir(folder) if not name.endswith(".taken"))
    taken = folder + first
    try:
        if others:
            os.rename(taken, taken := taken + ".taken")
        break
    except FileNotFoundError:
        pass  # another process took it
with open(taken) as file:
    lines = file.read()
if not lines:
    time.sleep(600)
print(lines, flush=True)
"""


class StillClock(SystemClock):
    def now(self) -> float:
        return NOW


class ClaudeArena:
    """The client is a program that says the lines of the next outcome, the last one for ever."""

    def __init__(self, folder: Path) -> None:
        self._outcomes = folder / "outcomes"
        self._outcomes.mkdir()
        program = folder / "claude"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        env = {"HOME": str(folder), "PATH": str(folder)}
        settings = Settings()
        self.backend = ClaudeBackend(env, lambda: settings, StillClock())

    def outcomes(self, *outcomes: ForkReply | ForkFailure) -> None:
        self._plan("\n".join(map(json.dumps, _said(outcome))) for outcome in outcomes)

    def hang(self) -> None:
        self._plan([""])

    def _plan(self, plans: Iterable[str]) -> None:
        for file in self._outcomes.iterdir():
            file.unlink()
        for number, lines in enumerate(plans):
            (self._outcomes / f"{number:02}").write_text(lines)


class FakeArena:
    def __init__(self) -> None:
        self.backend = FakeBackend()

    def outcomes(self, *outcomes: ForkReply | ForkFailure) -> None:
        self.backend.hold = None
        self.backend.outcomes = deque(outcomes)

    def hang(self) -> None:
        self.backend.hold = anyio.Event()


def _scripted(outcome: ForkReply | ForkFailure) -> Reply:
    if isinstance(outcome, ForkReply):
        stop: StopReason = "max_tokens" if outcome.stop == "cut" else "end_turn"
        return Answer((Text(outcome.text),), stop_reason=stop, tokens=TOKENS)
    if outcome.kind in ("refused", "empty"):
        stop = "refusal" if outcome.kind == "refused" else "end_turn"
        return Answer((), stop_reason=stop, tokens=TOKENS)
    after = f"{outcome.retry_after:g}" if outcome.retry_after else ""
    return Failure(outcome.status, outcome.type, retry_after=after)


CLIENTS_TOKENS = {
    "input_tokens": 11,
    "cache_read_input_tokens": 33,
    "cache_creation_input_tokens": 22,
    "output_tokens": 44,
}


def _said(outcome: ForkReply | ForkFailure) -> list[dict[str, Any]]:
    """What the client says where the API answers so."""
    if isinstance(outcome, ForkFailure) and outcome.status:
        reset = {"status": "rejected", "resetsAt": NOW + outcome.retry_after}
        return [
            {"type": "rate_limit_event", "rate_limit_info": reset},
            {"type": "assistant", "message": {"model": "<synthetic>"}},
            {
                "type": "result",
                "is_error": True,
                "api_error_status": outcome.status,
                "api_error_type": outcome.type,
            },
        ]
    text = outcome.text if isinstance(outcome, ForkReply) else ""
    stop = "refusal" if outcome == REFUSED else "end_turn"
    if isinstance(outcome, ForkReply) and outcome.stop == "cut":
        stop = "max_tokens"
    message = {"model": MODEL, "content": [{"type": "text", "text": text}], "usage": CLIENTS_TOKENS}
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": CLIENTS_TOKENS}
    return [
        {"type": "stream_event", "event": {"type": "message_start", "message": message}},
        {"type": "assistant", "message": message},
        {"type": "stream_event", "event": end},
        {"type": "result", "is_error": False, "result": text, "usage": CLIENTS_TOKENS},
    ]


@pytest.fixture(params=["digest", "claude", "fake"])
def arena(request: pytest.FixtureRequest) -> Arena:
    if request.param == "fake":
        return FakeArena()
    if request.param == "claude":
        return ClaudeArena(request.getfixturevalue("tmp_path"))
    return DigestArena(request.getfixturevalue("api"), request.getfixturevalue("worker"))


GOOD = ForkReply('{"ops": []}', MODEL, USAGE)
REFUSED = ForkFailure("refused", usage=USAGE, model=MODEL)


async def fault(arena: Arena) -> str:
    """As the daemon asks for it: it may look at files."""
    return await anyio.to_thread.run_sync(arena.backend.fault, SESSION)


async def test_a_reply_comes_with_its_model_and_cost(arena: Arena) -> None:
    arena.outcomes(GOOD)
    assert await arena.backend.fork(request()) == GOOD
    assert await fault(arena) == ""


async def test_a_reply_that_was_cut_keeps_its_text(arena: Arena) -> None:
    cut = ForkReply('{"ops": [', MODEL, USAGE, "cut")
    arena.outcomes(cut)
    assert await arena.backend.fork(request()) == cut


@pytest.mark.parametrize(
    "failure",
    [
        ForkFailure("transient", 429, "rate_limit_error", 30.0),
        ForkFailure("transient", 500, "api_error"),
        ForkFailure("transient", 529, "overloaded_error"),
        ForkFailure("too_long", 400, "invalid_request_error"),
        ForkFailure("rejected", 404, "not_found_error"),
        REFUSED,
        ForkFailure("empty", usage=USAGE, model=MODEL),
    ],
    ids=lambda failure: f"{failure.kind}-{failure.status}",
)
async def test_a_failure_is_a_value_and_the_next_fork_is_tried(
    arena: Arena, failure: ForkFailure
) -> None:
    arena.outcomes(failure, GOOD)
    assert await arena.backend.fork(request()) == failure
    assert await fault(arena) == ""
    assert await arena.backend.fork(request()) == GOOD


async def test_refused_credentials_are_a_fault_until_the_person_asks(arena: Arena) -> None:
    failure = ForkFailure("credentials", 401, "authentication_error")
    arena.outcomes(failure, GOOD)
    assert await arena.backend.fork(request()) == failure
    assert await fault(arena) != ""
    arena.backend.release()
    assert await fault(arena) == ""
    assert await arena.backend.fork(request()) == GOOD
    assert await fault(arena) == ""


@pytest.mark.parametrize("conversation", [(), ("", " \n")])
async def test_without_a_conversation_there_is_nothing_to_fork(
    arena: Arena, conversation: tuple[str, ...]
) -> None:
    assert await arena.backend.fork(request(conversation=conversation)) == ForkFailure("nothing")


async def test_a_fork_ends_at_its_deadline_and_the_next_is_answered(arena: Arena) -> None:
    arena.backend.warm()
    arena.outcomes(GOOD)
    await arena.backend.fork(request())
    arena.hang()
    failure = await arena.backend.fork(request(deadline=0.2))
    assert isinstance(failure, ForkFailure)
    assert (failure.kind, failure.status) == ("transient", 0)
    arena.outcomes(GOOD)
    assert await arena.backend.fork(request()) == GOOD


async def test_a_cancelled_fork_ends_at_once_and_the_next_is_answered(arena: Arena) -> None:
    arena.hang()
    with anyio.move_on_after(0.2) as waiting:
        await arena.backend.fork(request())
    assert waiting.cancelled_caught
    arena.outcomes(GOOD)
    assert await arena.backend.fork(request()) == GOOD


async def test_forks_side_by_side_get_their_own_replies(arena: Arena) -> None:
    replies = [ForkReply(f"reply {number}", MODEL, USAGE) for number in range(8)]
    arena.outcomes(*replies)
    got: list[ForkReply | ForkFailure] = []

    async def one() -> None:
        got.append(await arena.backend.fork(request()))

    async with anyio.create_task_group() as tasks:
        for _ in replies:
            tasks.start_soon(one)
    assert all(reply in replies for reply in got)
    assert len({reply.text for reply in got if isinstance(reply, ForkReply)}) == len(replies)
