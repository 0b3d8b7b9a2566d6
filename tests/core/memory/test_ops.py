from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memories import Entry, add, change, memory, remove, reply, topic

from memoryd.core.memory.ops import Pass, Start, Terms, bullets

if TYPE_CHECKING:
    from collections.abc import Sequence

CRITICAL, FACTS, WARNINGS = "CRITICAL RULES", "Architecture & Config Facts", "Active Warnings"
RULE = "- Never push to main, and run the tests first."
TEXT = memory([RULE, "- Use bun."], ["- One.", "- Two.", "- Three."], ["- Trap."], ["- `db.md`."])
QUOTE = "never push to main"


def ran(
    *ops: Entry,
    topics: Sequence[Entry] = (),
    text: str = TEXT,
    typed: tuple[str, ...] | None = None,
    offloading: bool = False,
    shrink: bool = False,
) -> Pass:
    found = reply(ops, topics)
    start = Start(text, Terms("p", typed), offloading)
    return Pass(start, found.ops, found.topics, shrink=shrink)


def outcomes(done: Pass) -> list[str]:
    return [result.outcome for result in done.results]


def reasons(done: Pass) -> list[str]:
    return [refusal.why for refusal in done.refused]


# ── one after another ──────────────────────────────────────────────────────────────────────────────


def test_an_add_goes_to_its_section() -> None:
    done = ran(add(WARNINGS, "New trap."))
    assert done.text == TEXT.replace("- Trap.\n", "- Trap.\n- New trap.\n")
    assert (done.added, done.removed, done.replaced) == (1, 0, 0)


def test_a_remove_takes_one_line_and_refills_nothing() -> None:
    done = ran(remove("- Trap."))
    assert done.text == TEXT.replace("- Trap.\n", "")
    assert (done.added, done.removed, done.replaced) == (0, 1, 0)


def test_a_replace_puts_a_bullet_in_place_of_a_line() -> None:
    done = ran(change("Two.", "*  Zwei."))
    assert done.text == TEXT.replace("- Two.", "- Zwei.")
    assert (done.added, done.removed, done.replaced) == (0, 0, 1)
    assert done.results[0].was == "- Two."


def test_a_line_added_by_one_may_be_replaced_or_removed_by_the_next() -> None:
    done = ran(add(FACTS, "Four."), change("- Four.", "Five."), remove("- Five."), remove("- One."))
    assert done.text == TEXT.replace("- One.\n", "")
    assert outcomes(done) == ["applied"] * 4


def test_a_removed_line_may_be_named_no_more() -> None:
    done = ran(remove("- One."), change("- One.", "Eins."))
    assert done.skipped == ["- One."]
    assert done.results[1].reason == "not in the file"


def test_an_add_to_an_unknown_heading_is_refused_alone() -> None:
    done = ran(add("Nowhere", "x"), add(FACTS, "Four."))
    assert reasons(done) == ["no heading “Nowhere” in the file"]
    assert done.added == 1


def test_a_line_that_is_not_there_is_skipped_and_named() -> None:
    done = ran(remove("- Zero."), change("- Nought.", "x"), remove("- One."))
    assert done.skipped == ["- Zero.", "- Nought."]
    assert done.removed == 1


def test_one_of_several_loose_lines_is_skipped() -> None:
    done = ran(remove("Two."), text=TEXT.replace("- One.", "* Two."))
    assert done.skipped == ["Two."]
    assert done.results[0].reason == "several such lines"


@pytest.mark.parametrize("text", ["-", " * "])
def test_an_empty_bullet_is_refused(text: str) -> None:
    assert reasons(ran(add(FACTS, text), change("- One.", text))) == ["empty", "empty"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 599, "601 characters, a bullet has at most 600"),
        ("## CRITICAL RULES", "starts with a heading"),
        ("```", "starts with a code fence"),
        ("a\u2028## b", "holds the character U+2028"),
        ("a\rb", "holds the character U+000D"),
        ("<system-reminder>", "holds the tag <system-reminder>"),
        ("<bash-" + "x" * 500, f"holds the tag <bash-{'x' * 34}…>"),
        ("the key ghp_" + "a1B2" * 9, "holds a secret (github-token)"),
    ],
)
def test_a_text_that_may_not_stand_is_refused_alone(text: str, why: str) -> None:
    done = ran(add(FACTS, text), change("- One.", text), add(FACTS, "Four."))
    assert reasons(done) == [why, why]
    assert done.text == TEXT.replace("- Three.\n", "- Three.\n- Four.\n")


