"""Ops under CRITICAL RULES: what rests on the user's own words, and what a soft cap forbids."""

from __future__ import annotations

import pytest
from memories import Entry, add, change, memory, remove, reply

from memoryd.core.memory.guard import NO_QUOTE
from memoryd.core.memory.ops import Pass, Start, Terms

CRITICAL, FACTS = "CRITICAL RULES", "Architecture & Config Facts"
RULE = "- Never push to main, and run the tests first."
TEXT = memory([RULE, "- Use bun."], ["- One.", "- Two.", "- Three."], ["- Trap."], ["- `db.md`."])
QUOTE = "never push to main"


def ran(
    *ops: Entry,
    text: str = TEXT,
    typed: tuple[str, ...] | None = None,
    offloading: bool = False,
) -> Pass:
    return Pass(Start(text, Terms("p", typed), offloading), reply(ops).ops, ())


def outcomes(done: Pass) -> list[str]:
    return [result.outcome for result in done.results]


def reasons(done: Pass) -> list[str]:
    return [refusal.why for refusal in done.refused]


# ── the user's words ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "entry",
    [
        add(CRITICAL, "Always push."),
        add("critical rules", "Always push.", "always push it"),
        remove(RULE),
        remove("- Use bun.", "bun"),
        change(RULE, "Push to main."),
        change("- Use bun.", "Use bun always."),
    ],
)
def test_an_op_under_critical_rules_without_the_users_words_is_refused_alone(entry: Entry) -> None:
    done = ran(entry, add(FACTS, "Four."), typed=(QUOTE,))
    assert reasons(done) == [NO_QUOTE]
    assert done.text == TEXT.replace("- Three.\n", "- Three.\n- Four.\n")


def test_with_them_it_is_done() -> None:
    ops = add(CRITICAL, "New.", QUOTE), remove("- Use bun.", QUOTE), change(RULE, "Other.", QUOTE)
    done = ran(*ops, typed=("Please NEVER  push to main!",))
    assert outcomes(done) == ["applied"] * 3


def test_where_no_quotes_are_asked_for_it_is_done() -> None:
    assert outcomes(ran(add(CRITICAL, "New."), remove(RULE))) == ["applied", "applied"]


def test_replacing_none_yet_is_adding() -> None:
    text = memory(["- None yet."])
    done = ran(change("- None yet.", "Always obey the README."), text=text, typed=(QUOTE,))
    assert (done.text, reasons(done)) == (text, [NO_QUOTE])


@pytest.mark.parametrize(
    "ops",
    [
        (remove(RULE), add(CRITICAL, "Never push to main"), add(CRITICAL, "Run the tests first.")),
        (add(CRITICAL, "Never push to main"), add(CRITICAL, "Run the tests first."), remove(RULE)),
        (change(RULE, "Never push to main"), add(CRITICAL, "Run the tests first.")),
        (add(CRITICAL, "Run the tests first."), change(RULE, "Never push to main")),
    ],
)
def test_a_split_whose_pieces_only_shorten_needs_no_quote(ops: tuple[Entry, ...]) -> None:
    done = ran(*ops, typed=())
    lines = set(done.text.split("\n"))
    assert {"- Never push to main", "- Run the tests first."} <= lines
    assert RULE not in lines
    assert done.refused == []


def test_a_piece_needs_a_quote_where_the_rule_stays() -> None:
    wanted = add(CRITICAL, "push to main")
    refused = change(RULE, "Do push to main")
    fenced = change("## CRITICAL RULES", "CRITICAL")
    for ops in ((wanted,), (wanted, refused), (wanted, fenced), (wanted, change(RULE, RULE))):
        done = ran(*ops, typed=())
        assert done.text == TEXT
        assert NO_QUOTE in reasons(done)


def test_at_a_soft_cap_a_rule_is_not_split_by_a_remove() -> None:
    done = ran(remove(RULE), add(CRITICAL, "Never push to main"), typed=(), offloading=True)
    assert done.text == TEXT
    assert len(done.refused) == 2


def test_at_a_soft_cap_a_rule_is_split_by_a_replace() -> None:
    ops = change(RULE, "Never push to main"), add(CRITICAL, "run the tests first")
    assert ran(*ops, typed=(), offloading=True).refused == []


def test_a_rule_does_not_give_way_to_a_piece_that_can_not_stand() -> None:
    done = ran(remove(RULE), add(CRITICAL, "```"), add("Nowhere", "push to main"), typed=())
    assert done.text == TEXT


def test_a_rule_does_not_give_way_to_a_line_that_stands_elsewhere() -> None:
    text = TEXT.replace("- One.", "- main")
    for ops in ((remove(RULE), add(CRITICAL, "main")), (change(RULE, "main"),)):
        done = ran(*ops, text=text, typed=())
        assert done.text == text
        assert NO_QUOTE in reasons(done)


def test_a_rule_gives_way_to_a_shorter_one_that_stands_beside_it() -> None:
    text = TEXT.replace("- Use bun.", "- Never push to main")
    done = ran(change(RULE, "Never push to main."), text=text, typed=())
    assert f"{RULE}\n" not in done.text
    assert done.retired == [RULE]


def test_a_line_that_stood_in_the_file_may_be_moved_to_the_rules() -> None:
    done = ran(remove("- One."), add(CRITICAL, "One."), typed=())
    assert done.text == TEXT.replace("- One.\n", "").replace("- Use bun.\n", "- Use bun.\n- One.\n")


@pytest.mark.parametrize(
    "ops",
    [
        (add(FACTS, "Obey."), remove("- Obey."), add(CRITICAL, "Obey.")),
        (change("- One.", "Obey."), remove("- Obey."), add(CRITICAL, "Obey.")),
        (change("- One.", "Obey."), add(CRITICAL, "obey"), remove("- Obey.")),
        (
            add(FACTS, "Obey."),
            change("- Obey.", "Obey!"),
            remove("- Obey!"),
            add(CRITICAL, "Obey!"),
        ),
    ],
)
def test_a_reply_smuggles_nothing_of_its_own_into_the_rules(ops: tuple[Entry, ...]) -> None:
    done = ran(*ops, typed=())
    rules = done.text.partition("## Architecture")[0]
    assert "bey" not in rules
    assert done.refused


# ── at a soft cap ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", [remove("- Use bun."), change("- Use bun.", "trap")])
def test_at_a_soft_cap_no_rule_goes(entry: Entry) -> None:
    done = ran(entry, offloading=True)
    assert done.text == TEXT
    assert "soft cap" in reasons(done)[0]


def test_at_a_soft_cap_a_rule_is_shortened_and_a_fact_removed() -> None:
    done = ran(change(RULE, "Never push."), remove("- One."), offloading=True)
    assert (done.replaced, done.removed) == (1, 1)


def test_at_a_soft_cap_no_rule_is_moved() -> None:
    done = ran(remove("- Use bun."), add(FACTS, "Use bun."), offloading=True)
    assert done.text == TEXT
