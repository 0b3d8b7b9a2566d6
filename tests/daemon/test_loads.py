"""A session gets its project's memory: each start once, whole, in order, or a word why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from rooms import Home, Line, calling, context, quick_root
from wire import CLOCK_BACKEND, advance, settle

from memoryd.core.memory.load import units
from memoryd.daemon import loads
from memoryd.protocol import LOAD_PARTS, PART_LIMIT, SessionStarted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rooms import Daemon, Talk

    from memoryd.daemon.caller import Caller

pytestmark = pytest.mark.anyio

LONG = 1000.0
"""Seconds that only the turned clock reaches, in place of a limit that a busy machine may."""

SECTIONS = ("CRITICAL RULES", "Architecture & Config Facts", "Active Warnings", "Topic Files")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


def written(*bullets: str, rule: str = "Use bun.") -> str:
    """A memory in its shape, with these among its warnings."""
    first, second, third, fourth = (f"## {section}\n" for section in SECTIONS)
    return "\n".join(["# api\n", first, f"- {rule}\n", second, third, *bullets, "", fourth])


class Hook:
    """One of a start's hooks: its answer, once it has one, and its process, which then ends."""

    def __init__(self, talk: Talk, number: int, source: str = "startup", **shim: Any) -> None:
        self.text: str | None = None
        self.line = Line()
        name = f"{talk.session}-{next(talk.events)}".encode().hex()
        self._caller = calling(**{"event": name, "part": number, **talk.shim, **shim})
        self._caller._line = self.line
        self._event = SessionStarted(**talk.body(source=source))
        self._daemon = talk.home.at

    async def run(self) -> None:
        self.text = context(await self._daemon.ask(self._event, self._caller))


async def ask(daemon: Daemon, caller: Caller, talk: Talk, **fields: Any) -> str:
    return context(
        await daemon.ask(SessionStarted(**talk.body(source="startup", **fields)), caller)
    )


async def test_every_start_gets_one_block_the_same_while_the_file_is(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon():
        talk = home.talk()
        blocks = [await talk.start()]
        for _ in range(5):
            await talk.turn("go on")
            blocks.append(await talk.start("compact"))
        blocks += [await talk.start("compact"), await talk.start("clear")]
    async with home.daemon() as daemon:
        blocks.append(await talk.start("resume"))
        assert (await daemon.status()).session_starts_today == 9
    assert set(blocks) == {blocks[0]}
    assert blocks[0].count("[PROJECT MEMORY: api]") == 1
    assert blocks[0].count("- FACT-1 holds.") == 1


async def test_an_edit_is_in_the_next_block(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon():
        talk = home.talk()
        first = await talk.start()
        home.remember(written("- FACT-2 holds."))
        assert await talk.start("compact") == first.replace("FACT-1", "FACT-2")


async def test_what_a_block_says_beside_the_memory(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon():
        talk = home.talk()
        plain = await talk.start()
        assert "the language that the user writes in" in plain
        assert "Topic files" not in plain
        for file in ("b.md", "a.md", "Z.md", "MEMORY.pre-migration.md", "notes.txt"):
            home.remember("x\n", file=file)
        directory = home.memory_root / "api"
        assert (
            await talk.start("clear") == f"{plain}\n\nTopic files in {directory}: Z.md, a.md, b.md"
        )
        home.configure("language_note = false\n")
        assert "language" not in await talk.start("clear")


async def test_without_a_memory_there_is_one_line(home: Home) -> None:
    async with home.daemon():
        text = await home.talk().start()
    assert "PROJECT MEMORY" not in text
    assert "\n" not in text
    assert "is written for you" in text
    assert not (home.memory_root / "api").exists()


async def test_a_long_memory_comes_whole_in_the_order_of_its_parts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "ORDER_LIMIT", LONG)
    facts = [f"- FACT-{number} {'x' * 480}" for number in range(80)]
    home.remember(written(*facts))
    async with home.daemon() as daemon, anyio.create_task_group() as tasks:
        hooks = [Hook(home.talk(), number) for number in range(1, LOAD_PARTS + 1)]
        for hook in reversed(hooks):  # the host starts them at once
            tasks.start_soon(hook.run)
            await settle()
        for number, hook in enumerate(hooks):
            await daemon.until(lambda hook=hook: hook.text is not None)  # type: ignore[misc]
            rest = [later for later in hooks[number + 1 :] if later.text]
            assert rest == []  # before this one's process has ended
            hook.line.ended.set()
        status = await daemon.status()
    texts = [hook.text or "" for hook in hooks]
    assert max(units(text) for text in texts) <= PART_LIMIT
    lines = "\n".join(texts).split("\n")
    assert [line for line in lines if line.startswith("- FACT")] == facts
    assert status.loaded_lines == status.lines > 80


async def test_a_part_whose_forerunner_never_comes_is_not_held_for_long(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "ORDER_LIMIT", LONG)
    home.remember(written(*(f"- FACT-{number} {'x' * 480}" for number in range(80))))
    async with home.daemon() as daemon, anyio.create_task_group() as tasks:
        talk = home.talk()
        first, third = Hook(talk, 1), Hook(talk, 3)
        tasks.start_soon(first.run)
        tasks.start_soon(third.run)
        await daemon.until(lambda: first.text is not None)
        await settle()
        assert not third.text
        advance(LONG)
        await daemon.until(lambda: "- FACT" in str(third.text))


async def test_a_second_registration_loads_nothing_twice(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon() as daemon:
        talk = home.talk()
        for source in ("startup", "compact"):
            assert "FACT-1" in await talk.start(source, origin="plugin")
            assert await talk.start(source, origin="settings") == ""
        assert (await daemon.status()).session_starts_today == 2
        advance(loads.RECENT + 1)
        assert "FACT-1" in await talk.start("compact", origin="settings")


async def test_a_memory_that_can_t_be_read_starts_the_session_without_it(home: Home) -> None:
    file = home.remember(written("- FACT-1 holds."))
    file.write_bytes(b"## Active Warnings\n\n- Caf\xe9.\n")
    async with home.daemon() as daemon:
        talk = home.talk()
        assert await talk.start() == ""
        line = await daemon.overview.text("api", colour=False)
        assert line.startswith("memory: error: memory not loaded: ")
        assert "MEMORY.md" in line.split("\n")[0]
        home.remember(written("- FACT-1 holds."))
        assert "FACT-1" in await talk.start("clear")
        assert "error" not in await daemon.overview.text("api", colour=False)


async def test_a_subagent_gets_no_block(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon() as daemon:
        talk = home.talk()
        assert await ask(daemon, calling(**talk.shim), talk, agent_id="agent-1") == ""
        assert await daemon.sessions.count() == 0


async def test_where_memory_is_off_there_is_no_block(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon() as daemon:
        talk = home.talk()
        assert "FACT-1" in await talk.start()
        await daemon.sessions.switch(talk.session, off=True)
        assert await talk.start("compact") == ""
        assert "FACT-1" in await home.talk(session="s2").start()
        await daemon.projects.switch("api", off=True)
        assert await home.talk(session="s3").start() == ""
        assert "FACT-1" not in await home.talk(session="s2").start("compact")


async def test_a_start_that_waited_in_the_spool_only_begins_the_session(home: Home) -> None:
    home.remember(written("- FACT-1 holds."))
    async with home.daemon() as daemon:
        talk = home.talk()
        assert await ask(daemon, calling(spooled=True, part=1, **talk.shim), talk) == ""
        assert (await daemon.row()).directory == str(talk.directory)
        assert (await daemon.status()).session_starts_today == 0
