from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memories import Entry, add, change, memory, remove, reply

from memoryd.core.memory.draft import Draft, NotFound
from memoryd.core.memory.guard import NO_QUOTE, REMOVED_BY_USER, Guard
from memoryd.core.memory.merge import Concurrent
from memoryd.core.memory.ops import Start, Terms

if TYPE_CHECKING:
    from memoryd.core.memory.reply import Op

CRITICAL, FACTS = "CRITICAL RULES", "Architecture & Config Facts"
RULE = "- Never push to main, since CI deploys it."
LINES = [RULE, "- None yet.", "### sub", "- Below."]
TEXT = memory(LINES, ["- Fact.", "```", "## fenced", "```", "### Fact heads"], ["- Trap."])
TYPED = ("please never push to main", "ok")


def guard(
    *,
    typed: tuple[str, ...] | None = TYPED,
    offloading: bool = False,
    seen: str | None = None,
    text: str = TEXT,
) -> Guard:
    concurrent = None if seen is None else Concurrent(seen, text)
    return Guard(Start(text, Terms("p", typed), offloading, concurrent), Draft(text))


def at(line: str) -> int:
    found = Draft(TEXT).find(line)
    assert isinstance(found, int)
    return found


def op(entry: Entry) -> Op:
    return reply([entry]).ops[0]


# ── lines ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("line", ["# p", "## CRITICAL RULES", "## Topic Files"])
def test_a_heading_of_level_1_or_2_is_not_touched(line: str) -> None:
    assert guard().line_fault(at(line)) == "a heading of level 1 or 2 stays"


def test_one_line_of_a_code_fence_is_not_touched() -> None:
    assert guard().line_fault(at("```")) == "one line of a code fence"
    assert guard().line_fault(at("## fenced") + 1) == "one line of a code fence"


@pytest.mark.parametrize("line", [RULE, "### sub", "## fenced", "- Fact.", "### Fact heads"])
def test_any_other_line_may_be_touched(line: str) -> None:
    assert guard().line_fault(at(line)) == ""
    assert guard().removal_fault(at(line)) == ""


@pytest.mark.parametrize("line", [RULE, "- None yet.", "### sub", "- Below."])
def test_at_a_soft_cap_no_line_under_critical_rules_is_removed(line: str) -> None:
    assert "soft cap" in guard(offloading=True).removal_fault(at(line))
    assert guard(offloading=True).line_fault(at(line)) == ""


def test_at_a_soft_cap_other_lines_are_removed() -> None:
    assert guard(offloading=True).removal_fault(at("- Fact.")) == ""


# ── the user's words ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("section", [CRITICAL, "## critical rules", "sub"])
def test_an_add_under_critical_rules_rests_on_what_the_user_typed(section: str) -> None:
    assert not guard().may_add(op(add(section, "x")))
    assert not guard().may_add(op(add(section, "x", "always push to main")))
    assert guard().may_add(op(add(section, "x", "NEVER push to main")))
    assert guard().may_add(op(add(section, "x", "ok")))
    assert guard(typed=None).may_add(op(add(section, "x")))


@pytest.mark.parametrize("section", [FACTS, "Fact heads", "Active Warnings", "nowhere"])
def test_an_add_elsewhere_needs_no_quote(section: str) -> None:
    assert guard().may_add(op(add(section, "x")))


def test_a_remove_under_critical_rules_rests_on_what_the_user_typed() -> None:
    assert not guard().may_remove(op(remove(RULE)), at(RULE))
    assert not guard().may_remove(op(remove("### sub")), at("### sub"))
    assert guard().may_remove(op(remove(RULE, "never push to main")), at(RULE))
    assert guard().may_remove(op(remove("- None yet.")), at("- None yet."))
    assert guard().may_remove(op(remove("- Fact.")), at("- Fact."))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("Never push to main", True),
        ("**Never** push main", True),
        ("Push to main", False),
        ("Never push to main, since CI deploys it badly", False),
        ("…", False),
    ],
)
def test_a_replace_that_only_shortens_needs_no_quote(text: str, *, allowed: bool) -> None:
    assert guard().may_replace(op(change(RULE, text)), at(RULE)) is allowed


