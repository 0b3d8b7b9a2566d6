"""Which turns are saved, through all real parts but the client and the model."""

from __future__ import annotations

import re
from threading import Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from house import adding, house, saying

if TYPE_CHECKING:
    from house import House, Session

    from memoryd.demo.script import Call, Reply

pytestmark = pytest.mark.e2e

FACT = re.compile(r"FACT-\d+")
NOTICE = (
    "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>"
)


def every_fact(call: Call) -> Reply:
    """A model that remembers each fact that the conversation names."""
    found = dict.fromkeys(FACT.findall("\n".join(call.texts)))
    return saying(*(adding(f"{fact} holds.") for fact in found))


def notice(session: Session, answer: str) -> None:
    """A turn that a background task's end starts."""
    session.prompt_id = str(uuid4())
    session.fire("UserPromptSubmit", prompt=NOTICE)
    session.records.user(
        NOTICE,
        promptId=session.prompt_id,
        origin={"kind": "task-notification"},
        promptSource="system",
    )
    session.answer(answer)


def test_an_interrupted_turn_is_saved_with_the_next_prompt() -> None:
    with house(every_fact) as home:
        session = home.session(home.project())
        session.start()
        session.prompt("remember FACT-1")
        session.records.user(
            "[Request interrupted by user]", rowSource="harness", interruptedMessageId="m1"
        )
        session.prompt("and go on")
        (run,) = home.wait_saved()
        assert run.reason == "interrupted"
        assert "FACT-1 holds." in home.memory()


def test_an_interrupted_turn_is_saved_when_the_session_ends() -> None:
    with house(every_fact) as home:
        session = home.session(home.project())
        session.start()
        session.prompt("remember FACT-1")
        session.end()
        (run,) = home.wait_saved()
        assert run.reason == "session_end"
        assert "FACT-1 holds." in home.memory()


def test_a_subagents_tools_alone_are_not_saved_and_one_of_the_main_session_is() -> None:
    with house(every_fact) as home:
        repository = home.project()
        session = home.session(repository)
        session.start()
        session.turn("remember FACT-1")
        home.wait_saved()
        session.fire("PostToolBatch", agent_id="a1", tool_calls=[{"tool_name": "Bash"}])
        notice(session, "the subagent is done, FACT-2")
        home.wait_skipped()
        assert len(home.runs()) == 1
        session.prompt_id = str(uuid4())
        session.fire("UserPromptSubmit", prompt=NOTICE)
        session.tool("Bash", "ok", command="ls")
        session.answer("I looked.")
        home.wait_saved(2)
        assert "FACT-2 holds." in home.memory()


def test_a_notice_that_only_got_words_is_read_by_the_next_save() -> None:
    with house(every_fact) as home:
        repository = home.project()
        session = home.session(repository)
        session.start()
        session.turn("hello")
        home.wait_saved()
        before = home.project_status(repository)
        notice(session, "done: FACT-7")
        home.wait_skipped()
        after = home.project_status(repository)
        assert (after.status, after.status_at) == (before.status, before.status_at)
        assert "FACT-7" not in home.memory()
        session.turn("thanks")
        home.wait_saved(2)
        assert "FACT-7 holds." in home.memory()


def test_a_skipped_turn_is_saved_when_the_session_ends() -> None:
    with house(every_fact) as home:
        session = home.session(home.project())
        session.start()
        session.turn("hello")
        home.wait_saved()
        notice(session, "done: FACT-7")
        session.end()
        home.wait(lambda: "FACT-7 holds." in home.memory())


def test_a_skipped_turn_is_saved_when_nothing_comes_for_long() -> None:
    with house(every_fact) as home:
        home.configure('idle_save_after = "1 s"\n')
        session = home.session(home.project())
        session.start()
        notice(session, "done: FACT-7")
        home.wait(lambda: "FACT-7 holds." in home.memory())
        assert home.runs()[-1].reason == "idle"


def test_a_turn_whose_process_is_gone_is_saved() -> None:
    with house(every_fact) as home, home.bystander() as process:
        session = home.session(home.project(), CLAUDE_PID=str(process.pid))
        session.start()
        session.prompt("remember FACT-1")
        process.kill()
        (run,) = home.wait_saved()
        assert run.reason == "process_gone"
        assert "FACT-1 holds." in home.memory()


