"""save, cancel, off, on and reading a memory, as a person asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from rooms import Home, quick_root
from wire import CLOCK_BACKEND

from memoryd.errors import NotUtf8Error, RequestError
from memoryd.protocol import (
    Cancel,
    GetMemory,
    GetStatus,
    Pause,
    Resume,
    Save,
    SwitchOff,
    SwitchOn,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rooms import Daemon

    from memoryd.protocol import Message

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


async def said(daemon: Daemon, message: Message) -> str:
    return str((await daemon.ask(message)).sentence)


async def test_memory_is_read_with_the_names_of_its_topics(home: Home) -> None:
    text = "\ufeff# api\r\n\r\n## CRITICAL RULES\r\n"
    home.remember(text)
    home.remember("x\n", file="db.md")
    async with home.daemon() as daemon:
        found = await daemon.ask(GetMemory(cwd=str(home.project())))
        assert (found.project, found.text, found.topics) == ("api", text, ["db.md"])
        assert found.path == str(home.memory_root / "api" / "MEMORY.md")
        none = await daemon.ask(GetMemory(cwd=str(home.project("shop"))))
        assert (none.project, none.text, none.topics) == ("shop", None, [])
        (home.memory_root / "api" / "MEMORY.md").write_bytes(b"ab\xe9")
        with pytest.raises(NotUtf8Error, match="2"):
            await daemon.ask(GetMemory(cwd=str(home.project())))
    assert home.left() == ["MEMORY.md", "db.md"]


async def test_save_starts_what_waits_between_two_tries(home: Home) -> None:
    async with home.daemon() as daemon:
        home.backend.fault_text = "no key"
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()
        home.backend.fault_text = ""
        assert await said(daemon, Save(project="api")) == "api: saving 1 owed turn now"
        await daemon.quiet()
    assert "FACT-1" in home.memory()


async def test_save_reads_turns_that_only_answered_but_none_that_still_runs(home: Home) -> None:
    async with home.daemon() as daemon:
        answered, running = home.talk(), home.talk(session="s2")
        other = home.talk(home.project("shop"), session="s3")
        for talk in (answered, running, other):
            await talk.start()
        await answered.notice("The build says FACT-1.")
        await other.notice("The build says FACT-3.")
        await running.prompt("remember FACT-2")
        assert await said(daemon, Save(cwd=str(home.project()))) == "api: saving 1 owed turn now"
        await daemon.quiet()
        assert [run.reason for run in await daemon.runs_of("api")] == ["asked"]
    assert ("FACT-1" in home.memory(), "FACT-2" in home.memory()) == (True, False)
    assert home.memory("shop") == ""


async def test_save_of_one_session_leaves_the_others_unread(home: Home) -> None:
    async with home.daemon() as daemon:
        for number in (1, 2):
            talk = home.talk(session=f"s{number}")
            await talk.start()
            await talk.notice(f"The build says FACT-{number}.")
        await said(daemon, Save(cwd=str(home.project()), session="s2"))
        await daemon.quiet()
    assert ("FACT-1" in home.memory(), "FACT-2" in home.memory()) == (False, True)


@pytest.mark.parametrize(
    ("there", "back", "why"),
    [
        (SwitchOff(project="api"), SwitchOn(project="api"), "memory is off"),
        (Pause(project="api"), Resume(project="api"), "paused until resume"),
        (Pause(), Resume(), "paused until resume"),
    ],
)
async def test_save_says_why_owed_turns_wait(
    home: Home, there: Message, back: Message, why: str
) -> None:
    async with home.daemon() as daemon:
        home.backend.fault_text = "no key"
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()
        await daemon.ask(there)
        home.backend.fault_text = ""
        wanted = f"api: {why}, 1 owed turn not saved"
        assert await said(daemon, Save(project="api")) == wanted
        await daemon.quiet()
        assert home.backend.requests == []
        assert (await daemon.status()).owed == 1
        await daemon.ask(back)
        await daemon.quiet()
    assert home.memory().count("FACT-1") == 1


async def test_cancel_stops_the_fork_and_the_turn_stays_owed(home: Home) -> None:
    home.backend.hold = anyio.Event()
    async with home.daemon() as daemon:
        with pytest.raises(RequestError, match="no save is running") as told:
            await daemon.ask(Cancel(cwd=str(home.project())))
        assert (told.value.status, told.value.code) == (409, "nothing_runs")
        await home.talk().turn("remember FACT-1")
        await home.backend.started.wait()
        wanted = "api: save cancelled, its turn stays owed"
        assert await said(daemon, Cancel(project="api")) == wanted
        await daemon.quiet()
        assert (await daemon.status()).owed == 1
        assert (await daemon.status()).failures == 0
        assert home.memory() == ""
        home.backend.hold.set()
        assert await said(daemon, Save(project="api")) == "api: saving 1 owed turn now"
        await daemon.quiet()
    assert home.memory().count("FACT-1") == 1


async def test_off_and_on_of_a_project_hold_from_the_next_event_on(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        wanted = "memory is off for api, from the next event on"
        assert await said(daemon, SwitchOff(cwd=str(home.project()))) == wanted
        await talk.turn("remember FACT-1")
        await daemon.quiet()
        assert (await daemon.status()).off
    async with home.daemon() as daemon:
        assert (await daemon.status()).off
        wanted = "memory is on for api, from the next event on"
        assert await said(daemon, SwitchOn(cwd=str(home.project()))) == wanted
        await talk.turn("remember FACT-2")
        await daemon.quiet()
        assert not (await daemon.status()).off
    assert "FACT-2" in home.memory()


async def test_off_and_on_of_a_session_leave_the_others_alone(home: Home) -> None:
    async with home.daemon() as daemon:
        talk, other = home.talk(), home.talk(session="s2")
        await talk.start()
        wanted = "memory is off for this session, from its next event on"
        assert await said(daemon, SwitchOff(session="s1")) == wanted
        await talk.turn("remember FACT-1")
        await other.turn("remember FACT-2")
        await daemon.quiet()
        assert ("FACT-1" in home.memory(), "FACT-2" in home.memory()) == (False, True)
        wanted = "memory is on for this session, from its next event on"
        assert await said(daemon, SwitchOn(session="s1")) == wanted
        await talk.turn("remember FACT-3")
        await daemon.quiet()
        assert "FACT-3" in home.memory()
        for message in (SwitchOff(session="nobody"), SwitchOn(session="nobody")):
            with pytest.raises(RequestError, match="no session nobody is known") as told:
                await daemon.ask(message)
            assert (told.value.status, told.value.code) == (404, "unknown_session")


async def test_where_no_place_can_be_meant_it_says_so(home: Home) -> None:
    async with home.daemon() as daemon:
        for place in ({}, {"cwd": "work/api"}):
            with pytest.raises(RequestError) as told:
                await daemon.ask(Save(**place))
            assert (told.value.status, told.value.code) == (400, "no_project")
        with pytest.raises(RequestError, match="no project shop; known: none yet") as told:
            await daemon.ask(Save(project="shop"))
        assert (told.value.status, told.value.code) == (404, "unknown_project")
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()
        with pytest.raises(RequestError, match="no project shop; known: api"):
            await daemon.ask(Save(project="shop"))


async def test_inside_a_session_its_start_decides_and_not_the_directory(home: Home) -> None:
    async with home.daemon() as daemon:
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()
        place = {"inside": "s1", "cwd": str(home.project("shop"))}
        assert await said(daemon, Save(**place)) == "api: nothing is owed"
        first = (await daemon.ask(GetStatus(**place))).projects[0]
        assert first.name == "api"
        place["inside"] = "nobody"
        assert await said(daemon, Save(**place)) == "shop: nothing is owed"