def test_none_yet_and_a_subheading_are_not_replaced_without_a_quote() -> None:
    assert not guard().may_replace(op(change("- None yet.", "Always push")), at("- None yet."))
    assert not guard().may_replace(op(change("### sub", "sub")), at("### sub"))


# ── moves ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_that_stood_in_the_file_may_be_moved_to_critical_rules() -> None:
    ops = op(add(CRITICAL, "Fact.")), op(remove("- Fact."))
    assert guard().move_fault(*ops, at("- Fact.")) == ""


def test_a_line_of_this_reply_may_not() -> None:
    found = guard()
    found.introduced.add("- Fact.")
    ops = op(add(CRITICAL, "Fact.")), op(remove("- Fact."))
    assert found.move_fault(*ops, at("- Fact.")) == NO_QUOTE


def test_a_rule_leaves_critical_rules_with_a_quote_only() -> None:
    assert guard().move_fault(op(add(FACTS, RULE)), op(remove(RULE)), at(RULE)) == NO_QUOTE
    quoted = op(remove(RULE, "never push to main"))
    assert guard().move_fault(op(add(FACTS, RULE)), quoted, at(RULE)) == ""


def test_a_rule_moves_within_critical_rules_without_one() -> None:
    assert guard().move_fault(op(add("sub", RULE)), op(remove(RULE)), at(RULE)) == ""


def test_a_heading_is_not_moved() -> None:
    ops = op(add(FACTS, "**### Fact heads**")), op(remove("### Fact heads"))
    assert guard().move_fault(*ops, at("### Fact heads")) == "a heading is not moved"


def test_a_heading_that_is_not_there_is_named_masked_and_cut() -> None:
    """The reason is recorded and shown: it is as long as what it names may be, and holds no secret."""
    key = "sk-ant-api03-" + "aB3" * 12
    fault = guard().add_fault(op(add(key, "x")), "- x")
    assert fault == "no heading “[redacted:anthropic-key]” in the file"
    fault = guard().add_fault(op(add("s" * 5000, "x")), "- x")
    assert fault == f"no heading “{'s' * 60}…” in the file"


def test_a_move_has_a_target_and_a_text_that_may_stand() -> None:
    ops = op(add("nowhere", "Fact.")), op(remove("- Fact."))
    assert guard().move_fault(*ops, at("- Fact.")) == "no heading “nowhere” in the file"
    ops = op(add(CRITICAL, "# Fact.")), op(remove("- Fact."))
    assert guard().move_fault(*ops, at("- Fact.")) == "starts with a heading"


# ── the user's edits ───────────────────────────────────────────────────────────────────────────────


def test_without_an_edit_the_line_of_the_file_is_located() -> None:
    assert guard().locate(op(remove("Fact."))) == at("- Fact.")
    assert guard().locate(op(remove("- x"))) == NotFound("not in the file")


def test_a_line_that_the_model_did_not_see_there_is_left() -> None:
    seen = TEXT.replace("- Fact.\n", "").replace("- Trap.", "- Fact.")
    assert guard(seen=seen).locate(op(remove("- Fact."))) == NotFound("changed during the save")
    assert guard(seen=TEXT).locate(op(remove("- Fact."))) == at("- Fact.")


def test_a_bullet_of_this_reply_is_located() -> None:
    found = guard(seen=TEXT.replace("- Fact.\n", ""))
    found.introduced.add("- Fact.")
    assert found.locate(op(remove("- Fact."))) == at("- Fact.")


def test_what_the_user_removed_stands_nowhere_again() -> None:
    found = guard(seen=TEXT.replace("- Fact.", "- Fact.\n- Gone."))
    assert found.text_fault("- **gone**") == REMOVED_BY_USER
    assert found.text_fault("- new") == ""
