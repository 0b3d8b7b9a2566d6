"""What the ledger could not take: nothing is lost for as long as the daemon lives, and it is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from faults import disk_full
from rooms import Daemon, Home, calling, quick_root
from wire import CLOCK_BACKEND

from memoryd.adapters.ledger_file import companion
from memoryd.daemon.unwritten import OVERHEAD, Unwritten
from memoryd.errors import RequestError, UnwrittenError
from memoryd.protocol import Save, ToolsRan, TurnEnded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from memoryd.protocol import HookEvent

pytestmark = pytest.mark.anyio

LEDGER = Path("/s/ledger.sqlite3")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


def full(home: Home) -> AbstractContextManager[None]:
    """Whatever is written to the ledger meanwhile fails, and reads go through."""
    return disk_full(companion(home.state / "ledger.sqlite3", "-wal").stat().st_size)


async def worked(daemon: Daemon) -> None:
    """The ledger's log has grown to more than a transcript of these tests."""
    for _ in range(4):
        await daemon.home.talk(session="s0").turn("nothing to remember")
    await daemon.quiet()


class TestASession:
    async def test_a_turn_of_a_full_disk_is_saved_once_there_is_room(self, home: Home) -> None:
        async with home.daemon() as daemon:
            await worked(daemon)
            talk = home.talk()
            with full(home):
                await talk.start()
                with pytest.raises(UnwrittenError):
                    await talk.prompt("remember FACT-1")
                talk.records.human("remember FACT-1", promptId=talk.prompt_id)
                for _ in range(5):
                    with pytest.raises(UnwrittenError):
                        await talk.tool()
                with pytest.raises(UnwrittenError):
                    await talk.answer()
                (warned,) = daemon.unwritten.warnings()
                assert warned.code == "ledger_full"
                assert warned.sentence.startswith("4 events of sessions wait in memory")
                assert "cannot write" in warned.sentence
                assert warned.hint == "memoryctl save"
                with pytest.raises(UnwrittenError):
                    await daemon.ask(Save(cwd=str(talk.directory)))
            done = await daemon.ask(Save(cwd=str(talk.directory)))
            assert done.sentence in ("api: saving 1 owed turn now", "api: a save is running")
            await daemon.quiet()
            assert daemon.unwritten.warnings() == []
        assert home.memory().count("FACT-1") == 1

    async def test_the_memory_is_loaded_all_the_same(self, home: Home) -> None:
        home.remember("# api\n\n## Active Warnings\n- FACT-7 holds.\n")
        async with home.daemon() as daemon:
            await worked(daemon)
            with full(home):
                assert "FACT-7 holds." in await home.talk().start()

    async def test_the_next_event_takes_those_before_it_along(self, home: Home) -> None:
        async with home.daemon() as daemon:
            await worked(daemon)
            first, second = home.talk(session="s1"), home.talk(session="s2")
            await first.prompt("remember FACT-1")
            with full(home), pytest.raises(UnwrittenError):
                await first.answer()
            await second.prompt("nothing to remember")
            assert await daemon.owed("s1") is not None
            await daemon.quiet()
        assert home.memory().count("FACT-1") == 1

    async def test_one_that_the_spool_has_too_counts_once(self, home: Home) -> None:
        async with home.daemon() as daemon:
            await worked(daemon)
            talk = home.talk()
            await talk.prompt("remember FACT-1")
            spooled = calling(spooled=True, event="ab" * 16, **talk.shim)
            event = TurnEnded(**talk.body())
            with full(home):
                for caller in (calling(event="ab" * 16, **talk.shim), spooled):
                    with pytest.raises(UnwrittenError):
                        await daemon.ask(event, caller)
            await daemon.unwritten.write()
            await daemon.ask(event, spooled)
            assert (await daemon.row()).asked == 1

    async def test_a_name_that_could_not_be_kept_holds_up_no_save(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The turn is in the ledger, and only what comes behind it fails."""
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.prompt("remember FACT-1")
            with monkeypatch.context() as patch:
                patch.setattr(daemon.projects, "_store", _no_room)
                with pytest.raises(UnwrittenError):
                    await talk.answer()
            await daemon.quiet()
        assert home.memory().count("FACT-1") == 1


async def _no_room(*_: object, **__: object) -> None:
    raise UnwrittenError(LEDGER, "write", "database or disk is full")


class Desk:
    """Works that fail for as long as the disk is full."""

    def __init__(self, most: int = 100_000) -> None:
        self.unwritten = Unwritten(most)
        self.full = True
        self.done: list[str] = []

    async def take(self, name: str, event: HookEvent | None = None) -> None:
        event = event or TurnEnded(session_id=name)
        await self.unwritten.take(event, calling(), partial(self._work, name))

    async def fails(self, name: str, event: HookEvent | None = None) -> None:
        with pytest.raises(UnwrittenError):
            await self.take(name, event)

    async def _work(self, name: str) -> None:
        await anyio.lowlevel.checkpoint()
        if self.full:
            raise UnwrittenError(LEDGER, "write", "database or disk is full")
        if name == "bad":
            raise RequestError(400, "bad", "it is bad", "memoryctl status")
        self.done.append(name)


class TestKeeping:
    async def test_in_order_and_before_what_comes_next(self) -> None:
        desk = Desk()
        for name in "abc":
            await desk.fails(name)
        desk.full = False
        async with anyio.create_task_group() as tasks:
            for name in "de":
                tasks.start_soon(desk.take, name)
        assert desk.done[:3] == ["a", "b", "c"]
        assert sorted(desk.done[3:]) == ["d", "e"]

    async def test_one_that_is_refused_holds_up_no_other(self) -> None:
        desk = Desk()
        for name in ("bad", "a"):
            await desk.fails(name)
        desk.full = False
        await desk.unwritten.write()
        assert desk.done == ["a"]
        assert desk.unwritten.warnings() == []

    async def test_what_finds_no_room_is_counted_and_told(self) -> None:
        desk = Desk(2 * OVERHEAD + 200)
        for name in "abcd":
            await desk.fails(name)
        codes = {warned.code: warned.sentence for warned in desk.unwritten.warnings()}
        assert codes["ledger_full"].startswith("2 events of sessions wait")
        assert codes["events_lost"].startswith("2 events of sessions found no room")
        desk.full = False
        await desk.unwritten.write()
        await desk.take("e")
        assert desk.done == ["a", "b", "e"]
        assert [warned.code for warned in desk.unwritten.warnings()] == ["events_lost"]

    async def test_tools_in_a_row_are_one(self) -> None:
        desk = Desk()
        for name, session in (("a", "1"), ("b", "1"), ("c", "2"), ("d", "1")):
            await desk.fails(name, ToolsRan(session_id=session))
        await desk.fails("e", TurnEnded(session_id="1"))
        await desk.fails("f", ToolsRan(session_id="1"))
        desk.full = False
        await desk.unwritten.write()
        assert desk.done == ["a", "c", "e", "f"]

    async def test_a_stop_tries_once_more(self, caplog: pytest.LogCaptureFixture) -> None:
        desk = Desk()
        await desk.fails("a")
        await desk.unwritten.end()
        assert "are lost" in caplog.text
        desk.full = False
        await desk.unwritten.end()
        assert desk.done == ["a"]

    async def test_one_that_is_cancelled_waits_on(self) -> None:
        desk = Desk()
        await desk.fails("a")
        desk.full = False
        with anyio.CancelScope() as scope:
            scope.cancel()
            await desk.unwritten.write()
        assert desk.done == []
        await desk.unwritten.write()
        assert desk.done == ["a"]
