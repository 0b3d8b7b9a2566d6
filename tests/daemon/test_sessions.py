"""Sessions: what an event costs, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from rooms import Home, quick_root
from wire import CLOCK_BACKEND

from memoryd.protocol import Effort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from memoryd import ports

T = TypeVar("T")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


class Counted(Home):
    """A home whose daemon's ledger counts what it is asked."""

    asked = 0

    def seen(self, ledger: ports.LedgerThread) -> ports.LedgerThread:
        self._ledger = ledger
        return self

    async def commit(self, work: Callable[[ports.Ledger], T]) -> T:
        self.asked += 1
        return await self._ledger.commit(work)


@pytest.fixture
async def home() -> AsyncIterator[Counted]:
    with quick_root() as root:
        yield Counted(root)


async def test_only_the_first_tool_of_a_turn_asks_the_ledger(home: Counted) -> None:
    async with home.daemon():
        talk = home.talk()
        for turn in (1, 2):
            await talk.prompt(f"turn {turn}, nothing to remember")
            before = home.asked
            await talk.tool()
            assert home.asked > before
            before = home.asked
            for _ in range(20):
                await talk.tool()
            assert home.asked == before
            await talk.answer()
            await home.at.quiet()


async def test_a_tool_s_event_that_brings_news_of_its_session_is_kept(home: Counted) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.prompt("go")
        await talk.tool()
        await talk.tool(effort=Effort(level="high"))
        assert (await daemon.row()).effort == "high"


async def test_tools_keep_a_session_from_being_silent(home: Counted) -> None:
    home.configure('idle_save_after = "10 min"\n')
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.prompt("FACT-1 and then much work")
        for _ in range(5):
            await talk.tool()
            await daemon.later(590)
        assert home.backend.requests == []
        await daemon.later(20)
        await daemon.until(lambda: len(home.backend.requests) == 1)


async def test_tools_after_a_restart_are_known_by_the_ledger(home: Counted) -> None:
    talk = home.talk()
    async with home.daemon():
        await talk.prompt("go")
        await talk.tool()
    async with home.daemon() as daemon:
        await talk.tool()
        await talk.tool()
        assert (await daemon.row()).turn["tools"]
