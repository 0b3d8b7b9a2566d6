from __future__ import annotations

from collections import Counter

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import Entry, add, change, memory, remove, reply, said, topic

from memoryd.core.memory.document import parse, repair
from memoryd.core.memory.edit import Applied, apply
from memoryd.core.memory.merge import Concurrent
from memoryd.core.memory.ops import Terms
from memoryd.core.memory.reply import Reply, read
from memoryd.core.memory.rules import key

CRITICAL, FACTS, WARNINGS = "CRITICAL RULES", "Architecture & Config Facts", "Active Warnings"
SEEN = memory(["- Rule."], ["- One.", "- Two.", "- Three."], ["- Trap."])
TERMS = Terms("p")


def merged(current: str | None, *ops: Entry, seen: str = SEEN) -> Applied:
    return apply(current, reply(ops), TERMS, seen=seen)


# ── which lines an op may touch ────────────────────────────────────────────────────────────────────


def test_a_line_is_untouched_where_it_is_the_same_alone_and_in_the_same_section() -> None:
    assert Concurrent(SEEN, SEEN + "- more\n").untouched("- One.  ")
    assert not Concurrent(SEEN, SEEN.replace("- One.", "- Uno.")).untouched("- One.")
    assert not Concurrent(SEEN, SEEN.replace("- One.", "- One.\n- One.")).untouched("- One.")
    assert not Concurrent(SEEN.replace("- One.", "- One.\n- One."), SEEN).untouched("- One.")
    assert not Concurrent(SEEN, memory(["- One."], ["- Two."])).untouched("- One.")
    assert not Concurrent(SEEN, SEEN + "- new\n").untouched("- new")


@pytest.mark.parametrize("op", [remove("- Two."), change("- Two.", "Zwei.")])
@pytest.mark.parametrize(
    "current",
    [
        SEEN.replace("- Two.", "- Two, reworded."),
        SEEN.replace("- Two.\n", ""),
        SEEN.replace("- Two.", "- Two.\n- Two."),
        SEEN.replace("- Two.\n", "").replace("- Trap.", "- Trap.\n- Two."),
        SEEN.replace("- Two.", "  - Two."),
    ],
)
def test_an_op_on_a_line_that_the_user_touched_is_skipped_and_named(
    op: Entry, current: str
) -> None:
    found = merged(current, op)
    assert (found.outcome, found.text) == ("no_change", current)
    assert found.skipped == ("- Two.",)


def test_an_op_on_an_untouched_line_is_done_beside_the_edit() -> None:
    current = SEEN.replace("- One.", "- Uno.\n- By hand.")
    found = merged(current, remove("- Two."), change("- Three.", "Drei."), add(FACTS, "Four."))
    assert found.text == current.replace("- Two.\n", "").replace("- Three.", "- Drei.\n- Four.")
    assert found.skipped == ()


def test_a_line_that_only_the_user_has_is_not_touched() -> None:
    current = SEEN.replace("- One.", "- One.\n- By hand.")
    found = merged(current, remove("- By hand."), change("By hand.", "x"))
    assert (found.text, found.skipped) == (current, ("- By hand.", "By hand."))


@pytest.mark.parametrize(
    "op", [add(FACTS, "**Two**"), change("- One.", "two"), add(CRITICAL, "Two.")]
)
def test_what_the_user_removed_is_not_added_back(op: Entry) -> None:
    current = SEEN.replace("- Two.\n", "")
    found = merged(current, op)
    assert found.text == current
    assert [refusal.why for refusal in found.refused] == ["the user removed it during the save"]


def test_what_the_user_moved_counts_as_there() -> None:
    current = SEEN.replace("- Two.\n", "").replace("- Trap.", "- Trap.\n- Two.")
    assert merged(current, add(FACTS, "Two.")).duplicates == ("- Two.",)


def test_what_the_user_added_too_is_a_duplicate() -> None:
    current = SEEN.replace("- One.", "- One.\n- Four.")
    assert merged(current, add(FACTS, "four")).duplicates == ("- four",)


@pytest.mark.parametrize("order", [1, -1])
def test_remove_and_add_of_one_text_are_one_move(order: int) -> None:
    ops = [remove("- Two."), add(WARNINGS, "Two.")][::order]
    current = SEEN.replace("- One.", "- Uno.")
    assert merged(current, *ops).text == current.replace("- Two.\n", "").replace(
        "- Trap.", "- Trap.\n- Two."
    )
    gone = SEEN.replace("- Two.\n", "")
    assert merged(gone, *ops).text == gone


