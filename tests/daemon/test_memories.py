"""A project's memory put into its shape: once, whoever asks, with the former text beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from memories import memory
from rooms import Home, adding, quick_root, saying
from wire import CLOCK_BACKEND

from memoryd.core.memory.document import repair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


async def test_two_that_find_it_out_of_shape_keep_the_former_text_once(home: Home) -> None:
    home.remember(OUT_OF_SHAPE)
    async with home.daemon() as daemon:
        await daemon.projects.of(str(home.project()), store=True)
        project = daemon.projects.named("api")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(daemon.memories.in_shape, project)
        runs = await daemon.runs_of("api")
    assert [run.event for run in runs] == [REARRANGED]
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
