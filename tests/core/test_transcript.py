"""The live branch and the conversation that is on it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from transcripts import Rows, said

from memoryd.core.transcript import (
    Activity,
    Branch,
    Media,
    Rewind,
    Row,
    Text,
    ToolCall,
    ToolResult,
)

MISSING = "error no result: the call was interrupted, or its result is not in the transcript"


def test_an_empty_transcript_has_no_conversation() -> None:
    reading = Rows().reading()
    assert (said(reading), reading.typed, reading.leaf) == ([], (), "")
    assert reading.activity == Activity()


def test_rows_of_one_message_are_one_message() -> None:
    rows = Rows()
    rows.user("hello")
    rows.model("first", "second", message="m")
    assert said(rows.reading()) == ["human: hello", "assistant: first, second"]


def test_a_turn_starts_at_a_user_message_that_is_no_result() -> None:
    rows = Rows()
    rows.user("hello")
    rows.call("a")
    rows.result("a")
    rows.model("done")
    rows.user("a task ended", "notice")
    rows.model("good")
    turns = rows.reading().conversation.turns
    assert [len(turn.messages) for turn in turns] == [4, 2]
    assert [turn.asked for turn in turns] == [True, False]


def test_a_command_and_its_output_are_one_turn() -> None:
    rows = Rows()
    rows.user("/model", "command")
    rows.user("set", "output")
    rows.user("/cost", "command")
    rows.user("hello")
    assert [len(turn.messages) for turn in rows.reading().conversation.turns] == [2, 1, 1]


def test_notes_of_the_host_say_nothing() -> None:
    rows = Rows()
    rows.user("hello")
    rows.user("resume directly", "meta")
    rows.link()
    rows.model("hi")
    assert said(rows.reading()) == ["human: hello", "assistant: hi"]


def test_a_rewound_branch_is_not_read() -> None:
    rows = Rows()
    rows.user("one")
    fork = rows.model("first")
    rows.user("dead")
    rows.model("dead too")
    rows.user("two", parent=fork)
    rows.model("second")
    reading = rows.reading()
    assert said(reading) == ["human: one", "assistant: first", "human: two", "assistant: second"]
    assert reading.typed == ("one", "two")
    assert reading.activity.prompts == 2


def test_the_leaf_that_a_rewind_names_ends_the_branch_until_the_next_row() -> None:
    rows = Rows()
    rows.user("one")
    fork = rows.model("first")
    rows.user("dead")
    branch = rows.branch()
    branch.add(Rewind(0, fork))
    assert said(branch.reading(since=0, end=0)) == ["human: one", "assistant: first"]
    rows.user("two", parent=fork)
    branch.add(rows.rows[-1])
    assert said(branch.reading(since=0, end=0))[-1] == "human: two"


def test_a_result_that_comes_late_does_not_revive_a_rewound_branch() -> None:
    rows = Rows()
    fork = rows.user("one")
    rows.user("dead")
    call = rows.call("a")
    kept = rows.user("two", parent=fork)
    branch = rows.branch()
    branch.add(Rewind(0, ""))
    rows.result("a", parent=call)
    rows.link()
    rows.model("to two", parent=kept)
    for row in rows.rows[-3:]:
        branch.add(row)
    assert said(branch.reading(since=0, end=0)) == ["human: one", "human: two", "assistant: to two"]


def test_a_rewind_to_an_unknown_leaf_changes_nothing() -> None:
    rows = Rows()
    rows.user("one")
    branch = rows.branch()
    branch.add(Rewind(0, "00000000-0000-0000-0000-000000000000"))
    assert said(branch.reading(since=0, end=0)) == ["human: one"]


def test_doubles_are_dropped() -> None:
    rows = Rows()
    rows.user("one")
    rows.model("first")
    branch = rows.branch()
    for row in rows.rows:
        branch.add(row)
    assert said(branch.reading(since=0, end=0)) == ["human: one", "assistant: first"]


def test_a_missing_parent_is_replaced_by_the_row_before() -> None:
    rows = Rows()
    rows.user("one")
    rows.model("first")
    rows.user("two", parent="lost")
    assert said(rows.reading()) == ["human: one", "assistant: first", "human: two"]


def test_a_circle_of_parents_ends() -> None:
    rows = Rows()
    rows.add("a", "b", author="human", blocks=(Text("one"),))
    rows.add("b", "a", author="human", blocks=(Text("two"),))
    assert said(rows.reading()) == ["human: one", "human: two"]


def test_rows_of_unknown_types_link_but_never_end_a_branch() -> None:
    rows = Rows()
    rows.user("one")
    rows.add("progress", passing=True)
    rows.model("first")
    rows.add("other", "nowhere", passing=True)
    assert said(rows.reading()) == ["human: one", "assistant: first"]


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────


def test_parallel_results_on_side_branches_follow_their_calls() -> None:
    rows = Rows()
    rows.user("go")
    first = rows.call("a", "Read", message="m")
    second = rows.call("b", "Bash", message="m")
    rows.result("b", "of b", parent=second)
    rows.result("a", "of a", parent=first)
    rows.model("done")
    assert said(rows.reading()) == [
        "human: go",
        "assistant: Read(), Bash()",
        "tool: -> of a, -> of b",
        "assistant: done",
    ]


def test_calls_on_a_side_branch_come_back_by_their_message() -> None:
    rows = Rows()
    rows.user("go")
    text = rows.model("both", message="m")
    rows.call("a", message="m")
    rows.call("b", message="m", parent=text)
    rows.result("b")
    assert said(rows.reading())[1:] == [
        "assistant: both, Bash(), Bash()",
        f"tool: {MISSING}, -> done",
    ]


def test_a_tool_of_the_provider_is_answered_within_the_message() -> None:
    rows = Rows()
    rows.user("go")
    rows.model(
        ToolCall("s", "search", ""), ToolResult("s", "found", error=False), "so", message="m"
    )
    assert said(rows.reading())[1:] == ["assistant: search(), -> found, so"]


def test_a_call_without_a_result_gets_an_error_result() -> None:
    rows = Rows()
    rows.user("go")
    rows.call("a")
    assert said(rows.reading())[-1] == f"tool: {MISSING}"


def test_a_result_that_comes_after_the_next_prompt_changes_no_ended_turn() -> None:
    rows = Rows()
    rows.user("go")
    rows.call("a")
    ended = rows.reading().conversation.turns[0]
    rows.user("again")
    rows.result("a", "late")
    reading = rows.reading()
    assert reading.conversation.turns[0] == ended
    assert said(reading)[-2:] == ["human: again", "tool: -> late"]


def test_a_result_without_its_call_is_kept() -> None:
    rows = Rows()
    rows.user("go")
    rows.result("lost", "text")
    assert said(rows.reading()) == ["human: go", "tool: -> text"]


def test_media_are_marks() -> None:
    rows = Rows()
    rows.add("u", author="human", blocks=(Text("look"), Media("image", "image/png")))
    assert said(rows.reading()) == ["human: look, [image]"]


# ── compaction ─────────────────────────────────────────────────────────────────────────────────────


def test_the_conversation_starts_at_the_last_compaction() -> None:
    rows = Rows()
    rows.user("one")
    rows.compaction("first")
    rows.user("two")
    rows.compaction("second")
    rows.user("three")
    assert said(rows.reading()) == ["summary: second", "human: three"]


def test_what_was_typed_since_is_told_even_of_before_a_compaction() -> None:
    rows = Rows()
    rows.user("old")
    since = rows.end
    rows.user("new")
    rows.call("a")
    rows.result("a")
    rows.compaction()
    rows.user("after")
    reading = rows.reading(since)
    assert reading.typed == ("new", "after")
    assert reading.activity == Activity(prompts=2, tools=1)


def test_what_was_rewound_before_a_compaction_was_not_typed() -> None:
    rows = Rows()
    fork = rows.user("one")
    rows.user("dead")
    rows.user("two", parent=fork)
    rows.compaction()
    assert rows.reading().typed == ("one", "two")


def test_preserved_rows_hang_behind_the_summary() -> None:
    rows = Rows()
    rows.user("old")
    rows.model("older")
    kept = rows.user("kept")
    tail = rows.link()
    boundary = len(rows.rows)
    summary = f"summary{boundary + 1}"
    rows.compaction(anchor=summary, preserved=(kept, tail))
    rows.link()
    rows.model("answer")
    assert said(rows.reading()) == ["summary: all before", "human: kept", "assistant: answer"]
    assert rows.reading().typed == ("old", "kept")


def test_a_segment_is_preserved_from_its_head_to_its_tail() -> None:
    rows = Rows()
    rows.user("old")
    kept = rows.user("kept")
    tail = rows.model("too")
    rows.compaction(anchor=f"summary{len(rows.rows) + 1}", head=kept, tail=tail)
    rows.user("new")
    assert said(rows.reading()) == [
        "summary: all before",
        "human: kept",
        "assistant: too",
        "human: new",
    ]


def test_a_summary_of_the_later_part_stands_behind_what_was_kept() -> None:
    rows = Rows()
    kept = rows.user("kept")
    tail = rows.model("too")
    rows.user("summed up")
    boundary = f"boundary{len(rows.rows)}"
    rows.compaction(anchor=boundary, preserved=(kept, tail))
    assert said(rows.reading()) == ["human: kept", "assistant: too", "summary: all before"]


def test_a_row_that_hangs_off_a_preserved_one_stays_behind_the_summary() -> None:
    rows = Rows()
    rows.user("old")
    kept = rows.model("kept")
    rows.compaction(anchor=f"summary{len(rows.rows) + 1}", preserved=(kept,))
    rows.user("/compact", "command", parent=kept)
    assert said(rows.reading()) == ["summary: all before", "assistant: kept", "command: /compact"]


def test_a_row_that_hangs_off_a_row_of_before_stays_behind_the_summary() -> None:
    rows = Rows()
    old = rows.user("old")
    rows.compaction()
    rows.user("/compact", "command", parent=old)
    assert said(rows.reading()) == ["summary: all before", "command: /compact"]


def test_preserved_rows_that_were_not_handed_over_are_wanted() -> None:
    rows = Rows()
    rows.compaction(anchor="summary1", preserved=("not-here",))
    branch = rows.branch()
    reading = branch.reading(since=0, end=0)
    wanted = branch.wanted
    assert wanted is not None
    assert (wanted.uuid, wanted.whole) == ("not-here", False)
    branch.give_up(wanted)
    assert branch.wanted is None
    assert branch.reading(since=0, end=0) == reading


def test_a_rewind_past_a_compaction_takes_the_old_rows_back() -> None:
    rows = Rows()
    fork = rows.user("one")
    rows.user("dead")
    rows.compaction()
    rows.user("dead too")
    rows.user("two", parent=fork)
    branch = rows.branch()
    branch.add(Rewind(0, "00000000-0000-0000-0000-000000000000"))
    assert said(branch.reading(since=0, end=0)) == ["human: one", "human: two"]


def test_a_rewind_past_a_compaction_wants_the_whole_branch_before() -> None:
    rows = Rows()
    rows.compaction()
    rows.user("two", parent="not-here")
    branch = rows.branch()
    branch.add(Rewind(0, ""))
    reading = branch.reading(since=0, end=0)
    wanted = branch.wanted
    assert wanted is not None
    assert (wanted.uuid, wanted.whole) == ("not-here", True)
    assert said(reading) == ["human: two"]


def test_a_branch_of_mostly_old_rows_is_outdated() -> None:
    rows = Rows()
    for _ in range(1_200):
        rows.link()
    rows.compaction()
    branch = rows.branch()
    branch.reading(since=rows.end, end=rows.end)
    assert branch.outdated(rows.end)
    assert not branch.outdated(0)


# ── a session that is open twice ───────────────────────────────────────────────────────────────────


def test_both_streams_of_a_session_that_is_open_twice_are_read() -> None:
    rows = Rows()
    rows.user("base")
    fork = rows.model("ok")
    first = rows.user("A")
    second = rows.user("B", parent=fork)
    first = rows.model("to A", parent=first)
    rows.model("to B", parent=second)
    rows.user("A again", parent=first)
    assert said(rows.reading()) == [
        "human: base",
        "assistant: ok",
        "human: A",
        "assistant: to A",
        "human: B",
        "assistant: to B",
        "human: A again",
    ]


def test_an_answer_that_comes_late_for_the_other_stream_stands_in_its_turn() -> None:
    rows = Rows()
    first = rows.user("A")
    second = rows.user("B")
    rows.model("to A", parent=first)
    rows.model("to B", parent=second)
    assert said(rows.reading()) == ["human: A", "assistant: to A", "human: B", "assistant: to B"]


def test_a_rewind_ends_the_streams_of_its_branch() -> None:
    rows = Rows()
    fork = rows.user("base")
    first = rows.user("A")
    second = rows.user("B", parent=fork)
    rows.model("to A", parent=first)
    rows.model("to B", parent=second)
    rows.user("anew", parent=fork)
    branch = rows.branch()
    branch.add(Rewind(0, ""))
    assert said(branch.reading(since=0, end=0)) == [
        "human: base",
        "human: A",
        "assistant: to A",
        "human: anew",
    ]


# ── activity ───────────────────────────────────────────────────────────────────────────────────────


def test_activity_counts_from_the_offset() -> None:
    rows = Rows()
    rows.user("one")
    rows.call("a")
    rows.result("a")
    since = rows.end
    rows.user("two", "sdk")
    rows.call("b", message="m")
    rows.call("c", message="m")
    rows.result("b")
    rows.user("a notice", "notice")
    rows.call("d")
    assert rows.reading(since).activity == Activity(prompts=1, tools=3)
    assert rows.reading(rows.end).activity == Activity()


def test_a_turn_of_a_notice_that_only_answered_leaves_nothing_to_read() -> None:
    rows = Rows()
    rows.user("one")
    since = rows.end
    rows.user("a task ended", "notice")
    rows.model("good")
    assert rows.reading(since).activity == Activity()


def test_an_interruption_at_the_end_is_told() -> None:
    rows = Rows()
    rows.user("one")
    rows.model("part")
    rows.user("[Request interrupted by user]", "interrupt")
    rows.link()
    assert rows.reading().activity.interrupted
    rows.user("two")
    assert not rows.reading().activity.interrupted


def test_representations_show_no_text() -> None:
    rows = Rows()
    rows.user("a secret word")
    rows.call("a", given="command: a secret word")
    rows.result("a", "a secret word")
    reading = rows.reading()
    shown = [repr(rows.rows), repr(reading), repr(reading.conversation.turns)]
    shown += [repr(block) for row in rows.rows for block in row.blocks]
    assert not [text for text in shown if "secret" in text]


# ── reading on ─────────────────────────────────────────────────────────────────────────────────────

Step = tuple[int, int]
Event = Row | Rewind


def _grown(steps: list[Step]) -> list[Event]:
    """Rows of any shape: prompts, answers, calls, late results, forks, compactions, rewinds, notes."""
    rows = Rows()
    events: list[Event] = []
    calls = ["none"]
    for kind, choice in steps:
        known = [row.uuid for row in rows.rows] or ["lost"]
        parent = known[choice % len(known)] if choice % 5 == 0 else None
        parent = f"human{choice}" if choice == 39 else parent
        before = len(rows.rows)
        match kind:
            case 0:
                rows.user(f"prompt {choice}", parent=parent)
            case 1:
                rows.model(f"answer {choice}", message=f"m{choice}", parent=parent)
            case 2:
                calls.append(f"call {len(calls)}")
                rows.call(calls[-1], message=f"m{choice}")
            case 3:
                rows.result(calls[choice % len(calls)], parent=parent)
            case 4:
                anchor = f"summary{before + 1}" if choice % 2 else f"boundary{before}"
                rows.compaction(f"summary {choice}", anchor=anchor, preserved=tuple(known[-2:]))
            case 5:
                rows.user("a note", "meta")
            case 6:
                rows.add(f"passing{before}", parent, passing=True)
            case 7:
                leaf = known[-1 - choice % len(known)] if choice % 3 else "unknown"
                events.append(Rewind(0, leaf))
            case _:
                rows.link(parent)
        events += rows.rows[before:]
    return events


def _branch(events: list[Event]) -> Branch:
    branch = Branch()
    for event in events:
        branch.add(event)
    return branch


_STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40)), max_size=40)


@given(_STEPS, st.integers(1, 4))
def test_reading_on_gives_what_reading_anew_gives(steps: list[Step], every: int) -> None:
    events = _grown(steps)
    branch = Branch()
    for place, event in enumerate(events, 1):
        branch.add(event)
        if place % every == 0:
            anew = _branch(events[:place])
            assert branch.reading(since=0, end=0) == anew.reading(since=0, end=0)
            assert branch.wanted == anew.wanted


@given(_STEPS)
def test_each_row_is_read_once(steps: list[Step]) -> None:
    turns = _branch(_grown(steps)).reading(since=0, end=0).conversation.turns
    seen = [row.uuid for turn in turns for row in turn.rows]
    assert len(set(seen)) == len(seen)


@given(_STEPS)
def test_each_call_has_one_result_behind_it(steps: list[Step]) -> None:
    messages = _branch(_grown(steps)).reading(since=0, end=0).conversation.messages
    for message, following in pairwise([*messages, None]):
        assert message is not None
        calls = [block.id for block in message.blocks if isinstance(block, ToolCall)]
        if calls:
            assert following is not None
            assert [b.id for b in following.blocks if isinstance(b, ToolResult)] == calls
