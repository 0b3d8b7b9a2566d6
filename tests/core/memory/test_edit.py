from __future__ import annotations

import time
from collections import Counter

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import Entry, add, change, memory, remove, reply, said, topic

from memoryd.core.memory import rules
from memoryd.core.memory.document import (
    BOM,
    BULLET_LIMIT,
    SECTIONS,
    is_none_yet,
    new_text,
    parse,
    repair,
    size,
)
from memoryd.core.memory.draft import Draft
from memoryd.core.memory.edit import Applied, apply
from memoryd.core.memory.ops import Terms
from memoryd.core.memory.reply import Reply, read
from memoryd.core.text import hazard

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


# ── for any file and reply ─────────────────────────────────────────────────────────────────────────

TYPED = ("please never push to main", "ok")


def long_bullets(text: str) -> Counter[str]:
    return Counter(line for line in parse(text).lines if len(line.strip()) > BULLET_LIMIT)


def bad_characters(text: str) -> Counter[str]:
    return Counter(c for c in text if hazard(c) and c not in "\r\n" + BOM)


@given(memories.cases(), st.sampled_from([None, (), TYPED]))
def test_the_result_holds_shape_caps_and_counts(
    case: tuple[str | None, str], typed: tuple[str, ...] | None
) -> None:
    text, answer = case[0], read(case[1])
    assert isinstance(answer, Reply)
    found = apply(text, answer, Terms("p", typed))
    before = new_text("p") if text is None else repair(text, "p")
    assert [name.casefold() for name in memories.sections(found.text)] == [
        name.casefold() for name in SECTIONS
    ]
    old, new = size(before), size(found.text)
    assert found.text == before or not new.at_hard_cap or new.shrinks_from(old)
    assert not long_bullets(found.text) - long_bullets(before)
    assert not bad_characters(found.text) - bad_characters(before)
    if found.outcome in {"no_change", "not_written"}:
        assert (found.text, found.topics, found.created) == (before, (), False)
    grown = len(memories.filled(parse(found.text).lines)) - len(
        memories.filled(parse(before).lines)
    )
    counted = found.added - found.removed
    gave_way = sum(map(is_none_yet, parse(before).lines))
    listed = len({append.file for append in found.topics})
    assert counted - gave_way <= grown <= counted + listed
    for append in found.topics:
        assert not bad_characters(append.text) - bad_characters(before)


@given(memories.cases())
def test_without_the_users_words_rules_are_only_shortened_split_or_moved_in(
    case: tuple[str | None, str],
) -> None:
    text, answer = case[0], read(case[1])
    assert isinstance(answer, Reply)
    found = apply(text, answer, Terms("p", ()))
    before = new_text("p") if text is None else repair(text, "p")
    old, new = rules_of(before), rules_of(found.text)
    stood = {rules.key(line) for line in parse(before).lines}
    for line in set(new) - set(old):
        assert rules.key(line) in stood or any(shorter(line, rule) for rule in old)
    for rule in set(old) - set(new):
        kept = any(rules.key(line) == rules.key(rule) or shorter(line, rule) for line in new)
        assert kept or is_none_yet(rule)


def rules_of(text: str) -> list[str]:
    """Lines under CRITICAL RULES that are not blank."""
    found = [line for line, name in Draft(text).sections() if name == "critical rules"]
    return memories.filled(found)


def shorter(line: str, rule: str) -> bool:
    return rules.shortens(rules.words(line), rules.words(rule))


@given(memories.cases())
def test_applying_the_same_reply_again_adds_nothing(case: tuple[str | None, str]) -> None:
    text, answer = case[0], read(case[1])
    assert isinstance(answer, Reply)
    once = apply(text, answer, TERMS)
    twice = apply(once.text, answer, TERMS)
    kinds = {op.kind for op in answer.ops}
    if once.outcome == "changed" and kinds <= {"add"}:
        assert twice.added == 0


# ── hostile sizes ──────────────────────────────────────────────────────────────────────────────────


def hostile() -> list[tuple[str, str]]:
    many = [f"- Never push rule {number} to main, {'and so on ' * 50}" for number in range(80)]
    pieces = [add(CRITICAL, f"Never push rule {number} and so on") for number in range(100)]
    removes = [remove(rule) for rule in many] + [remove(many[0])] * 20
    wide = memory(many, [f"- Fact {number}." for number in range(2_400)])
    heads = memory([], [f"### Head {number}" for number in range(3_000)])
    long = [remove("*a " * 400 + str(number)) for number in range(200)]
    topics = [topic(f"t{number}.md", "word " * 1_000) for number in range(20)]
    return [
        (memory(many), said([*pieces, *removes])),
        (wide, said([*pieces, *removes])),
        (wide, said([remove(f"- Fact {number}.") for number in range(200)], topics)),
        (heads, said([add(f"Head {number}", f"x {number}") for number in range(200)])),
        (wide, said(long)),
        (wide, said([change(f"- Fact {number}.", f"Fact {number + 1}.") for number in range(200)])),
        (memory(["- " + "not " * 12_000]), said([change("- " + "not " * 12_000, "not " * 140)])),
    ]


@pytest.mark.parametrize("number", range(7))
def test_200_ops_on_an_odd_file_take_bounded_time(number: int) -> None:
    text, answer = hostile()[number]
    found = read(answer)
    assert isinstance(found, Reply)
    started = time.perf_counter()
    apply(text, found, Terms("p", ("please never push to main " * 2_000,) * 50))
    assert time.perf_counter() - started < 5