@pytest.mark.parametrize(
    "entry", [remove("# p"), remove("## Active Warnings"), change("## Active Warnings", "x")]
)
def test_a_heading_of_level_1_or_2_stays(entry: Entry) -> None:
    done = ran(entry)
    assert reasons(done) == ["a heading of level 1 or 2 stays"]
    assert done.text == TEXT


def test_a_subheading_may_go() -> None:
    text = TEXT.replace("- Two.", "### Sub\n- Two.")
    assert ran(remove("### Sub"), text=text).text == TEXT.replace("- Two.", "- Two.")


def test_a_line_in_a_fence_may_go_but_no_fence() -> None:
    text = TEXT.replace("- Two.", "```\n## code\n```")
    done = ran(remove("## code"), remove("```"), change("```", "x"), text=text)
    assert done.text == text.replace("## code\n", "")
    assert reasons(done) == ["one line of a code fence"] * 2


# ── duplicates ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("copy", ["trap", "* TRAP.", "**Trap.**", "_trap_"])
def test_an_add_equal_to_a_line_anywhere_is_left_out_and_counted(copy: str) -> None:
    done = ran(add(FACTS, copy))
    assert done.text == TEXT
    assert len(done.duplicates) == 1
    assert (done.refused, done.skipped) == ([], [])


def test_an_add_equal_to_a_bullet_of_this_reply_is_a_duplicate() -> None:
    done = ran(add(FACTS, "Four."), add(WARNINGS, "**four**"))
    assert (done.added, done.duplicates) == (1, ["- **four**"])


def test_a_replace_that_would_make_a_duplicate_drops_the_named_line() -> None:
    done = ran(change("- Two.", "trap"))
    assert done.text == TEXT.replace("- Two.\n", "")
    assert (done.removed, done.replaced, done.duplicates) == (1, 0, ["- trap"])


def test_a_replace_by_itself_changes_nothing() -> None:
    done = ran(change("Two.", "Two."))
    assert (done.text, done.duplicates) == (TEXT, ["- Two."])


def test_a_replace_that_only_alters_case_is_none() -> None:
    assert ran(change("- Two.", "TWO.")).text == TEXT.replace("- Two.", "- TWO.")


# ── moves ──────────────────────────────────────────────────────────────────────────────────────────

MOVE = (remove("- Two."), add(WARNINGS, "Two."))


@pytest.mark.parametrize("ops", [MOVE, MOVE[::-1]])
def test_a_move_takes_the_old_line_and_puts_the_new_one(ops: tuple[Entry, ...]) -> None:
    done = ran(*ops)
    assert done.text == TEXT.replace("- Two.\n", "").replace("- Trap.\n", "- Trap.\n- Two.\n")
    assert outcomes(done) == ["moved", "moved"]
    assert (done.duplicates, done.retired, done.gone) == ([], [], [])


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ((remove("- Two."), add("Nowhere", "Two.")), "no heading “Nowhere” in the file"),
        ((remove("- Two."), add(WARNINGS, "**# two**")), ""),
    ],
)
def test_of_a_move_both_happen_or_neither(ops: tuple[Entry, ...], why: str) -> None:
    done = ran(*ops)
    if why:
        assert (done.text, reasons(done)) == (TEXT, [why])
    else:
        assert (done.added, done.removed) == (1, 1)


def test_a_move_of_a_line_that_is_not_there_adds_nothing() -> None:
    done = ran(remove("- Four."), add(WARNINGS, "Four."))
    assert (done.text, done.skipped) == (TEXT, ["- Four."])
    assert outcomes(done) == ["skipped", "dropped"]


def test_a_rule_that_is_moved_is_not_retired() -> None:
    done = ran(remove("- Use bun.", QUOTE), add(FACTS, "Use bun."), typed=(QUOTE,))
    assert (done.retired, done.topics) == ([], [])
    assert done.removed == done.added == 1


def test_an_overlong_line_is_not_moved() -> None:
    line = "- " + "x" * 600
    done = ran(remove(line), add(WARNINGS, line), text=TEXT.replace("- Two.", line))
    assert reasons(done) == ["602 characters, a bullet has at most 600"]


# ── retired rules and topics ───────────────────────────────────────────────────────────────────────


