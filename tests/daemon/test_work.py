"""What each end of a save does to its turn: what waits for what, and for how long."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from memories import memory
from rooms import Home, Talk, adding, learning, quick_root, saying
from wire import CLOCK_BACKEND, advance

from memoryd.core import statusline
from memoryd.core.memory.document import SECTIONS as ALL_SECTIONS
from memoryd.daemon.backlog import PARKED
from memoryd.errors import StorageError
from memoryd.ports import ForkFailure
from memoryd.protocol import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rooms import Daemon

    from memoryd.ports import ForkReply, ForkRequest

pytestmark = pytest.mark.anyio

LIMITED = ForkFailure("transient", status=429, type="rate_limit_error", retry_after=30)
OVERLOADED = ForkFailure("transient", status=529)
BROKEN = ForkFailure("transient", status=500)
NO_NETWORK = ForkFailure("transient")
SECTIONS = ALL_SECTIONS[1:3]
REFUSED = ForkFailure("credentials", status=401)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return CLOCK_BACKEND


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with quick_root() as root:
        yield Home(root)


@dataclass
class Model:
    """Answers that a test turns on and off, with the times at which each was asked for."""

    home: Home
    failing: ForkFailure | None = None
    asked: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.backend.outcomes.clear()
        self.home.backend.outcomes.append(self.answer)
        self._start = self.home.clock.now()

    def answer(self, request: ForkRequest) -> ForkReply | ForkFailure:
        self.asked.append((self.home.clock.now() - self._start, request.session.id))
        return self.failing or learning(request)

    @property
    def times(self) -> list[int]:
        return [round(at) for at, _ in self.asked]


async def run_for(daemon: Daemon, seconds: int, step: int = 1) -> None:
    """Let that time pass, a step at a time."""
    for _ in range(0, seconds, step):
        await daemon.later(step)


async def one_turn(daemon: Daemon, talk: Talk, fact: int = 1) -> None:
    await talk.turn(f"remember FACT-{fact}")
    await daemon.quiet()


class TestTransient:
    @pytest.mark.parametrize("failing", [OVERLOADED, BROKEN, NO_NETWORK])
    async def test_it_is_tried_again_with_growing_waits_up_to_the_limit(
        self, home: Home, failing: ForkFailure
    ) -> None:
        model = Model(home, failing)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 3600, 5)
            owed = await daemon.owed()
            assert owed is not None
            assert (owed.parked, owed.not_before) == ("network", PARKED)
        waits = [
            after - before for before, after in zip(model.times, model.times[1:], strict=False)
        ]
        rough = [15, 30, 60, 120, 240, 300, 300, 300, 300]
        assert len(waits) == len(rough) - 1 or len(waits) == len(rough)
        assert all(abs(wait - want) <= 5 for wait, want in zip(waits, rough, strict=False))
        assert sum(time <= 600 for time in model.times) <= 6
        assert model.times[-1] <= 1800

    async def test_once_it_works_all_that_waits_is_saved_by_one_fork(self, home: Home) -> None:
        model = Model(home, OVERLOADED)
        async with home.daemon() as daemon:
            talk = home.talk()
            for fact in range(3):
                await one_turn(daemon, talk, fact)
            assert len(model.asked) == 1  # turns that end while it waits join it
            model.failing = None
            await daemon.later(20)
            assert await daemon.owed() is None
            assert len(model.asked) == 2
            await daemon.later(3600)
        assert len(model.asked) == 2
        assert [home.memory().count(f"FACT-{fact}") for fact in range(3)] == [1, 1, 1]

    async def test_a_next_turn_is_tried_at_once_after_the_limit(self, home: Home) -> None:
        model = Model(home, NO_NETWORK)
        async with home.daemon() as daemon:
            talk = home.talk()
            await one_turn(daemon, talk)
            await run_for(daemon, 2000, 20)
            asked = len(model.asked)
            model.failing = None
            await one_turn(daemon, talk, 2)
            assert len(model.asked) == asked + 1
            assert await daemon.owed() is None
        assert home.memory().count("FACT-1") == 1

    async def test_any_save_that_gets_through_wakes_what_waits_for_the_network(
        self, home: Home
    ) -> None:
        model = Model(home, NO_NETWORK)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 2000, 20)
            model.failing = None
            await one_turn(daemon, home.talk(home.project("web"), "s2"), 2)
            assert await daemon.owed() is None
        assert "FACT-1" in home.memory()

    async def test_so_does_the_network_when_it_is_back(self, home: Home) -> None:
        model = Model(home, NO_NETWORK)
        home.reachable = False
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 2000, 20)
            tried = len(model.asked)
            await daemon.backlog.retry_network()
            await daemon.later(60)
            assert len(model.asked) == tried
            model.failing, home.reachable = None, True
            await daemon.backlog.retry_network()
            await daemon.quiet()
            assert await daemon.owed() is None
        assert "FACT-1" in home.memory()

    async def test_a_network_that_never_went_wakes_nothing(self, home: Home) -> None:
        model = Model(home, OVERLOADED)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 2000, 20)
            tried = len(model.asked)
            for _ in range(3):
                await daemon.backlog.retry_network()
                await daemon.later(60)
            assert len(model.asked) == tried

    async def test_so_does_a_start(self, home: Home) -> None:
        model = Model(home, NO_NETWORK)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 2000, 20)
        model.failing = None
        async with home.daemon() as daemon:
            await daemon.quiet()
            assert await daemon.owed() is None
        assert "FACT-1" in home.memory()

    async def test_the_limit_is_a_setting(self, home: Home) -> None:
        home.configure('retry_for = "20 s"\n')
        model = Model(home, NO_NETWORK)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 100)
        assert len(model.asked) == 2

    async def test_a_kill_in_between_forgets_nothing(self, home: Home) -> None:
        model = Model(home, NO_NETWORK)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            owed = await daemon.owed()
        async with home.daemon() as daemon:
            await daemon.quiet()
            assert await daemon.owed() == owed
            assert len(model.asked) == 1
            model.failing = None
            await daemon.later(20)
        assert "FACT-1" in home.memory()


class TestAskedToWait:
    async def test_nothing_is_sent_on_that_key_and_nobody_is_starved(self, home: Home) -> None:
        """429 with retry-after 30 for one project, while another has work."""
        model = Model(home, LIMITED)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await one_turn(daemon, home.talk(home.project("web"), "s2"), 2)
            assert daemon.holds.until("fake") >= home.clock.now() + 29
            (backend,) = await daemon.overview.backends()
            assert backend.waits_until == daemon.holds.until("fake")
            await run_for(daemon, 29)
            assert model.asked == [(model.asked[0][0], "s1")]
            assert (await daemon.status("web")).owed == 1
            model.failing = None
            await run_for(daemon, 10)
            assert [session for _, session in model.asked[1:]] in (["s1", "s2"], ["s2", "s1"])
            assert await daemon.owed("s1") is None
            assert await daemon.owed("s2") is None
            assert daemon.holds.until("fake") == 0
        assert "FACT-2" in home.memory("web")

    async def test_many_projects_send_no_more_than_one(self, home: Home) -> None:
        home.configure("max_parallel_saves = 8\n")
        model = Model(home, OVERLOADED)
        async with home.daemon() as daemon:
            talks = [home.talk(home.project(f"p{n}"), f"s{n}") for n in range(8)]
            await one_turn(daemon, talks[0])
            for talk in talks[1:]:
                await one_turn(daemon, talk)
            await run_for(daemon, 600, 2)
            assert len(model.asked) <= 6
            model.failing = None
            await run_for(daemon, 400, 2)
            for number in range(8):
                assert await daemon.owed(f"s{number}") is None
                assert "FACT-1" in home.memory(f"p{number}")
        assert len(model.asked) <= 6 + 8

    async def test_the_wait_of_the_server_is_never_undercut(self, home: Home) -> None:
        model = Model(home, ForkFailure("transient", status=429, retry_after=7200))
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 7190, 60)
            assert len(model.asked) == 1
            model.failing = None
            await run_for(daemon, 2000, 60)
            assert await daemon.owed() is None
        assert len(model.asked) == 2

    async def test_a_short_wait_that_is_asked_for_again_and_again_has_the_limit_too(
        self, home: Home
    ) -> None:
        model = Model(home, ForkFailure("transient", status=529, retry_after=5))
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await run_for(daemon, 3600, 20)
            owed = await daemon.owed()
            assert owed is not None
            assert owed.parked == "network"
        assert model.times[-1] <= 1800

    async def test_two_that_were_on_their_way_do_not_shorten_it(self, home: Home) -> None:
        home.backend.hold = anyio.Event()
        answers = iter([LIMITED, ForkFailure("transient", status=529)])
        model = Model(home)
        home.backend.outcomes.clear()
        home.backend.outcomes.append(lambda request: next(answers, None) or model.answer(request))
        async with home.daemon() as daemon:
            await home.talk().turn("FACT-1")
            await home.talk(home.project("web"), "s2").turn("FACT-2")
            await daemon.until(lambda: len(home.backend.requests) == 2)
            home.backend.hold.set()
            home.backend.hold = None
            await daemon.quiet()
            await run_for(daemon, 28)
            assert len(home.backend.requests) == 2

    async def test_who_goes_first_and_is_cancelled_gives_way(self, home: Home) -> None:
        model = Model(home, LIMITED)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await one_turn(daemon, home.talk(home.project("web"), "s2"), 2)
            model.failing = None
            home.backend.hold = anyio.Event()
            await run_for(daemon, 1)
            advance(60)
            await daemon.until(lambda: len(home.backend.requests) == 2)
            first = home.backend.requests[-1].session.id
            home.backend.hold = None
            daemon.backlog.cancel("api" if first == "s1" else "web")
            await daemon.quiet()
            await run_for(daemon, 30)
            other = "s2" if first == "s1" else "s1"
            assert await daemon.owed(other) is None

    async def test_on_a_subscription_turns_join_before_the_persons_limit_is_eaten(
        self, home: Home
    ) -> None:
        home.configure("max_saves_per_hour = 3\n")
        home.backend.on_subscription = True
        model = Model(home)
        async with home.daemon() as daemon:
            talk = home.talk()
            for fact in range(12):
                await one_turn(daemon, talk, fact)
            assert len(model.asked) == 3
            assert (await daemon.status()).owed == 1
            await run_for(daemon, 3700, 60)
            assert len(model.asked) == 4
            assert await daemon.owed() is None
        assert [home.memory().count(f"FACT-{fact} ") for fact in range(12)] == [1] * 12

    async def test_a_key_has_no_such_limit(self, home: Home) -> None:
        home.configure("max_saves_per_hour = 3\n")
        model = Model(home)
        async with home.daemon() as daemon:
            talk = home.talk()
            for fact in range(5):
                await one_turn(daemon, talk, fact)
        assert len(model.asked) == 5

    async def test_a_save_that_waited_shows_the_time_at_which_it_began(self, home: Home) -> None:
        model = Model(home, LIMITED)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            await one_turn(daemon, home.talk(home.project("web"), "s2"), 2)
            model.failing = None
            await run_for(daemon, 45)
            (run,) = await daemon.runs_of("web")
        assert run.started_at - run.owed_at > 25
        assert run.ended_at - run.started_at < 5


class TestCredentials:
    async def test_they_are_not_asked_again_until_they_change(self, home: Home) -> None:
        model = Model(home, REFUSED)
        async with home.daemon() as daemon:
            talk = home.talk()
            for fact in range(3):
                await one_turn(daemon, talk, fact)
            await run_for(daemon, 300, 60)
            await daemon.backlog.retry_credentials()
            await daemon.quiet()
            assert len(model.asked) == 1
            owed = await daemon.owed()
            assert owed is not None
            assert owed.parked == "credentials"
            status = await daemon.status()
            assert (status.owed, status.failures) == (1, 3)
            model.failing = None
            home.backend.release()  # as a login does
            await daemon.backlog.retry_credentials()
            await daemon.quiet()
            assert await daemon.owed() is None
        assert len(model.asked) == 2
        assert home.memory().count("FACT-0") == 1

    async def test_a_changed_config_is_enough(self, home: Home) -> None:
        home.backend.fault_text = "no key"
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            home.backend.fault_text = ""
            home.configure('api_key_file = "~/key"\n')
            daemon.config()
            await daemon.quiet()
            await daemon.until(lambda: home.memory() != "")

    async def test_a_start_asks_once(self, home: Home) -> None:
        model = Model(home, REFUSED)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
        async with home.daemon() as daemon:
            await daemon.quiet()
            await daemon.backlog.retry_credentials()
            await daemon.quiet()
            assert len(model.asked) == 1
            home.backend.release()
            model.failing = None
            await daemon.backlog.retry_credentials()
            await daemon.quiet()
        assert "FACT-1" in home.memory()


class TestCounting:
    async def test_twenty_failures_in_a_row_and_one_success(self, home: Home) -> None:
        model = Model(home, ForkFailure("refused"))
        async with home.daemon() as daemon:
            talk = home.talk()
            for fact in range(20):
                await one_turn(daemon, talk, fact)
                await daemon.later(10)
            status = await daemon.status()
            first = (await daemon.runs_of("api"))[0]
            assert (status.failures, status.failing_since) == (20, first.ended_at)
            assert status.failure == "the fork was refused by the model"
            coloured = await daemon.overview.text("api", colour=True)
            assert coloured == statusline.line(
                f"error: {status.failure}", home.clock.hhmm(status.status_at), colour=True
            )
            model.failing = None
            await one_turn(daemon, talk, 20)
            status = await daemon.status()
            assert (status.failures, status.failing_since, status.failure) == (0, 0.0, "")
            assert status.status.startswith("+")

    async def test_tokens_of_a_try_that_failed_count_once(self, home: Home) -> None:
        model = Model(home, ForkFailure("empty", usage=Usage(input=5, output=1), model="m"))
        async with home.daemon() as daemon:
            talk = home.talk()
            await one_turn(daemon, talk)
            model.failing = None
            await one_turn(daemon, talk, 2)
            assert (await daemon.status()).tokens_today == Usage(input=5, output=1)


class Shaky:
    """Stands before a room's call and fails it as long as a test wants."""

    def __init__(self, patch: pytest.MonkeyPatch, room: object, name: str) -> None:
        self.failing = True
        self.calls = 0
        real = getattr(room, name)

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.failing:
                raise StorageError("/m/MEMORY.md", "write", "No space left on device")
            return real(*args)

        patch.setattr(room, name, call)


