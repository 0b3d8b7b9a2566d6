from __future__ import annotations

import pytest
from memories import Entry, add, change, memory, remove, reply, topic

from memoryd.core.memory.document import (
    BOM,
    SECTIONS,
    new_text,
    repair,
    size,
)
from memoryd.core.memory.edit import Applied, apply
from memoryd.core.memory.ops import Terms

CRITICAL, FACTS, WARNINGS = "CRITICAL RULES", "Architecture & Config Facts", "Active Warnings"
TEXT = memory(["- Rule."], ["- One.", "- Two.", "- Three."], ["- Trap."])
TERMS = Terms("p")


def applied(
    text: str | None, *ops: Entry, topics: tuple[Entry, ...] = (), terms: Terms = TERMS
) -> Applied:
    return apply(text, reply(ops, topics), terms)


def long_memory(lines: int, length: int = 0) -> str:
    """A file of so many lines; its facts have so many characters where that is more."""
    facts = [f"- Fact {number} ".ljust(length, "x") for number in range(lines - 12)]
    return memory(["- Rule."], facts, [], [])


# ── a new file ─────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_created_by_an_op_that_applies() -> None:
    found = applied(None, add(CRITICAL, "Use bun."))
    assert found.text == new_text("p").replace("RULES\n\n", "RULES\n\n- Use bun.\n\n")
    assert (found.outcome, found.created, found.repaired) == ("changed", True, False)


def test_a_file_is_created_by_a_topic() -> None:
    found = applied(None, topics=(topic("db.md", "x"),))
    assert found.text == new_text("p") + "\n- `db.md`.\n"
    assert (found.outcome, found.created, found.added) == ("changed", True, 0)


@pytest.mark.parametrize("ops", [(), (add("Nowhere", "x"),), (remove("- x"),)])
def test_no_file_is_created_for_nothing(ops: tuple[Entry, ...]) -> None:
    found = applied(None, *ops)
    assert (found.outcome, found.created, found.topics) == ("no_change", False, ())


# ── nothing to do, repair ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "ops",
    [
        (),
        (add(FACTS, "one"),),
        (remove("- Zero."),),
        (add(FACTS, "# x"),),
        (add(FACTS, "x"), remove("x")),
    ],
)
def test_where_nothing_applied_the_text_is_the_same(ops: tuple[Entry, ...]) -> None:
    text = BOM + TEXT.replace("\n", "\r\n").removesuffix("\r\n")
    found = applied(text, *ops)
    assert (found.outcome, found.text, found.topics) == ("no_change", text, ())


def test_a_file_without_shape_is_repaired_first() -> None:
    found = applied("## Notes\n- a\n", add("Unsorted: Notes", "b"))
    assert found.repaired
    assert "### Unsorted: Notes\n\n- a\n- b\n" in found.text


def test_a_repair_stands_where_no_op_applied() -> None:
    found = applied("## Notes\n- a\n")
    assert (found.outcome, found.repaired) == ("no_change", True)
    assert found.text == repair("## Notes\n- a\n", "p")


@pytest.mark.parametrize("op", [add(WARNINGS, "New."), remove("- Two."), change("- One.", "Uno.")])
def test_one_op_on_a_crlf_file_with_a_mark_changes_one_line(op: Entry) -> None:
    for final in ("\r\n", ""):
        text = BOM + TEXT.removesuffix("\n").replace("\n", "\r\n") + final
        found = applied(text, op)
        assert found.text == BOM + applied(TEXT, op).text.replace("\n", "\r\n")


# ── refusals share a list, secrets are masked ──────────────────────────────────────────────────────


def test_entries_refused_while_reading_and_while_applying_share_one_list() -> None:
    found = applied(TEXT, {"op": "move"}, add("Nowhere", "x"), add(FACTS, "Four."))
    assert [str(refusal) for refusal in found.refused] == [
        '{"op": "move"}: `op` is not add, remove or replace',
        "add x: no heading “Nowhere” in the file",
    ]
    assert found.added == 1


