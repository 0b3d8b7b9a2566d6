"""A save's files as one unit: over a person's edits, and over a kill at any point."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from faults import Faults, FaultyLedger, Killed
from memories import memory, sections
from rooms import Home, adding, quick_root, saying
from wire import CLOCK_BACKEND

from memoryd.daemon import commit
from memoryd.daemon.commit import Outcome
from memoryd.ports import Notices
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from rooms import Daemon

    from memoryd.ports import ForkReply, ForkRequest

pytestmark = pytest.mark.anyio

OLD = memory(facts=["- old.", "- goes.", "- changes."])
REPLY = saying(
    adding("new."),
    {"op": "remove", "line": "- goes."},
    {"op": "replace", "line": "- changes.", "text": "changed."},
    topics={"db.md": "- appended"},
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        found = Home(root)
        found.backend.outcomes.clear()
        found.backend.outcomes.append(REPLY)
        yield found


async def save(home: Home, daemon: Daemon) -> RunRecord:
    await home.talk().turn("hello")
    await daemon.quiet()
    return await daemon.run()


# ── a person's edits ───────────────────────────────────────────────────────────────────────────────


class Editor:
    """A person who edits MEMORY.md at a moment of a save, once."""

    def __init__(self, home: Home, patch: pytest.MonkeyPatch, moment: str, edit: str) -> None:
        self.home, self.moment, self.edit = home, moment, edit
        self.done = False
        self.path = home.memory_root / "api" / "MEMORY.md"
        for call in ("stage", "publish"):
            patch.setattr(home.files, call, self._before(call, getattr(home.files, call)))

    def _before(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            name = args[1].name if call == "publish" else ""
            if self.moment == f"before {call} {name}".strip():
                self.write()
            return real(*args)

        return called

    def while_forking(self, _: ForkRequest) -> ForkReply:
        if self.moment == "while forking":
            self.write()
        return REPLY

    def write(self) -> None:
        if self.done:
            return
        self.done = True
        match self.edit:
            case "delete":
                self.path.unlink()
            case "create" | "rewrite":
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(memory(critical=["- by hand."]))
            case "add":
                self.path.write_text(OLD.replace("- old.", "- old.\n- by hand."))
            case "take what goes":
                self.path.write_text(OLD.replace("- goes.", "- goes, says the person."))
            case "take what changes":
                self.path.write_text(OLD.replace("- changes.\n", ""))


MOMENTS = ["while forking", "before stage", "before publish db.md", "before publish MEMORY.md"]
EDITS = ["delete", "rewrite", "add", "take what goes", "take what changes"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_wins_and_the_ops_are_merged(
    home: Home, monkeypatch: pytest.MonkeyPatch, moment: str, edit: str
) -> None:
    home.remember(OLD)
    editor = Editor(home, monkeypatch, moment, edit)
    home.backend.outcomes[0] = editor.while_forking
    async with home.daemon() as daemon:
        run = await save(home, daemon)
        assert await daemon.owed() is None
        assert await daemon.ledger.commit(lambda ledger: ledger.intents()) == []
    assert editor.done
    assert run.state == "done"
    assert run.merged
    assert run.event.endswith("merged over a concurrent edit")
    text = home.memory()
    assert text.count("- new.\n") == 1
    assert home.memory(file="db.md").count("appended") == 1
    assert ("- by hand." in text) is (edit in ("rewrite", "add"))
    assert ("- old." in text) is (edit not in ("delete", "rewrite"))
    if edit == "add":
        assert "- changed." in text
        assert "- goes." not in text
    if edit == "take what goes":
        assert "- goes, says the person." in text
        assert "1 skipped" in run.event
    if edit == "take what changes":
        assert "changed." not in text
    assert len(sections(text)) == 4
    assert home.left() == ["MEMORY.md", "db.md"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_file_that_a_person_creates_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    editor = Editor(home, monkeypatch, moment, "create")
    home.backend.outcomes[0] = editor.while_forking
    async with home.daemon() as daemon:
        run = await save(home, daemon)
    assert (run.state, run.merged) == ("done", True)
    assert "- by hand." in home.memory()
    assert home.memory().count("- new.\n") == 1
    assert home.memory(file="db.md").count("appended") == 1


@pytest.mark.parametrize("moment", MOMENTS[:3])
async def test_with_drop_nothing_is_written_over_an_edit(
    home: Home, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    home.configure('on_concurrent_edit = "drop"\n')
    home.remember(OLD)
    editor = Editor(home, monkeypatch, moment, "add")
    home.backend.outcomes[0] = editor.while_forking
    async with home.daemon() as daemon:
        run = await save(home, daemon)
        assert await daemon.owed() is None
    words = "not written: MEMORY.md changed during the save"
    # one that lands when the topics are on their way already is merged: they can't be taken back
    if moment != "before publish db.md":
        assert (run.state, run.status, run.event) == (
            "failed",
            f"error: {words}",
            f"MEMORY.md: {words}",
        )
        assert home.memory() == OLD.replace("- old.", "- old.\n- by hand.")
        assert home.left() == ["MEMORY.md"]
        return
    assert run.state == "done"
    assert "- by hand." in home.memory()


async def test_with_drop_a_half_written_unit_is_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.configure('on_concurrent_edit = "drop"\n')
    home.remember(OLD)
    Editor(home, monkeypatch, "before publish MEMORY.md", "add")
    async with home.daemon() as daemon:
        run = await save(home, daemon)
    assert (run.state, run.merged) == ("done", True)
    assert "- by hand." in home.memory()
    assert "- new." in home.memory()
    assert home.memory(file="db.md").count("appended") == 1


async def test_with_drop_nothing_to_write_is_no_fault(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.configure('on_concurrent_edit = "drop"\n')
    home.remember(OLD)
    editor = Editor(home, monkeypatch, "while forking", "add")

    def nothing(request: ForkRequest) -> ForkReply:
        editor.while_forking(request)
        return saying()

    home.backend.outcomes[0] = nothing
    async with home.daemon() as daemon:
        assert (await save(home, daemon)).state == "no_change"


async def test_an_edit_of_a_topic_file_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.remember("# api: db\n\n- first\n", file="db.md")
    real, edited = home.files.publish, list[int]()

    def publish(directory: Path, staged: Any) -> bool:
        if staged.name == "db.md" and not edited:
            edited.append(path.write_text("# api: db\n\n- first\n- by hand\n"))
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    async with home.daemon() as daemon:
        run = await save(home, daemon)
    assert run.state == "done"
    assert home.memory(file="db.md") == "# api: db\n\n- first\n- by hand\n\n- appended\n"


async def test_an_edit_that_leaves_nothing_to_write_still_names_the_topics(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is in place when the person takes out all that the reply was about."""
    home.remember(memory(facts=["- goes."], topics=["- `db.md`."]))
    home.backend.outcomes[0] = saying(
        {"op": "remove", "line": "- goes."}, topics={"db.md": "- appended"}
    )
    path, real = home.memory_root / "api" / "MEMORY.md", home.files.publish

    def publish(directory: Path, staged: Any) -> bool:
        if staged.name == "MEMORY.md":
            path.write_text(memory(facts=["- stays."], topics=["- `db.md`."]))
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    async with home.daemon() as daemon:
        run = await save(home, daemon)
        versions = await daemon.ledger.commit(lambda ledger: ledger.file_versions(run.id))
    assert run.topics == ["db.md"]
    assert [each.name for each in versions] == ["db.md"]
    assert home.memory() == memory(facts=["- stays."], topics=["- `db.md`."])
    assert home.memory(file="db.md").count("appended") == 1


