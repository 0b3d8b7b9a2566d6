"""What every backend owes, shown on the digest backend with its worker, and on the fake."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import anyio
import pytest
from fake_forks import FakeBackend

from memoryd.adapters.clock import SystemClock
from memoryd.adapters.forks.sdk import DigestBackend
from memoryd.adapters.secrets import Secrets
from memoryd.config import Settings
from memoryd.demo.script import Answer, Call, Failure, Hang, Reply, StopReason, Text, Tokens
from memoryd.ports import ForkFailure, ForkReply, ForkRequest, SessionRef
from memoryd.protocol import Usage

if TYPE_CHECKING:
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


@pytest.fixture(params=["digest", "fake"])
def arena(request: pytest.FixtureRequest) -> Arena:
    if request.param == "fake":
        return FakeArena()
    return DigestArena(request.getfixturevalue("api"), request.getfixturevalue("worker"))


GOOD = ForkReply('{"ops": []}', MODEL, USAGE)


async def test_a_reply_comes_with_its_model_and_cost(arena: Arena) -> None:
    arena.outcomes(GOOD)
    assert await arena.backend.fork(request()) == GOOD
    assert arena.backend.fault(SESSION) == ""


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
        ForkFailure("refused", usage=USAGE, model=MODEL),
        ForkFailure("empty", usage=USAGE, model=MODEL),
    ],
    ids=lambda failure: f"{failure.kind}-{failure.status}",
)
async def test_a_failure_is_a_value_and_the_next_fork_is_tried(
    arena: Arena, failure: ForkFailure
) -> None:
    arena.outcomes(failure, GOOD)
    assert await arena.backend.fork(request()) == failure
    assert arena.backend.fault(SESSION) == ""
    assert await arena.backend.fork(request()) == GOOD


async def test_refused_credentials_are_a_fault_until_the_person_asks(arena: Arena) -> None:
    failure = ForkFailure("credentials", 401, "authentication_error")
    arena.outcomes(failure, GOOD)
    assert await arena.backend.fork(request()) == failure
    assert arena.backend.fault(SESSION) != ""
    arena.backend.release()
    assert arena.backend.fault(SESSION) == ""
    assert await arena.backend.fork(request()) == GOOD
    assert arena.backend.fault(SESSION) == ""


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
