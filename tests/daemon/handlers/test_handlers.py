"""What a person asks, through the handlers, on the daemon's inner rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from rooms import Home, quick_root
from wire import CLOCK_BACKEND

from memoryd.daemon.dispatch import RawAnswer
from memoryd.errors import RequestError, StorageError
from memoryd.protocol import (
    GetRun,
    GetStatus,
    Pause,
    Resume,
    Save,
    StatuslineAsked,
    SwitchOff,
    SwitchOn,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rooms import Daemon, Talk

    from memoryd.protocol import Message

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


async def test_save_says_that_one_runs(home: Home) -> None:
    home.backend.hold = anyio.Event()
    async with home.daemon() as daemon:
        await home.talk().turn("remember FACT-1")
        await home.backend.started.wait()
        assert (await daemon.ask(Save(project="api"))).sentence == "api: a save is running"
        home.backend.hold.set()
        await daemon.quiet()
        assert (await daemon.ask(Save(project="api"))).sentence == "api: nothing is owed"


async def test_a_session_that_is_off_shows_it(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.turn("remember FACT-1")
        await daemon.quiet()
        before = await shown(daemon, talk)
        await daemon.ask(SwitchOff(session=talk.session))
        assert (await shown(daemon, talk)).startswith("memory: off")
        assert not (await daemon.overview.text("api", colour=False)).startswith("memory: off")
        await daemon.ask(SwitchOn(session=talk.session))
        assert await shown(daemon, talk) == before


async def test_a_pause_that_is_not_kept_is_none(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home.daemon() as daemon:
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()

        async def full(_: object) -> None:
            raise StorageError(home.memory_root, "write", "no room")

        with monkeypatch.context() as patch:
            patch.setattr(daemon.ledger, "commit", full)
            with pytest.raises(StorageError):
                await daemon.ask(Pause())
        assert daemon.overview.paused_until() == 0.0


@pytest.mark.parametrize(
    "toml", ['exclude = ["~/work/a*"]\n', '[projects."~/work/api"]\noff = true\n']
)
async def test_an_excluded_directory_says_so_and_leaves_no_trace(home: Home, toml: str) -> None:
    home.configure(toml)
    here, other = str(home.project()), str(home.project("shop"))
    async with home.daemon() as daemon:
        for message in (SwitchOff(cwd=here), SwitchOn(cwd=here), Pause(cwd=here)):
            with pytest.raises(RequestError, match=r"api: excluded by config\.toml") as told:
                await daemon.ask(message)
            assert (told.value.status, told.value.code) == (409, "excluded")
        assert await daemon.ledger.commit(lambda ledger: ledger.switched_off()) == []
        assert "excluded by config.toml" in (await daemon.ask(Save(cwd=here))).sentence
        assert [each.excluded for each in (await daemon.ask(GetStatus(cwd=here))).projects] == [
            True
        ]
        assert [each.excluded for each in (await daemon.ask(GetStatus(cwd=other))).projects] == [
            False
        ]


@pytest.mark.parametrize(
    ("there", "back"),
    [(SwitchOff, SwitchOn(project="api")), (Pause, Resume(project="api"))],
)
async def test_a_switch_is_taken_back_by_name_and_holds_for_no_namesake(
    home: Home, there: type[SwitchOff | Pause], back: Message
) -> None:
    """In a directory where nothing was saved yet."""
    namesake = home.home / "other" / "api"
    namesake.mkdir(parents=True)
    async with home.daemon() as daemon:
        await daemon.ask(there(cwd=str(home.project())))
        (found, *_) = (await daemon.ask(GetStatus(cwd=str(namesake)))).projects
        assert found.name != "api"
        assert (found.off, found.paused_until) == (False, 0.0)
        await daemon.ask(back)
        (found, *_) = (await daemon.ask(GetStatus(cwd=str(home.project())))).projects
        assert found.name == "api"
        assert (found.off, found.paused_until) == (False, 0.0)


async def test_a_project_that_is_excluded_later_says_so_by_its_name(home: Home) -> None:
    async with home.daemon() as daemon:
        await home.talk().turn("remember FACT-1")
        await daemon.quiet()
        home.configure('exclude = ["~/work/a*"]\nheadless = "load"\n')
        (found,) = (await daemon.ask(GetStatus())).projects
        assert (found.name, found.excluded, found.headless) == ("api", True, "load")
        with pytest.raises(RequestError, match="excluded"):
            await daemon.ask(SwitchOff(project="api"))


@pytest.mark.parametrize("wrong", ["encoding", "directory", "link", "outside"])
async def test_the_hint_of_a_file_that_can_t_be_read_mends_it(home: Home, wrong: str) -> None:
    file = home.remember("## Active Warnings\n- Caf\u00e9.\n")
    latin = file.read_text().encode("latin-1")
    file.unlink()
    match wrong:
        case "encoding":
            file.write_bytes(latin)
        case "directory":
            file.mkdir()
        case "link":
            file.symlink_to(home.home / "nowhere")
        case _:
            (home.root / "MEMORY.md").touch()
            file.symlink_to(home.root / "MEMORY.md")
    async with home.daemon() as daemon:
        status = await daemon.status()
        assert status.fault
        await anyio.run_process(["sh", "-c", status.fault_hint])
        status = await daemon.status()
        assert (status.fault, status.fault_hint) == ("", "")
    assert home.memory() == (latin.decode("latin-1") if wrong == "encoding" else "")


async def test_a_pause_past_midnight_names_the_day(home: Home) -> None:
    async with home.daemon() as daemon:  # at 22:13 of a 14 November
        assert (await daemon.ask(Pause(seconds=600))).sentence.endswith(
            "paused until 22:23; turns stay owed"
        )
        said = (await daemon.ask(Pause(seconds=7200))).sentence
        assert said == "all projects: paused until 11-15 00:13; turns stay owed"


async def test_resume_says_what_it_ended(home: Home) -> None:
    async with home.daemon() as daemon:
        await home.talk().turn("nothing to remember")
        await daemon.quiet()

        async def resume(project: str = "") -> str:
            return str((await daemon.ask(Resume(project=project))).sentence)

        assert await resume() == "all projects: nothing was paused"
        assert await resume("api") == "api: nothing was paused"
        await daemon.ask(Pause(project="api"))
        assert await resume() == "all projects: nothing was paused; still paused: api"
        await daemon.ask(Pause())
        assert await resume("api") == "api: resumed; still paused: all projects"
        assert await resume() == "all projects: resumed"
        await daemon.ask(Pause(seconds=60))
        await daemon.later(61)
        assert await resume() == "all projects: nothing was paused"


async def test_no_save_yet_is_no_reason_to_look_into_the_log(home: Home) -> None:
    async with home.daemon() as daemon:
        for run, hint in (("", "memoryctl status"), ("abc", "memoryctl log")):
            with pytest.raises(RequestError) as told:
                await daemon.ask(GetRun(run=run, cwd=str(home.project())))
            assert (told.value.code, told.value.hint) == ("unknown_run", hint)


async def test_what_a_start_costs_is_known_after_a_restart(home: Home) -> None:
    async with home.daemon() as daemon:
        talk = home.talk()
        await talk.start()
        await talk.turn("nothing to remember")
        await daemon.quiet()
        before = (await daemon.status()).load_tokens
        assert before > 0
    async with home.daemon() as daemon:
        assert (await daemon.status()).load_tokens == before


async def test_headless_is_that_of_the_directory(home: Home) -> None:
    home.configure('[projects."~/work/api"]\nheadless = "off"\n')
    async with home.daemon() as daemon:
        for name, headless in (("api", "off"), ("shop", "full")):
            (found,) = (await daemon.ask(GetStatus(cwd=str(home.project(name))))).projects
            assert found.headless == headless


async def shown(daemon: Daemon, talk: Talk) -> str:
    answer = await daemon.ask(StatuslineAsked(session_id=talk.session, cwd=str(talk.directory)))
    assert isinstance(answer, RawAnswer)
    return answer.body.decode().replace("\x1b[2m", "")