async def test_only_what_was_written_has_versions(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that was staged and then taken back would be undone into the file later."""
    home.remember(memory(facts=["- goes."]))
    home.backend.outcomes[0] = saying({"op": "remove", "line": "- goes."})
    path, real = home.memory_root / "api" / "MEMORY.md", home.files.publish

    def publish(directory: Path, staged: Any) -> bool:
        path.write_text(memory(facts=["- stays."]))
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    async with home.daemon() as daemon:
        run = await save(home, daemon)
        assert await daemon.ledger.commit(lambda ledger: ledger.file_versions(run.id)) == []
    assert (run.state, run.before != run.after) == ("no_change", True)
    assert home.left() == ["MEMORY.md"]


async def test_somebody_who_writes_without_a_pause(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.remember(OLD)
    real, writes = home.files.publish, [0]

    def publish(directory: Path, staged: Any) -> bool:
        if staged.name == "MEMORY.md" and writes[0] < 2 * commit.ATTEMPTS:
            writes[0] += 1
            path.write_text(OLD.replace("- old.", f"- old {writes[0]}."))
        return real(directory, staged)

    monkeypatch.setattr(home.files, "publish", publish)
    async with home.daemon() as daemon:
        run = await save(home, daemon)
        assert run.failure.endswith("file busy, it changed at each try")
        owed = await daemon.owed()
        assert owed is not None
        assert owed.run == run.id
        assert home.left() == ["MEMORY.md", "db.md"]
        writes[0] = 2 * commit.ATTEMPTS
        for _ in range(30):
            await daemon.later(2)
        assert await daemon.owed() is None
    assert len(home.backend.requests) == 1
    assert home.memory().count("- new.\n") == 1
    assert home.memory(file="db.md").count("appended") == 1


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────


class Victim(Home):
    """A home whose daemons die at a point: a file call, or before or after a commit."""

    def __init__(self, root: Path, faults: Faults) -> None:
        super().__init__(root)
        self.faults = faults
        self.backend.outcomes.clear()
        self.backend.outcomes.append(REPLY)

    def seen(self, ledger: Any) -> Any:
        return FaultyLedger(ledger, self.faults)


async def died(work: Callable[[], Any]) -> bool:
    """Whether the daemon died while it worked."""
    try:
        await work()
    except BaseExceptionGroup as group:
        killed, other = group.split(Killed)
        assert killed is not None
        assert other is None
        return True
    except Killed:
        return True
    return False


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_root() as root:
        yield root


def directories(folder: Path) -> Iterator[Path]:
    for number in count():
        yield folder / f"home{number}"


@pytest.mark.parametrize("known", [True, False], ids=["a file", "no file"])
async def test_a_kill_at_any_point_of_a_save_writes_all_of_it_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    faults = Faults(monkeypatch, folder)
    deaths = 0
    for root, armed in zip(directories(folder), faults.each(), strict=False):
        victim = Victim(root, faults)
        if known:
            victim.remember(OLD)

        async def first(victim: Victim = victim, armed: Any = armed) -> None:
            async with victim.daemon() as daemon:
                await victim.talk().turn("hello")
                with armed:
                    await daemon.quiet()

        paid = len(victim.backend.requests)
        deaths += await died(first)
        answered = any(request for request in victim.backend.requests[paid:])
        async with victim.daemon() as daemon:
            await daemon.quiet()
            assert await daemon.owed() is None
            run = await daemon.run()
            assert run.state == "done"
            assert await daemon.ledger.commit(lambda ledger: ledger.intents()) == []
            versions = await daemon.ledger.commit(lambda ledger: ledger.file_versions(run.id))  # noqa: B023
            assert [each.name for each in versions] == ["MEMORY.md", "db.md"]
            kept = await daemon.ledger.commit(
                lambda ledger: [
                    ledger.version(each.after)
                    for each in ledger.file_versions(run.id)  # noqa: B023
                ]
            )
            assert kept == [victim.memory().encode(), victim.memory(file="db.md").encode()]
        text = victim.memory()
        assert text.count("- new.\n") == 1
        assert victim.memory(file="db.md").count("- appended\n") == 1
        assert victim.left() == ["MEMORY.md", "db.md"]
        if known:
            assert text.count("- changed.\n") == 1
            assert "- goes." not in text
        asked = len(victim.backend.requests)
        assert asked == 1 or (asked == 2 and answered and not_kept(faults))
    assert deaths > 30


def not_kept(faults: Faults) -> bool:
    """It died before the reply was on disk: nothing of the unit was begun."""
    return "write" not in faults.passed


async def test_a_kill_at_any_point_of_a_rearrangement_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch, folder)
    deaths = 0
    for root, armed in zip(directories(folder), faults.each(), strict=False):
        victim = Victim(root, faults)
        victim.remember("- a line of old\n")

        async def first(victim: Victim = victim, armed: Any = armed) -> None:
            async with victim.daemon() as daemon:
                await daemon.projects.of(str(victim.project()), store=True)
                with armed:
                    await daemon.memories.in_shape(daemon.projects.named("api"))

        deaths += await died(first)
        async with victim.daemon() as daemon:
            found = await daemon.memories.in_shape(daemon.projects.named("api"))
            assert found.text is not None
            assert "- a line of old" in found.text
            runs = await daemon.runs_of("api")
            assert [run.reason for run in runs] == ["rearranged"]
            assert await daemon.ledger.commit(lambda ledger: ledger.unfinished_runs()) == []
            assert (await daemon.event()).startswith("MEMORY.md: rearranged")
        assert victim.memory(file="MEMORY.pre-migration.md") == "- a line of old\n"
        assert victim.left() == ["MEMORY.md", "MEMORY.pre-migration.md"]
    assert deaths > 15


def test_an_outcome_shows_no_text() -> None:
    record = RunRecord(id="r", project="p", session="s", state="done", event="words")
    assert "words" not in repr(Outcome(record, [], Notices()))
