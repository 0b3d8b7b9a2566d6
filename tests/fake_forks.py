"""A backend that answers by a script, for tests of what stands above it.

It passes the same contract tests as the real ones (tests/adapters/forks/test_contract.py).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

from memoryd.ports import Choice, ForkFailure, ForkReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.ports import ForkBackend, ForkRequest, SessionRef

Outcome = ForkReply | ForkFailure

NOTHING_LEARNED = ForkReply('{"ops": [], "topics": []}', "fake-model")


class FakeBackend:
    """Gives its outcomes in turn, the last one for ever; a function is asked with the request.

    `hold`, where set, is waited for before each outcome, up to the request's deadline.
    """

    def __init__(
        self, *outcomes: Outcome | Callable[[ForkRequest], Outcome], name: str = "fake"
    ) -> None:
        self.name = name
        self.outcomes = deque(outcomes or (NOTHING_LEARNED,))
        self.requests: list[ForkRequest] = []
        self.warmed = 0
        self.fault_text = ""
        self.on_subscription = False
        self.hold: anyio.Event | None = None
        self.started = anyio.Event()
        self._refused = False

    def fault(self, session: SessionRef | None) -> str:  # noqa: ARG002
        return self.fault_text or ("refused before" if self._refused else "")

    def warm(self) -> None:
        self.warmed += 1

    def release(self) -> None:
        self._refused = False

    async def fork(self, request: ForkRequest) -> Outcome:
        self.requests.append(request)
        self.started.set()
        if not any(text.strip() for text in request.conversation):
            return ForkFailure("nothing")
        with anyio.move_on_after(request.deadline) as waiting:
            await anyio.lowlevel.checkpoint()
            if self.hold is not None:
                await self.hold.wait()
        if waiting.cancelled_caught:
            return ForkFailure("transient", type="timeout")
        outcome = self.outcomes.popleft() if len(self.outcomes) > 1 else self.outcomes[0]
        if not isinstance(outcome, ForkReply | ForkFailure):
            outcome = outcome(request)
        self._refused = isinstance(outcome, ForkFailure) and outcome.kind == "credentials"
        return outcome


class FakeChooser:
    """Always the backend it was made with, or none for its fault."""

    def __init__(self, backend: ForkBackend) -> None:
        self.backend = backend

    def choose(self, session: SessionRef) -> Choice:
        fault = self.backend.fault(session)
        return Choice(None, fault) if fault else Choice(self.backend, "the only one")

    def backends(self) -> tuple[ForkBackend, ...]:
        return (self.backend,)

    def release(self) -> None:
        self.backend.release()
