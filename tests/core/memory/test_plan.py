from __future__ import annotations

from memories import add, change, memory, remove, reply

from memoryd.core.memory.draft import Draft
from memoryd.core.memory.guard import Guard
from memoryd.core.memory.ops import Start, Terms
from memoryd.core.memory.plan import Group, Move, Split, groups

CRITICAL, FACTS = "CRITICAL RULES", "Architecture & Config Facts"
RULE = "- Never push to main, and run the tests first."
TEXT = memory([RULE, "- Use bun.", "### sub"], ["- Old fact."])


def planned(*ops: dict[str, object], typed: tuple[str, ...] | None = ()) -> dict[int, Group]:
    start = Start(TEXT, Terms("p", typed), offloading=False)
    draft = Draft(TEXT)
    return groups(reply(ops).ops, draft, Guard(start, draft))


def test_an_add_and_a_remove_of_one_text_are_a_move_in_either_order() -> None:
    assert planned(remove("- Use bun."), add(FACTS, "Use bun.")) == {0: Move(1, 0), 1: Move(1, 0)}
    assert planned(add(FACTS, "* **use bun**"), remove("- Use bun.")) == {
        0: Move(0, 1),
        1: Move(0, 1),
    }


def test_a_remove_is_paired_once() -> None:
    ops = (add(FACTS, "Use bun."), remove("- Use bun."), add(CRITICAL, "Use bun."))
    assert planned(*ops) == {0: Move(0, 1), 1: Move(0, 1)}


def test_two_removes_and_two_adds_are_two_moves() -> None:
    ops = (remove("- x"), remove("- x"), add(FACTS, "x"), add(FACTS, "x"))
    assert set(planned(*ops).values()) == {Move(2, 0), Move(3, 1)}


def test_different_texts_and_replaces_are_no_move() -> None:
    ops = (remove("- Use bun."), add(FACTS, "Use npm."), change("- Old fact.", "Use bun."))
    assert planned(*ops) == {}


def test_pieces_of_a_removed_rule_go_with_it() -> None:
    ops = (add(CRITICAL, "Never push to main"), remove(RULE), add(CRITICAL, "run the tests first"))
    assert set(planned(*ops).values()) == {Split(1, (0, 2))}


def test_pieces_of_a_replaced_rule_go_with_it() -> None:
    ops = (change(RULE, "Never push to main"), add("sub", "run the tests first"))
    assert set(planned(*ops).values()) == {Split(0, (1,))}


def test_a_piece_goes_with_one_rule_only() -> None:
    ops = (remove(RULE), change(RULE, "Never push"), add(CRITICAL, "run the tests"))
    assert set(planned(*ops).values()) == {Split(0, (2,))}


def test_what_is_elsewhere_or_no_piece_or_quoted_goes_alone() -> None:
    ops = (
        remove(RULE),
        add(FACTS, "Never push to main"),
        add(CRITICAL, "push to main always"),
        add(CRITICAL, "run the tests first", because="run the tests first, always"),
    )
    assert planned(*ops, typed=("run the tests first, always",)) == {}


def test_a_fact_and_a_heading_have_no_pieces() -> None:
    assert planned(remove("- Old fact."), add(CRITICAL, "Old fact")) == {
        0: Move(1, 0),
        1: Move(1, 0),
    }
    assert planned(remove("- Old fact."), add(CRITICAL, "Old")) == {}
    assert planned(remove("### sub"), add(CRITICAL, "sub")) == {}


def test_where_no_quotes_are_asked_for_nothing_is_split() -> None:
    assert planned(remove(RULE), add(CRITICAL, "Never push to main"), typed=None) == {}
