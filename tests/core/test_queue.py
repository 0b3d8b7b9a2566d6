from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memoryd.core.queue import ALL, Job, Queue


def job(session: str, project: str = "api", asked: int = 1, not_before: float = 0.0) -> Job:
    return Job(session, project, asked, not_before)


def test_one_save_at_a_time_for_a_project() -> None:
    queue = Queue(4)
    queue.owe(job("a"))
    queue.owe(job("b"))
    assert queue.start(0) == [job("a")]
    assert queue.start(0) == []
    queue.finish("api")
    assert queue.start(0) == [job("b")]


def test_a_turn_that_ends_during_a_save_asks_for_exactly_one_more() -> None:
    queue = Queue(4)
    queue.owe(job("a"))
    queue.start(0)
    queue.owe(job("a", asked=2))
    queue.owe(job("a", asked=3))
    queue.finish("api")
    assert queue.start(0) == [job("a", asked=3)]
    queue.finish("api")
    assert queue.start(0) == []


def test_projects_do_not_wait_for_each_other_up_to_the_limit() -> None:
    queue = Queue(2)
    for name in ("x", "y", "z"):
        queue.owe(job(name, project=name))
    assert [found.project for found in queue.start(0)] == ["x", "y"]
    queue.finish("y")
    assert [found.project for found in queue.start(0)] == ["z"]


def test_a_job_that_waits_for_a_time_lets_others_pass() -> None:
    queue = Queue(1)
    queue.owe(job("a", not_before=10.0))
    queue.owe(job("b", project="web"))
    assert queue.next_start(0) == 0
    assert queue.start(0) == [job("b", project="web")]
    assert queue.next_start(0) == math.inf
    queue.finish("web")
    assert queue.next_start(0) == 10.0
    assert queue.start(10.0) == [job("a", not_before=10.0)]


def test_a_paused_project_waits_and_the_pause_of_all_holds_for_it() -> None:
    queue = Queue(2)
    queue.owe(job("a"))
    queue.pause("api", 5.0)
    queue.pause(ALL, 9.0)
    assert queue.start(0) == []
    assert queue.paused_until("api") == 9.0
    assert queue.next_start(0) == 9.0
    queue.resume(ALL)
    assert queue.start(5.0) == [job("a")]


class QueueMachine(RuleBasedStateMachine):
    """Nothing owed is lost, nothing waits twice, never two saves for a project."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(2)
        self.now = 0.0
        self.owed: dict[str, int] = {}
        self.running: dict[str, Job] = {}
        self.asked = 0

    @rule(session=st.sampled_from("abcdef"), wait=st.sampled_from([0.0, 0.0, 7.0]))
    def ask(self, session: str, wait: float) -> None:
        self.asked += 1
        self.owed[session] = self.asked
        self.queue.owe(Job(session, project_of(session), self.asked, self.now + wait))

    @rule()
    def start(self) -> None:
        for found in self.queue.start(self.now):
            assert found.project not in self.running
            assert self.owed.pop(found.session) == found.asked
            self.running[found.project] = found
        assert len(self.running) <= 2

    @rule(project=st.sampled_from(["p0", "p1", "p2"]))
    def finish(self, project: str) -> None:
        self.queue.finish(project)
        self.running.pop(project, None)

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(project=st.sampled_from(["p0", "p1", ALL]))
    def pause(self, project: str) -> None:
        self.queue.pause(project, self.now + 5.0)

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = sum(self.queue.waiting(project) for project in ("p0", "p1", "p2"))
        assert waiting == len(self.owed)

    def teardown(self) -> None:
        self.now += 1000.0
        for _ in range(20):
            self.start()
            for project in list(self.running):
                self.finish(project)
        assert self.owed == {}


def project_of(session: str) -> str:
    return f"p{ord(session) % 3}"


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