def test_no_account_holds_a_secret() -> None:
    key = "sk-ant-api03-" + "aB3" * 12
    text = TEXT.replace("- Rule.", f"- Rule {key}.").replace("- Two.", f"- Two {key}.")
    shapeless: Entry = {"op": "note", "line": f"\n{key}"}
    ops = (
        add(FACTS, f"The key is {key}"),
        remove(f"- No {key}"),
        remove(f"- Rule {key}."),
        shapeless,
    )
    found = applied(text, *ops, topics=(topic("a.md", f"- {key}"),))
    told = [*found.skipped, *map(str, found.refused), *found.retired, *found.duplicates]
    assert len(told) == 4
    assert all(key[:20] not in line for line in [*told, *(append.text for append in found.topics)])


def test_exact_secrets_are_refused_and_masked() -> None:
    found = applied(
        TEXT, add(FACTS, "It is xK9-swordfish."), terms=Terms("p", secrets=("xK9-swordfish",))
    )
    assert [str(refusal) for refusal in found.refused] == [
        "add It is [redacted:key].: holds a secret (key)"
    ]


# ── the caps ───────────────────────────────────────────────────────────────────────────────────────


def test_199_lines_may_be_reached_200_may_not() -> None:
    assert applied(long_memory(198), add(FACTS, "last")).outcome == "changed"
    found = applied(long_memory(199), add(FACTS, "last"), remove("- None"))
    assert (found.outcome, found.text) == ("no_change", long_memory(199))
    assert [str(refusal) for refusal in found.refused] == [
        "1 add: 200 lines, the limit is under 200"
    ]


def test_49_999_characters_may_be_reached_50_000_may_not() -> None:
    text = long_memory(100, 540)
    room = 49_999 - size(text).characters
    while room > 600:
        text = text.replace("- Rule.", f"- Rule.\n- {'y' * 500}", 1)
        room = 49_999 - size(text).characters
    assert applied(text, add(WARNINGS, "z" * (room - 4))).outcome == "changed"
    found = applied(text, add(WARNINGS, "z" * (room - 3)))
    assert [refusal.why for refusal in found.refused] == [
        "50,000 characters, the limit is under 50,000"
    ]


def test_a_result_over_a_cap_is_tried_again_without_its_additions() -> None:
    ops = (
        remove("- Fact 1 "),
        add(FACTS, "Four."),
        add(FACTS, "Five."),
        add(FACTS, "Six."),
        change("- Fact 2 ", "Zwei."),
        remove("- Fact 3 "),
        add(WARNINGS, "Fact 3"),
    )
    topics = (topic("a.md", "- fact 1"), topic("b.md", "else"))
    found = applied(long_memory(197), *ops, topics=topics)
    assert (found.added, found.removed, found.replaced) == (0, 1, 1)
    assert [append.file for append in found.topics] == ["a.md"]
    assert "- Fact 3 " in found.text
    assert [str(refusal) for refusal in found.refused] == [
        "3 adds, 1 move, 1 topic append: 203 lines, the limit is under 200"
    ]
    assert size(found.text).lines < 200


def test_a_file_over_a_cap_may_be_written_as_it_gets_smaller() -> None:
    found = applied(long_memory(230), remove("- Fact 1 "), remove("- Fact 2 "))
    assert (found.outcome, size(found.text).lines) == ("changed", 228)
    found = applied(long_memory(230), change("- Fact 1 ", "F"))
    assert (found.outcome, size(found.text).lines) == ("changed", 230)


def test_a_file_over_a_cap_does_not_grow_in_any_measure() -> None:
    found = applied(long_memory(205), change("- Fact 1 ", "Fact number one"))
    assert (found.outcome, found.text) == ("not_written", long_memory(205))
    assert found.faults == ("205 lines, the limit is under 200",)
    assert (found.added, found.removed, found.replaced) == (0, 0, 0)


