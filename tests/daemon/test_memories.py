"""A project's memory put into its shape: once, whoever asks, with the former text beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from memories import memory
from rooms import FACT, Home, adding, quick_root, saying
from wire import CLOCK_BACKEND

from memoryd.core.memory.document import in_shape, outline, parse, repair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from memoryd.ports import ForkReply, ForkRequest

pytestmark = pytest.mark.anyio

BACKUP = "MEMORY.pre-migration.md"
REARRANGED = f"MEMORY.md: rearranged into the four sections; former text in {BACKUP}"
OUT_OF_SHAPE = "- a line of old\n"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


async def test_two_that_find_it_out_of_shape_keep_the_former_text_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.remember(OUT_OF_SHAPE)
    real, kept = home.files.back_up, list[bytes]()

    def back_up(directory: Path, data: bytes) -> None:
        kept.append(data)
        real(directory, data)

    monkeypatch.setattr(home.files, "back_up", back_up)
    async with home.daemon() as daemon:
        await daemon.projects.of(str(home.project()), store=True)
        project = daemon.projects.named("api")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(daemon.memories.in_shape, project)
        runs = await daemon.runs_of("api")
    assert [run.event for run in runs] == [REARRANGED]
    assert kept == [OUT_OF_SHAPE.encode()]
    assert home.memory(file=BACKUP) == OUT_OF_SHAPE
    assert home.memory() == repair(OUT_OF_SHAPE, "api")
    assert home.left() == ["MEMORY.md", BACKUP]


@pytest.mark.parametrize("moment", ["while forking", "before it is written"])
async def test_an_edit_out_of_shape_during_a_save_is_kept_as_it_was(
    home: Home, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path, real, edited = home.remember(memory(facts=["- old."])), home.files.publish, list[int]()

    def edit() -> None:
        if not edited:
            edited.append(path.write_text(OUT_OF_SHAPE))

    def fork(_: ForkRequest) -> ForkReply:
        if moment == "while forking":
            edit()
        return saying(adding("new."))

    def publish(directory: Path, staged: Any) -> bool:
        edit()
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    home.backend.outcomes.clear()
    home.backend.outcomes.append(fork)
    async with home.daemon() as daemon:
        await home.talk().turn("hello")
        await daemon.quiet()
        runs = await daemon.runs_of("api")
    assert sorted(run.event for run in runs) == [
        "MEMORY.md: 1 added; merged over a concurrent edit",
        REARRANGED,
    ]
    assert home.memory(file=BACKUP) == OUT_OF_SHAPE
    assert "- a line of old\n" in home.memory()
    assert home.memory().count("- new.\n") == 1
    assert home.left() == ["MEMORY.md", BACKUP]


async def test_an_edit_out_of_shape_while_one_is_put_into_shape_is_kept_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = home.remember(memory(facts=["- old."])), home.files.publish
    edits = ["- first.\n", "- second.\n", "- third.\n"]
    waiting = [*edits]

    def fork(_: ForkRequest) -> ForkReply:
        path.write_text(waiting.pop(0))
        return saying(adding("new."))

    def publish(directory: Path, staged: Any) -> bool:
        if waiting:
            path.write_text(waiting.pop(0))
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    home.backend.outcomes.clear()
    home.backend.outcomes.append(fork)
    async with home.daemon() as daemon:
        await home.talk().turn("hello")
        await daemon.quiet()
        runs = await daemon.runs_of("api")
    assert sorted(run.event for run in runs) == [
        "MEMORY.md: 1 added; merged over a concurrent edit",
        REARRANGED,
    ]
    backups = [home.memory(file=name) for name in home.left() if name != "MEMORY.md"]
    assert sorted(backups) == edits
    assert home.memory().startswith("- third.\n")
    assert home.memory().count("- new.\n") == 1


@pytest.mark.parametrize("look", [2, 3])
async def test_a_file_that_a_person_mends_first_is_left_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    path, real = home.remember(OUT_OF_SHAPE), home.files.read_file
    text, looks = memory(facts=["- mended by hand."]), list[str]()

    def read_file(directory: Path, name: str) -> Any:
        looks.append(name)
        if len(looks) == look:
            path.write_text(text)
        return real(directory, name)

    monkeypatch.setattr(home.files, "read_file", read_file)
    async with home.daemon() as daemon:
        await daemon.projects.of(str(home.project()), store=True)
        found = await daemon.memories.in_shape(daemon.projects.named("api"))
        assert await daemon.runs_of("api") == []
    assert found.text == text
    assert home.left() == ["MEMORY.md"]


# ── two saves, a load and a person at once ─────────────────────────────────────────────────────────

CALLS = [
    *(("read", number) for number in range(1, 7)),
    *(("read_file", number) for number in range(1, 15)),
    ("back_up", 1),
    *(("stage", number) for number in range(1, 4)),
    *(("publish", number) for number in range(1, 6)),
]
"""The calls of one rearrangement and two saves before which a person writes."""


class Person:
    """Who writes into both files before the call of that name and number, out of shape."""

    def __init__(self, home: Home, patch: pytest.MonkeyPatch, call: str, number: int) -> None:
        self.text = ""
        """What MEMORY.md held then."""
        self._home, self._calls, self._number = home, 0, number
        patch.setattr(home.files, call, self._before(getattr(home.files, call)))

    def _before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            self._calls += 1
            if self._calls == self._number:
                self._write()
            return real(*args)

        return called

    def _write(self) -> None:
        for file in ("MEMORY.md", "db.md"):
            text = f"{self._home.memory(file=file)}\n## By hand\n\n- by hand.\n"
            self._home.remember(text, file=file)
            self.text = self.text or text


def remembering(request: ForkRequest) -> ForkReply:
    """A model that keeps each fact of the conversation in MEMORY.md and in a topic file."""
    (fact,) = set(FACT.findall("\n".join(request.conversation)))
    return saying(adding(f"{fact} holds."), topics={"db.md": f"- {fact} was found."})


@pytest.mark.parametrize(("call", "number"), CALLS)
async def test_two_saves_a_load_and_an_edit_at_once_lose_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    home.remember("# api\n\n- a line of old\n\n## Traps\n\n- a trap of old\n")
    home.remember("- a topic of old\n", file="db.md")
    home.backend.outcomes.clear()
    home.backend.outcomes.append(remembering)
    person = Person(home, monkeypatch, call, number)
    async with home.daemon() as daemon:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(home.talk(session="s3").start)
            for session in ("s1", "s2"):
                said = f"note FACT-{session[1:]}"
                tasks.start_soon(home.talk(session=session).turn, said)
        await daemon.quiet()
        assert await daemon.owed("s1") is await daemon.owed("s2") is None
        found = await daemon.memories.in_shape(daemon.projects.named("api"))
        assert in_shape(outline(parse(found.text or "").lines))
    memories, topic = home.memory().split("\n"), home.memory(file="db.md").split("\n")
    for line in ("- a line of old", "- a trap of old", "- FACT-1 holds.", "- FACT-2 holds."):
        assert memories.count(line) == 1, line
    for line in ("- a topic of old", "- FACT-1 was found.", "- FACT-2 was found."):
        assert topic.count(line) == 1, line
    assert memories.count("- by hand.") == topic.count("- by hand.") == 1
    assert memories.count("- `db.md`.") == 1
    backups = [home.memory(file=name) for name in home.left() if name.startswith("MEMORY.pre")]
    assert person.text in backups
