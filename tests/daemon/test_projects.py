"""Which memory a session gets: identities as the daemon stores them, and what the config excludes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rooms import Home, quick_root
from wire import CLOCK_BACKEND

from memoryd.protocol import StatuslineAsked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rooms import Daemon

pytestmark = pytest.mark.anyio

RULE = """\
# api

## CRITICAL RULES

- Old rule.

## Architecture & Config Facts

## Active Warnings

## Topic Files
"""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


async def saved(home: Home, directory: Path, session: str, fact: int) -> str:
    """A session with one turn, saved; what it was given at its start."""
    talk = home.talk(directory, session)
    block = await talk.start()
    await talk.turn(f"remember FACT-{fact}")
    await home.at.quiet()
    return block


async def told(daemon: Daemon) -> list[str]:
    """Each time that somebody was told of a joined clone."""
    return [run.event for run in await daemon.runs_of() if run.reason == "joined"]


class TestClones:
    async def test_they_share_one_memory_and_their_person_is_told_at_the_first_load(
        self, home: Home
    ) -> None:
        one = home.repository("one/api", "https://user:pass@github.com/acme/api.git")
        other = home.repository("two/api", "git@github.com:acme/api")
        async with home.daemon() as daemon:
            await saved(home, one, "s1", 1)
            talk = home.talk(other, "s2")
            assert "FACT-1" in await talk.start()
            sentence = (
                f"MEMORY.md: {other} shares this memory with {one}, a clone of the same repository; "
                "join_clones = false keeps them apart"
            )
            assert await told(daemon) == [sentence]
            assert await daemon.event() == sentence
            await talk.start("compact")
            await saved(home, other, "s3", 2)
        async with home.daemon() as daemon:
            await saved(home, other, "s4", 3)
            assert await told(daemon) == [sentence]
        assert home.left("../memory") == ["api"]

    async def test_they_can_be_kept_apart(self, home: Home) -> None:
        home.configure("join_clones = false\n")
        one = home.repository("one/api", "https://github.com/acme/api")
        other = home.repository("two/api", "https://github.com/acme/api")
        async with home.daemon() as daemon:
            await saved(home, one, "s1", 1)
            assert "FACT-1" not in await saved(home, other, "s2", 2)
            assert await told(daemon) == []
        assert "FACT-2" not in home.memory()


class TestTwoOfOneName:
    async def test_the_first_that_is_saved_owns_the_plain_name(self, home: Home) -> None:
        one, other = home.repository("one/api"), home.repository("two/api")
        async with home.daemon():
            await saved(home, one, "s1", 1)
            assert "FACT-1" not in await saved(home, other, "s2", 2)
        assert "FACT-2" not in home.memory()

    async def test_a_name_that_was_still_free_is_looked_at_again_once_it_is_taken(
        self, home: Home
    ) -> None:
        one, other = home.repository("one/api"), home.repository("two/api")
        async with home.daemon() as daemon:
            waiting = home.talk(other, "s2")
            await waiting.start()
            await waiting.prompt("hello")
            await saved(home, one, "s1", 1)
            asked = StatuslineAsked(session_id="s2", cwd=str(other))
            assert "+1" not in str(await daemon.ask(asked))
            await waiting.turn("remember FACT-2")
            await home.at.quiet()
        assert "FACT-2" not in home.memory()

    async def test_a_memory_that_lies_there_is_that_of_the_first_who_loads_it(
        self, home: Home
    ) -> None:
        home.remember(RULE)
        one, other = home.repository("one/api"), home.repository("two/api")
        async with home.daemon():
            assert "Old rule." in await home.talk(one, "s1").start()
            assert "Old rule." not in await saved(home, other, "s2", 2)
            await saved(home, one, "s3", 3)
        assert "FACT-3" in home.memory()
        assert "FACT-2" not in home.memory()


async def test_a_session_that_nobody_used_is_stored_nowhere(home: Home) -> None:
    async with home.daemon() as daemon:
        await home.talk(home.repository()).start()
        assert daemon.projects.names() == []


class TestTables:
    """A table of the config holds for the linked worktrees of a repository too."""

    @pytest.fixture
    def repository(self, home: Home) -> Path:
        return home.repository()

    @pytest.fixture
    def worktree(self, home: Home, repository: Path) -> Path:
        return home.worktree(repository)

    async def test_a_name_is_that_of_the_worktrees(
        self, home: Home, repository: Path, worktree: Path
    ) -> None:
        home.configure(f'[projects."{repository}"]\nname = "shop"\n')
        async with home.daemon() as daemon:
            await saved(home, repository, "s1", 1)
            assert "FACT-1" in await saved(home, worktree, "s2", 2)
            assert daemon.projects.names() == ["shop"]

    async def test_a_worktree_that_is_kept_apart_has_its_own_name(
        self, home: Home, repository: Path, worktree: Path
    ) -> None:
        home.configure(f'[projects."{repository}"]\nname = "shop"\nworktrees = "separate"\n')
        async with home.daemon() as daemon:
            await saved(home, repository, "s1", 1)
            assert "FACT-1" not in await saved(home, worktree, "s2", 2)
            assert daemon.projects.names() == ["shop", "linked"]

    async def test_a_table_of_the_worktree_itself_comes_first(
        self, home: Home, repository: Path, worktree: Path
    ) -> None:
        home.configure(
            f'[projects."{repository}"]\nname = "shop"\noff = true\n'
            f'[projects."{worktree}"]\nname = "attic"\n'
        )
        async with home.daemon() as daemon:
            assert await saved(home, repository, "s1", 1) == ""
            assert await saved(home, worktree, "s2", 2) != ""
            assert daemon.projects.names() == ["attic"]

    async def test_what_headless_sessions_may_do(
        self, home: Home, repository: Path, worktree: Path
    ) -> None:
        home.remember(RULE)
        home.configure(f'[projects."{repository}"]\nheadless = "load"\n')
        async with home.daemon() as daemon:
            talk = home.talk(worktree, "s1", attended="0", entrypoint="sdk-cli")
            assert "Old rule." in await talk.start()
            await talk.turn("remember FACT-1")
            await daemon.quiet()
            assert home.backend.requests == []
            assert (await daemon.status()).headless == "load"


class TestExcluded:
    """The same directory by any way that leads to it."""

    @pytest.fixture
    def ways(self, home: Home) -> list[Path]:
        secret = home.repository("secret")
        link = home.home / "link"
        link.symlink_to(secret)
        (secret / "deep").mkdir()
        home.configure(f'exclude = ["{secret}"]\n')
        return [secret, link, secret / "deep", link / "deep", home.worktree(secret)]

    async def test_nothing_is_loaded_saved_or_kept(self, home: Home, ways: list[Path]) -> None:
        async with home.daemon() as daemon:
            for number, way in enumerate(ways):
                assert await saved(home, way, f"s{number}", number) == ""
                assert await daemon.sessions.find(f"s{number}") is None
                asked = StatuslineAsked(session_id=f"s{number}", cwd=str(way))
                assert await daemon.ask(asked) is None
            assert home.backend.requests == []
            assert daemon.projects.names() == []
        assert not home.memory_root.exists()

    async def test_it_works_from_the_next_event_on_once_it_is_not(
        self, home: Home, ways: list[Path]
    ) -> None:
        async with home.daemon():
            for number, way in enumerate(ways):
                await saved(home, way, f"s{number}", number)
            home.configure("")
            await saved(home, ways[-1], "s9", 9)
        assert "FACT-9" in home.memory("secret")

    async def test_what_was_owed_before_is_not_sent(self, home: Home, ways: list[Path]) -> None:
        home.configure("")
        async with home.daemon() as daemon:
            daemon.backlog.pause("", daemon.clock.now() + 10)
            await saved(home, ways[-1], "s1", 1)
            home.configure(f'exclude = ["{ways[0]}"]\n')
            await daemon.later(20)
            assert home.backend.requests == []