class TestStorage:
    @pytest.mark.parametrize("call", ["stage", "publish"])
    async def test_a_full_disk_passes_and_the_reply_is_not_paid_for_twice(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        home.remember(memory(facts=["- old."]))
        before = home.memory()
        model = Model(home)
        async with home.daemon() as daemon:
            disk = Shaky(monkeypatch, home.files, call)
            talk = home.talk()
            await one_turn(daemon, talk)
            run, owed, status = await daemon.run(), await daemon.owed(), await daemon.status()
            words = "not saved: cannot write /m/MEMORY.md: No space left on device"
            assert (run.state, run.status) == ("failed", f"error: {words}")
            assert (run.backend, run.model) == ("fake", "fake-model")
            assert owed is not None
            assert (owed.parked, owed.run) == ("", run.id)
            assert (status.failures, status.failure) == (1, words)
            assert home.memory() == before
            await one_turn(daemon, talk, 2)
            await run_for(daemon, 120, 5)
            assert len(model.asked) == 1
            disk.failing = False
            await run_for(daemon, 300, 10)
            assert await daemon.owed() is None
            runs = await daemon.runs_of("api")
            assert runs[-2].backend_reason == f"the reply of run {runs[-3].id}"
            assert (runs[-2].state, runs[-2].backend, runs[-2].asked) == ("done", "", 1)
        assert len(model.asked) == 2
        assert home.memory().count("FACT-1") == 1
        assert home.memory().count("FACT-2") == 1
        assert home.left() == ["MEMORY.md"]

    async def test_a_unit_that_got_half_way_is_ended_and_appends_once(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home.remember(memory(facts=["- old."]))
        home.backend.outcomes.clear()
        home.backend.outcomes.append(saying(adding("new."), topics={"db.md": "- appended"}))
        real, failing = home.files.publish, [True]

        def publish(directory: Path, staged: Any) -> bool:
            if staged.name == "MEMORY.md" and failing[0]:
                raise StorageError(directory, "replace", "Input/output error")
            return real(directory, staged)

        monkeypatch.setattr(home.files, "publish", publish)
        async with home.daemon() as daemon:
            await one_turn(daemon, home.talk())
            assert home.memory(file="db.md").count("appended") == 1
            assert "new." not in home.memory()
            failing[0] = False
            await run_for(daemon, 60)
            run = await daemon.run()
            names = await daemon.ledger.commit(
                lambda ledger: [each.name for each in ledger.file_versions(run.id)]
            )
            assert await daemon.ledger.commit(lambda ledger: ledger.intents()) == []
        assert len(home.backend.requests) == 1
        assert (run.state, run.topics, names) == ("done", ["db.md"], ["MEMORY.md", "db.md"])
        assert home.memory(file="db.md").count("appended") == 1
        assert home.memory().count("new.") == 1
        assert home.left() == ["MEMORY.md", "db.md"]

    async def test_after_the_limit_it_waits_for_a_save_that_gets_through(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = Model(home)
        async with home.daemon() as daemon:
            disk = Shaky(monkeypatch, home.files, "stage")
            await one_turn(daemon, home.talk())
            await run_for(daemon, 2400, 20)
            owed = await daemon.owed()
            assert owed is not None
            assert owed.parked == "network"
            disk.failing = False
            await one_turn(daemon, home.talk(home.project("web"), "s2"), 2)
            assert await daemon.owed() is None
        assert len(model.asked) == 2

    async def test_a_disk_that_is_full_before_the_fork_costs_nothing(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home.remember("- out of shape\n")
        model = Model(home)
        async with home.daemon() as daemon:
            disk = Shaky(monkeypatch, home.files, "back_up")
            await one_turn(daemon, home.talk())
            await run_for(daemon, 100, 5)
            assert (disk.calls > 2, model.asked) == (True, [])
            disk.failing = False
            await run_for(daemon, 300, 10)
        assert len(model.asked) == 1
        assert "FACT-1" in home.memory()

    @pytest.mark.parametrize("at", range(1, 12))
    async def test_a_ledger_that_fails_once_at_any_commit_loses_no_turn(
        self, home: Home, at: int
    ) -> None:
        failing = _Failing(at)
        home.seen = failing.over  # type: ignore[method-assign]
        model = Model(home)
        async with home.daemon() as daemon:
            talk = home.talk()
            await talk.turn("remember FACT-1")
            failing.armed = True
            await daemon.quiet()
            failing.armed = False
            await run_for(daemon, 200, 5)
            assert await daemon.owed() is None
        assert home.memory().count("FACT-1") == 1
        assert home.left() == ["MEMORY.md"]
        assert len(model.asked) <= 2  # one whose reply could not be kept

    async def test_a_ledger_that_fails_for_long(self, home: Home) -> None:
        failing = _Failing(0)
        home.seen = failing.over  # type: ignore[method-assign]
        model = Model(home)
        async with home.daemon() as daemon:
            await home.talk().turn("remember FACT-1")
            failing.armed = True
            await daemon.quiet()
            await run_for(daemon, 3600, 60)
            assert len(model.asked) <= 1
            assert daemon.backlog.waiting("api") == 1
            failing.armed = False
            await run_for(daemon, 120, 5)
            assert await daemon.owed() is None
        assert home.memory().count("FACT-1") == 1


class _Failing:
    """A ledger whose commits fail while it is armed: all of them, or the one with a number."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.armed = False
        self.count = 0

    def over(self, ledger: Any) -> Any:
        self.ledger = ledger
        return self

    async def commit(self, work: Any) -> Any:
        if self.armed:
            self.count += 1
            if self.count == self.at or not self.at:
                raise StorageError("/s/ledger.sqlite3", "write", "database or disk is full")
        return await self.ledger.commit(work)


class TestTwoHundredSaves:
    async def test_two_sessions_in_two_worktrees_write_all_their_facts_once(
        self, home: Home
    ) -> None:
        """Their turns end at random moments; each fact has a save of its own."""
        chance = random.Random(7)
        topics = [f"t{number}.md" for number in range(4)]

        def answer(request: ForkRequest) -> ForkReply:
            fact = int(request.conversation[-1].split("FACT-")[1].split()[0])
            if fact % 2:
                return saying(topics={chance.choice(topics): f"- FACT-{fact} holds."})
            return saying(adding(f"FACT-{fact} holds.", chance.choice(SECTIONS)))

        home.backend.outcomes.clear()
        home.backend.outcomes.append(answer)
        repository = home.repository()
        async with home.daemon() as daemon:
            talks = [home.talk(repository, "s0"), home.talk(home.worktree(repository), "s1")]

            async def work(talk: Talk, first: int) -> None:
                for fact in range(first, first + 100):
                    await talk.turn(f"FACT-{fact} ")
                    for _ in range(chance.randrange(40)):
                        await anyio.lowlevel.checkpoint()
                    while await daemon.owed(talk.session) is not None:
                        await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                for number, talk in enumerate(talks):
                    tasks.start_soon(work, talk, number * 100)
            await daemon.quiet()
            assert daemon.projects.names() == ["api"]
            assert len(await daemon.runs_of("api")) == 200
        written = "".join(home.memory(file=name) for name in ("MEMORY.md", *topics))
        for fact in range(200):
            assert written.count(f"- FACT-{fact} holds.\n") == 1
        assert home.left() == ["MEMORY.md", *topics]