def test_more_reasons_are_all_named() -> None:
    text = long_memory(210, 300)
    found = applied(text, change("- Fact 1 ".ljust(300, "x"), "y" * 400))
    assert found.faults == (
        "210 lines, the limit is under 200",
        "59,801 characters, the limit is under 50,000",
    )


def test_ops_of_a_reply_that_is_not_written_are_recorded_as_dropped() -> None:
    found = applied(long_memory(205), change("- Fact 1 ", "Fact number one"), remove("- x"))
    assert [(op.outcome, op.was) for op in found.ops] == [("dropped", ""), ("skipped", "")]


def test_at_a_soft_cap_a_rule_stays() -> None:
    assert applied(long_memory(160), remove("- Rule.")).removed == 0
    assert applied(long_memory(159), remove("- Rule.")).removed == 1


def test_an_old_overlong_bullet_does_not_forbid_a_save() -> None:
    text = TEXT.replace("- Two.", "- " + "x" * 700)
    assert applied(text, add(FACTS, "Four.")).outcome == "changed"


# ── held for review ────────────────────────────────────────────────────────────────────────────────

MANY = memory([], [f"- Fact number {number}." for number in range(10)])


def removing(count: int) -> list[Entry]:
    return [remove(f"- Fact number {number}.") for number in range(count)]


def test_more_than_half_of_the_bullets_is_held_for_review() -> None:
    found = applied(MANY, *removing(6))
    assert (found.outcome, found.removed) == ("held", 6)
    assert found.faults == ("6 of 10 bullets would be removed",)
    assert "- Fact number 9." in found.text
    assert "- Fact number 1." not in found.text


def test_half_of_them_is_not() -> None:
    assert applied(MANY, *removing(5)).outcome == "changed"


def test_fewer_than_five_are_not() -> None:
    text = memory([], [f"- Fact number {number}." for number in range(4)])
    assert applied(text, *removing(4)).outcome == "changed"


def test_it_is_not_held_where_every_removed_line_stands_in_a_topic() -> None:
    kept = "\n".join(f"- fact NUMBER {number}" for number in range(8))
    found = applied(MANY, *removing(8), topics=(topic("old.md", kept),))
    assert found.outcome == "changed"
    found = applied(MANY, *removing(9), topics=(topic("old.md", kept),))
    assert found.outcome == "held"


def test_moves_retired_lines_and_none_yet_do_not_count() -> None:
    old = [f"- Rule number {number}." for number in range(6)]
    text = memory(old, [f"- Fact number {number}." for number in range(4)], ["- None yet."])
    moved = [add(WARNINGS, f"Fact number {number}.") for number in range(4)]
    gone = [remove(rule) for rule in old]
    found = applied(text, remove("- None yet."), *gone, *removing(4), *moved)
    assert (found.outcome, found.removed) == ("changed", 11)


def test_the_share_is_a_setting() -> None:
    assert applied(MANY, *removing(6), terms=Terms("p", max_removal=0.6)).outcome == "changed"
    assert applied(MANY, *removing(10), terms=Terms("p", max_removal=1)).outcome == "changed"
    assert applied(MANY, *removing(5), terms=Terms("p", max_removal=0.4)).outcome == "held"


def test_a_reply_that_removes_80_percent_is_held() -> None:
    text = memory([], [f"- Fact number {number}." for number in range(50)])
    assert applied(text, *removing(40)).outcome == "held"


# ── many saves ─────────────────────────────────────────────────────────────────────────────────────


def test_500_saves_of_one_rule_leave_the_file_unchanged() -> None:
    text = applied(TEXT, add(CRITICAL, "Do not run xcodebuild.")).text
    copies = (
        "do not run XCODEBUILD",
        "* Do not run xcodebuild.",
        "**Do not** run xcodebuild",
        "Do  not run xcodebuild.",
    )
    for number in range(500):
        found = applied(text, add(SECTIONS[number % 4], copies[number % 4]))
        assert (found.outcome, len(found.duplicates), found.refused) == ("no_change", 1, ())
        assert found.text == text
