from __future__ import annotations

import pytest

from memoryd.core.turns import (
    Ask,
    Turn,
    ended,
    failed,
    over,
    prompted,
    started,
    tools_ran,
    worth_reading,
)


def after_prompt(prompt: str = "use bun here", prompt_id: str = "p1") -> Turn:
    turn, ask = prompted(Turn(), prompt_id, prompt)
    assert ask is None
    return turn


def test_a_turn_that_a_person_started_asks_when_it_ends() -> None:
    turn, ask = ended(after_prompt(), "p1")
    assert ask == Ask("answer", sure=True)
    assert not turn.running
    assert not turn.prompted


def test_a_notice_that_only_got_words_leaves_it_to_the_transcript() -> None:
    turn = after_prompt("<task-notification>\n<task-id>x</task-id>")
    turn, ask = ended(turn, "p1")
    assert ask == Ask("answer", sure=False)
    assert turn.unread


def test_a_notice_that_made_a_tool_run_asks() -> None:
    turn = tools_ran(after_prompt("<task-notification>x"))
    assert ended(turn, "p1")[1] == Ask("answer", sure=True)


def test_a_prompt_that_was_dequeued_has_no_event_of_its_own_and_is_looked_for() -> None:
    turn, _ = ended(after_prompt(), "p1")
    assert ended(turn, "p2")[1] == Ask("answer", sure=False)


def test_nine_stops_of_one_turn_ask_once() -> None:
    turn, first = ended(after_prompt(), "p1")
    asks = [first]
    for _ in range(8):
        turn, ask = ended(turn, "p1")
        asks.append(ask)
    assert asks == [Ask("answer", sure=True)] + [None] * 8


def test_a_turn_that_a_stop_hook_made_go_on_with_tools_asks_again() -> None:
    turn, _ = ended(after_prompt(), "p1")
    assert ended(tools_ran(turn), "p1")[1] == Ask("answer", sure=True)


def test_another_prompt_without_a_stop_before_it_means_an_interruption() -> None:
    turn, ask = prompted(after_prompt(), "p2", "no, like this")
    assert ask == Ask("interrupted", sure=True)
    assert ended(turn, "p2")[1] == Ask("answer", sure=True)


def test_a_prompt_queued_while_a_turn_runs_carries_its_id_and_interrupts_nothing() -> None:
    turn, ask = prompted(after_prompt(), "p1", "also note this")
    assert ask is None
    assert turn.running


def test_a_failed_turn_asks_nothing_and_counts_for_the_next() -> None:
    turn = failed(after_prompt())
    assert over(turn, "session_end")[1] is None
    turn, _ = prompted(turn, "p2", "<task-notification>x")
    assert ended(turn, "p2")[1] == Ask("answer", sure=True)


def test_a_failed_turn_is_not_taken_for_an_interruption() -> None:
    assert prompted(failed(after_prompt()), "p2", "again")[1] is None


@pytest.mark.parametrize("reason", ["session_end", "process_gone", "idle"])
def test_an_end_asks_for_what_was_left_unread(reason: str) -> None:
    turn, _ = ended(after_prompt("<task-notification>x"), "p1")
    turn, ask = over(turn, reason)  # type: ignore[arg-type]
    assert ask == Ask(reason, sure=False)  # type: ignore[arg-type]
    assert over(turn, reason)[1] is None  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["session_end", "process_gone"])
def test_a_turn_goes_on_after_a_silence_and_its_end_is_asked_for(reason: str) -> None:
    turn, ask = over(after_prompt(), "idle")
    assert ask == Ask("idle", sure=True)
    assert turn.running
    assert ended(turn, "p1")[1] == Ask("answer", sure=False)
    assert ended(tools_ran(turn, "p1"), "p1")[1] == Ask("answer", sure=True)
    assert over(turn, reason)[1] == Ask(reason, sure=False)  # type: ignore[arg-type]


def test_a_tool_of_an_unknown_turn_says_that_one_runs() -> None:
    turn, _ = ended(after_prompt(), "p1")
    assert not tools_ran(turn, "p1").running  # late
    dequeued = tools_ran(turn, "p2")
    assert prompted(dequeued, "p3", "no, like this")[1] == Ask("interrupted", sure=True)
    assert over(dequeued, "session_end")[1] == Ask("session_end", sure=True)
    assert ended(dequeued, "p2")[1] == Ask("answer", sure=True)


def test_an_end_inside_a_turn_asks_for_it() -> None:
    assert over(after_prompt(), "session_end")[1] == Ask("session_end", sure=True)


def test_an_end_after_a_saved_turn_asks_nothing() -> None:
    turn, _ = ended(after_prompt(), "p1")
    assert over(turn, "session_end")[1] is None


def test_a_session_that_comes_back_after_a_kill_owes_the_turn_that_ran() -> None:
    turn, ask = started(after_prompt(), "resume")
    assert ask == Ask("interrupted", sure=True)
    assert not turn.running


def test_a_compaction_inside_a_turn_changes_nothing() -> None:
    turn = after_prompt()
    assert started(turn, "compact") == (turn, None)


def test_a_session_that_only_our_own_message_started_asks_nothing() -> None:
    turn = after_prompt("[memoryd] This message is not from the user.")
    turn, ask = ended(tools_ran(turn), "p1")
    assert ask is None
    assert over(turn, "session_end")[1] is None


def test_a_person_who_pastes_our_message_is_saved_with_the_next_prompt() -> None:
    turn = after_prompt("[memoryd] This message is not from the user.")
    turn, _ = ended(turn, "p1")
    turn, _ = prompted(turn, "p2", "what does this mean?")
    assert ended(turn, "p2")[1] == Ask("answer", sure=True)


def test_our_message_pasted_in_the_middle_of_a_session_changes_nothing() -> None:
    turn, _ = ended(after_prompt(), "p1")
    turn, _ = prompted(turn, "p2", "[memoryd] This message is not from the user.")
    assert ended(turn, "p2")[1] == Ask("answer", sure=True)


@pytest.mark.parametrize(
    ("reason", "sure", "prompts", "tools", "news", "worth"),
    [
        ("answer", True, 1, 0, True, True),
        ("answer", False, 0, 1, True, True),
        ("answer", False, 0, 0, True, False),
        ("answer", True, 0, 0, True, False),  # it looked typed and was a scheduled prompt
        ("answer", True, 0, 0, False, True),  # the transcript does not hold the turn yet
        ("answer", False, 0, 0, False, False),
        ("interrupted", True, 1, 0, True, True),
        ("session_end", False, 0, 0, True, True),
        ("session_end", True, 0, 0, False, True),
        ("idle", False, 0, 0, False, False),
        ("idle", True, 0, 0, False, False),
        ("idle", False, 0, 0, True, True),
    ],
)
def test_worth_reading_by_what_the_transcript_holds(
    *, reason: str, sure: bool, prompts: int, tools: int, news: bool, worth: bool
) -> None:
    found = worth_reading(reason, sure=sure, prompts=prompts, tools=tools, news=news)  # type: ignore[arg-type]
    assert found is worth