def test_a_removed_rule_is_kept_in_one_append_after_the_replys_own() -> None:
    text = TEXT.replace("- Use bun.", "### Sub\n  plain\n- None yet.\n- Use bun.")
    ops = [remove(line) for line in ("- Use bun.", "### Sub", "plain", "- None yet.", "- One.")]
    done = ran(*ops, topics=[topic("history.md", "x"), topic("db.md", "y")], text=text)
    assert done.retired == ["- Use bun.", "### Sub", "  plain"]
    assert [(found.file, found.text) for found in done.topics] == [
        ("history.md", "x"),
        ("db.md", "y"),
        ("history.md", "## Retired CRITICAL RULES\n\n- Use bun.\n### Sub\n  plain"),
    ]
    assert done.removed == 5


def test_a_topic_is_listed_once_and_not_counted_as_added() -> None:
    done = ran(topics=[topic("my-db.md", "x"), topic("db.md", "y"), topic("my-db.md", "z")])
    assert done.text == TEXT.replace("- `db.md`.\n", "- `db.md`.\n- `my-db.md`.\n")
    assert done.added == 0


def test_a_longer_name_does_not_hide_a_topic() -> None:
    text = TEXT.replace("`db.md`", "`my-db.md`")
    assert "- `my-db.md`.\n- `db.md`.\n" in ran(topics=[topic("db.md", "x")], text=text).text


def test_a_topic_named_in_another_section_is_listed() -> None:
    text = memory(["- see db.md"])
    assert ran(topics=[topic("db.md", "x")], text=text).text.endswith(
        "## Topic Files\n\n- `db.md`.\n"
    )


def test_the_list_is_the_section_not_a_subheading_of_its_name() -> None:
    text = memory(["### Topic Files", "", "- a"])
    assert ran(topics=[topic("db.md", "x")], text=text).text.endswith(
        "## Topic Files\n\n- `db.md`.\n"
    )


def test_a_topic_that_the_reply_lists_itself_is_listed_once() -> None:
    done = ran(add("Topic Files", "new.md: why"), topics=[topic("new.md", "x")])
    assert done.text == TEXT.replace("- `db.md`.\n", "- `db.md`.\n- new.md: why\n")


def test_an_append_that_may_not_stand_is_refused_alone() -> None:
    done = ran(topics=[topic("a.md", "<system-reminder>"), topic("b.md", "x")])
    assert [str(found) for found in done.refused] == [
        "append to a.md: holds the tag <system-reminder>"
    ]
    assert [found.file for found in done.topics] == ["b.md"]


def test_secrets_are_masked_in_appends_and_retired_rules() -> None:
    key = "ghp_" + "a1B2" * 9
    text = TEXT.replace("- Use bun.", f"- Use {key}.")
    done = ran(remove(f"- Use {key}."), topics=[topic("a.md", f"- {key}")], text=text)
    assert [found.text.rpartition("\n")[2] for found in done.topics] == [
        "- [redacted:github-token]",
        "- Use [redacted:github-token].",
    ]


# ── a shrinking pass ───────────────────────────────────────────────────────────────────────────────


def test_a_shrinking_pass_leaves_out_adds_moves_and_idle_appends() -> None:
    ops = add(FACTS, "Four."), remove("- One."), *MOVE, change("- Three.", "Drei.")
    topics = [topic("a.md", "- one"), topic("b.md", "other")]
    done = ran(*ops, topics=topics, shrink=True)
    expected = TEXT.replace("- One.\n", "").replace("Three", "Drei")
    assert done.text == expected.replace("- `db.md`.\n", "- `db.md`.\n- `a.md`.\n")
    assert done.dropped == "1 add, 1 move, 1 topic append"
    assert [found.file for found in done.topics] == ["a.md"]


def test_a_shrinking_pass_takes_out_no_rule_whose_pieces_it_drops() -> None:
    ops = remove(RULE), add(CRITICAL, "Never push to main"), add(CRITICAL, "run the tests first")
    done = ran(*ops, typed=(), shrink=True)
    assert done.text == TEXT
    assert done.dropped == "1 split"


def test_bullets_are_list_items_but_not_none_yet() -> None:
    assert bullets(memory(["- a", "* b", "  - c", "- None yet.", "plain", "-d"])) == 3


def test_no_repr_holds_text() -> None:
    done = ran(add(FACTS, "secret words"), typed=("secret words",))
    assert "secret" not in repr(done.results) + repr(Terms("p", ("secret words",)))
    assert "secret" not in repr(Start("secret words", Terms("p"), offloading=False))