def test_an_api_error_is_not_saved_and_counts_for_the_next_turn() -> None:
    with house(every_fact) as home:
        session = home.session(home.project())
        session.start()
        session.prompt("remember FACT-1")
        session.fire("StopFailure", error="rate_limit", last_assistant_message="API Error")
        session.turn("hello")
        (run,) = home.wait_saved()
        assert run.reason == "answer"
        assert "FACT-1 holds." in home.memory()


def test_nine_stops_of_one_turn_make_one_save() -> None:
    with house(every_fact) as home:
        repository = home.project()
        session = home.session(repository)
        session.start()
        session.turn("remember FACT-1")
        for _ in range(8):
            session.fire("Stop", stop_hook_active=True, last_assistant_message="Done.")
        home.wait_saved()
        home.wait_idle(repository)
        assert len(home.runs(skipped=True)) == 1
        assert len(home.api.messages) == 1


@pytest.mark.parametrize("name", ["MEMORYD_DISABLE", "MEMORYD_CHILD"])
def test_a_session_that_is_switched_off_by_its_environment_does_nothing(name: str) -> None:
    with house(every_fact) as home:
        session = home.session(home.project(), **{name: "1"})
        assert session.start() == ""
        session.turn("remember FACT-1")
        session.end()
        assert home.status().sessions == 0
        assert home.status().projects == []


def test_headless_sessions_follow_the_setting() -> None:
    with house(every_fact) as home:
        home.configure('headless = "load"\n')
        repository = home.project()
        marks = {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_SESSION_ATTENDED": "0"}
        session = home.session(repository, **marks)
        assert "written for you" in session.start()
        session.turn("remember FACT-1")
        home.configure('headless = "off"\n')
        assert home.session(repository, **marks).start() == ""
        home.configure('headless = "full"\n')
        home.session(repository, **marks).turn("remember FACT-2")
        (run,) = home.wait_saved()
        assert "FACT-2" in home.memory()
        assert "FACT-1" not in home.memory()
        assert run.state == "done"


def test_an_excluded_project_is_left_alone_until_it_is_not_excluded() -> None:
    with house(every_fact) as home:
        repository = home.project()
        home.configure('exclude = ["~/work/*"]\n')
        session = home.session(repository)
        assert session.start() == ""
        session.turn("remember FACT-1")
        assert home.status().sessions == 0
        home.configure("exclude = []\n")
        session.turn("remember FACT-2")
        home.wait_saved()
        assert "FACT-2 holds." in home.memory()


def test_a_session_that_only_our_own_message_started_leaves_no_trace() -> None:
    with house(every_fact) as home:
        session = home.session(home.project())
        session.start()
        session.turn("[memoryd] This message is not from the user. FACT-1")
        session.end()
        assert home.runs(skipped=True) == []
        assert home.status().projects == []


def test_all_events_are_booked_to_the_project_of_the_sessions_start() -> None:
    with house(every_fact) as home:
        repository = home.project()
        session = home.session(repository)
        session.start()
        session.prompt("remember FACT-1")
        (repository / "sub").mkdir()
        for directory in (repository / "sub", home.root, home.home / ".claude"):
            session.directory = directory
            session.env["CLAUDE_PROJECT_DIR"] = str(directory)
            session.tool("Bash", "ok", command="cd")
        session.answer()
        home.wait_saved()
        assert [found.name for found in home.status().projects] == ["api"]
        assert "FACT-1 holds." in home.memory()


def test_100_sessions_that_end_turns_at_once_over_10_projects_lose_none() -> None:
    with house(every_fact) as home:
        repositories = [home.project(f"p{number}") for number in range(10)]
        sessions = [home.session(repositories[number % 10]) for number in range(100)]

        def work(number: int) -> None:
            for turn in range(2):
                sessions[number].turn(f"remember FACT-{number * 10 + turn}")

        threads = [Thread(target=work, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        home.wait(lambda: all_done(home), 180)
        for number in range(100):
            lines = home.memory(f"p{number % 10}").split("\n")
            for turn in range(2):
                assert lines.count(f"- FACT-{number * 10 + turn} holds.") == 1
        assert orders_kept(home, sessions)


def all_done(home: House) -> bool:
    status = home.status()
    return not status.spooled and not any(found.owed or found.running for found in status.projects)


def orders_kept(home: House, sessions: list[Session]) -> bool:
    """Each session's saves took its asks in order."""
    asked: dict[str, list[int]] = {session.id: [] for session in sessions}
    for run in home.runs():
        asked[run.session].append(run.asked)
    return all(found == sorted(found) and found for found in asked.values())
