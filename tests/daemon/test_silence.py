"""What a session left unread when nothing more came from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rooms import Home, quick_root
from wire import CLOCK_BACKEND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rooms import Talk

pytestmark = pytest.mark.anyio

LONG = 650.0
"""Seconds: more than `idle_save_after`."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


async def silent(home: Home, saves: int) -> None:
    """Let a silence pass, after which there were so many forks."""
    daemon = home.at
    await daemon.later(LONG)
    await daemon.until(lambda: len(home.backend.requests) == saves)
    await daemon.quiet()


async def scheduled(talk: Talk, answer: str) -> None:
    """A wake-up, whose event looks as if somebody had typed it."""
    await talk.prompt("check the build", record=False)
    talk.records.user(
        "check the build",
        promptId=talk.prompt_id,
        origin={"kind": "task-notification", "subkind": "scheduled-trigger"},
    )
    await talk.answer(answer)


async def test_an_answer_after_a_long_silence_is_not_lost(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        await talk.prompt("remember FACT-1 and think for long")
        await silent(home, 1)
        await talk.answer("It is FACT-2.")
        await daemon.quiet()
        await silent(home, 2)
        await talk.end()
        await daemon.quiet()
        assert len(home.backend.requests) == 2
    assert [home.memory().count(f"FACT-{number}") for number in (1, 2)] == [1, 1]


async def test_an_interrupted_turn_is_saved_once(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        await talk.prompt("remember FACT-1")
        await silent(home, 1)
        await daemon.later(LONG)
        await talk.end()
        await daemon.quiet()
        assert len(home.backend.requests) == 1
    assert "FACT-1" in home.memory()


async def test_a_skipped_turn_that_looked_typed_is_saved_after_a_silence(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        await scheduled(talk, "The build says FACT-1.")
        await daemon.quiet()
        assert home.backend.requests == []
        await silent(home, 1)
    assert "FACT-1" in home.memory()


async def test_an_interrupted_turn_of_a_queued_prompt_is_saved(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        await talk.turn("remember FACT-1")
        await daemon.quiet()
        talk.prompts += 1  # taken from the queue: no event of its own
        talk.records.human("remember FACT-2", promptId=talk.prompt_id)
        await talk.tool()
        await talk.end()
        await daemon.quiet()
    assert "FACT-2" in home.memory()