def test_a_heading_that_the_user_removed_takes_its_adds_with_it() -> None:
    seen = SEEN.replace("- Two.", "### Build\n- Two.")
    found = merged(SEEN, add("Build", "x"), seen=seen)
    assert (found.text, len(found.refused)) == (SEEN, 1)


def test_caps_are_checked_again_on_the_merged_text() -> None:
    current = SEEN.replace("- Trap.", "\n".join(f"- Filler {number}." for number in range(183)))
    found = merged(current, add(FACTS, "Four."), add(FACTS, "Five."))
    assert (found.outcome, found.text) == ("no_change", current)
    assert "201 lines, the limit is under 200" in str(found.refused[0])


def test_shape_is_checked_again_on_the_merged_text() -> None:
    current = SEEN.replace("## Active Warnings", "## Traps")
    found = merged(current, add(FACTS, "Four."))
    assert found.repaired
    assert "### Unsorted: Traps\n\n- Trap.\n" in found.text
    assert "- Four.\n" in found.text


def test_offloading_is_what_the_model_was_told() -> None:
    filler = "\n".join(f"- Filler {number}." for number in range(150))
    long = SEEN.replace("- Trap.", filler)
    assert merged(SEEN, remove("- Rule."), seen=long).removed == 0
    assert merged(long, remove("- Rule."), seen=SEEN).removed == 1


def test_a_file_that_the_user_deleted_comes_back_without_what_was_in_it() -> None:
    found = merged(None, add(FACTS, "One."), add(FACTS, "Four."), remove("- Two."))
    assert found.created
    assert "- Four.\n" in found.text
    assert "One" not in found.text


def test_a_file_that_the_user_made_meanwhile_is_merged_into() -> None:
    found = merged(SEEN, add(FACTS, "Four."), seen="")
    assert found.text == SEEN.replace("- Three.\n", "- Three.\n- Four.\n")


def test_a_crlf_edit_of_the_same_lines_is_no_edit_of_them() -> None:
    current = SEEN.replace("\n", "\r\n")
    assert merged(current, remove("- Two.")).text == current.replace("- Two.\r\n", "")


# ── for any two texts ──────────────────────────────────────────────────────────────────────────────


@st.composite
def edited(draw: st.DrawFn) -> tuple[str, str, str]:
    """A text that the model saw, one that the user made of it, and a reply to the first."""
    seen = repair(draw(memories.FILES), "p")
    document = parse(seen)
    lines = list(document.lines)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("drop", "put", "word", "move")))
        if kind == "put":
            lines.insert(at, draw(memories.LINES))
        elif kind == "word":
            lines[at] += " by hand"
        elif len(lines) > 1:
            line = lines.pop(at)
            if kind == "move":
                lines.insert(draw(st.integers(0, len(lines))), line)
    current = document.with_lines(lines).text
    return seen, current, draw(memories.answers(draw(st.sampled_from((seen, current)))))


@given(edited())
def test_the_user_wins_every_conflict(case: tuple[str, str, str]) -> None:
    seen, current, text = case
    answer = read(text)
    assert isinstance(answer, Reply)
    found = apply(current, answer, TERMS, seen=seen)
    before = [line.rstrip() for line in parse(repair(current, "p")).lines if line.strip()]
    known = {line.rstrip() for line in parse(repair(seen, "p")).lines}
    after = Counter(line.rstrip() for line in parse(found.text).lines)
    theirs = Counter(
        line for line in before if line not in known and "none yet" not in line.casefold()
    )
    assert not theirs - after, "a line of the user's is gone"
    gone = {key(line) for line in known if line} - {key(line) for line in before}
    written = {line for line in after if line.strip()} - set(before)
    listed = {f"- `{append.file}`." for append in found.topics}
    assert not [line for line in written - listed if key(line) in gone], "a removed line is back"


@given(edited())
def test_a_reply_to_the_text_itself_is_merged_as_it_is_applied(case: tuple[str, str, str]) -> None:
    seen, _, text = case
    answer = read(text)
    assert isinstance(answer, Reply)
    assert apply(seen, answer, TERMS, seen=seen) == apply(seen, answer, TERMS)


def test_topics_are_appended_whatever_the_user_edited() -> None:
    answer = read(said([remove("- One.")], [topic("db.md", "- One.")]))
    assert isinstance(answer, Reply)
    found = apply(SEEN.replace("- One.", "- Uno."), answer, TERMS, seen=SEEN)
    assert [append.file for append in found.topics] == ["db.md"]
    assert found.skipped == ("- One.",)
