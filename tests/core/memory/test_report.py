from __future__ import annotations

import pytest
from memories import Entry, add, change, memory, remove, reply, topic

from memoryd.core.memory import report
from memoryd.core.memory.edit import Applied, apply
from memoryd.core.memory.ops import Terms
from memoryd.core.memory.reply import Refusal, TopicAppend, Unreadable

CRITICAL, FACTS = "CRITICAL RULES", "Architecture & Config Facts"
TEXT = memory(["- Rule."], ["- One.", "- Two.", "- Three."], ["- Trap."])


def topics(*files: str) -> tuple[TopicAppend, ...]:
    return tuple(TopicAppend(file, "x") for file in files)


CHANGED = Applied("changed", "text", added=4, removed=2)


# ── status line ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("applied", "line"),
    [
        (CHANGED, "+4 -2"),
        (Applied("changed", "", topics("history.md"), added=1, replaced=2), "+1 ~2 topic: history"),
        (Applied("no_change", ""), "no change"),
        (Applied("no_change", "", skipped=("a", "b", "c")), "no change, 3 skipped"),
        (
            Applied("no_change", "", skipped=("a",), refused=(Refusal("x", "y"),)),
            "no change, 1 skipped, 1 refused",
        ),
        (Applied("no_change", "", duplicates=("a",)), "no change, 1 duplicate"),
        (Applied("changed", "", added=1, refused=(Refusal("x", "y"),) * 2), "+1 2 refused"),
        (Applied("changed", "", added=1, duplicates=("a", "b")), "+1 2 duplicates"),
        (
            Applied("changed", "", topics("history.md"), removed=1, retired=("- a",)),
            "-1 topic: history 1 rule(s) retired",
        ),
        (Applied("changed", "", topics("b.md", "a.md", "b.md")), "topic: b, a"),
        (Applied("changed", "", topics("a.md", "b.md", "c.md", "d.md", "e.md")), "topic: a, b, c +2"),
        (
            Applied("not_written", "", faults=("205 lines, the limit is under 200", "x")),
            "error: not written: 205 lines, the limit is under 200; x",
        ),
        (
            Applied("held", "", removed=6, faults=("6 of 10 bullets would be removed",)),
            "held for review: 6 of 10 bullets would be removed",
        ),
    ],
)  # fmt: skip
def test_status(applied: Applied, line: str) -> None:
    assert report.status(applied) == line


# ── event ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("applied", "sentence"),
    [
        (Applied("no_change", ""), ""),
        (Applied("no_change", "", repaired=True), ""),
        (CHANGED, "MEMORY.md: 4 added, 2 removed"),
        (Applied("changed", "", created=True, added=4), "MEMORY.md: created, 4 added"),
        (Applied("changed", "", topics("db.md")), "MEMORY.md: topic files only; appended to db.md"),
        (
            Applied("changed", "", topics("db.md"), created=True),
            "MEMORY.md: created; appended to db.md",
        ),
        (
            Applied("no_change", "", skipped=("- a",)),
            "MEMORY.md: no change; 1 skipped, not in the file: - a",
        ),
        (
            Applied(
                "changed",
                "",
                topics("history.md", "db.md", "history.md"),
                added=4,
                removed=2,
                replaced=3,
                skipped=("- a", "- b"),
                refused=(Refusal("c", "why", "add"), Refusal("d", "because")),
                retired=("- e", "- f"),
                duplicates=("- g",),
            ),
            "MEMORY.md: 4 added, 2 removed, 3 replaced; appended to history.md, db.md; "
            "2 skipped, not in the file: - a; - b; refused: add c: why; d: because; "
            "retired from CRITICAL RULES, kept in history.md: - e; - f; 1 duplicate",
        ),
        (
            Applied("not_written", "", faults=("205 lines, the limit is under 200",)),
            "MEMORY.md: not written: 205 lines, the limit is under 200",
        ),
        (
            Applied(
                "held", "", topics("a.md"), removed=6, faults=("6 of 10 bullets would be removed",)
            ),
            "MEMORY.md: held for review: 6 of 10 bullets would be removed",
        ),
    ],
)
def test_event(applied: Applied, sentence: str) -> None:
    assert report.event(applied) == sentence


def test_a_save_over_an_edit_says_so() -> None:
    assert report.event(CHANGED, merged=True) == (
        "MEMORY.md: 4 added, 2 removed; merged over a concurrent edit"
    )


def test_skipped_and_refused_lines_are_cut_to_60_characters_retired_ones_never() -> None:
    long = "- " + "x" * 98
    found = Applied(
        "changed",
        "",
        added=1,
        skipped=(long,),
        refused=(Refusal(long, "why", "add"),),
        retired=(long,),
    )
    cut = f"{long[:60]}…"
    assert report.event(found) == (
        f"MEMORY.md: 1 added; 1 skipped, not in the file: {cut}; refused: add {cut}: why; "
        f"retired from CRITICAL RULES, kept in history.md: {long}"
    )


def test_an_event_holds_no_control_characters() -> None:
    found = Applied("no_change", "", skipped=("- a\x1b[31m\u202e\u2028b\r",))
    assert report.event(found).endswith("- a\\u{1b}[31m\\u{202e}\\u{2028}b\\u{d}")


def test_an_unreadable_reply_is_kept_and_named() -> None:
    assert report.unreadable_event(Unreadable("no JSON object"), 1234) == (
        "MEMORY.md: reply not read (no JSON object); 1234 output tokens; "
        "kept in memory-save.failed-reply.txt"
    )
    assert report.unreadable_event(Unreadable("x")) == (
        "MEMORY.md: reply not read (x); kept in memory-save.failed-reply.txt"
    )


def test_a_rearranged_file_is_named() -> None:
    assert report.REARRANGED == (
        "MEMORY.md: rearranged into the four sections; former text in MEMORY.pre-migration.md"
    )


def test_the_second_line_is_the_event_without_its_front_cut_to_119() -> None:
    assert report.second_line("MEMORY.md: 4 added") == "4 added"
    assert report.second_line("MEMORY.md: " + "x" * 120) == "x" * 119 + "…"
    assert report.second_line("MEMORY.md: " + "x" * 119) == "x" * 119


# ── with what was applied ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ops", "line", "sentence"),
    [
        ([add(FACTS, "Four.")], "+1", "MEMORY.md: 1 added"),
        ([add(FACTS, "one")], "no change, 1 duplicate", "MEMORY.md: no change; 1 duplicate"),
        (
            [remove("- Rule."), change("- Two.", "Zwei."), remove("- Zero.")],
            "-1 ~1 topic: history 1 skipped 1 rule(s) retired",
            "MEMORY.md: 1 removed, 1 replaced; appended to history.md; "
            "1 skipped, not in the file: - Zero.; "
            "retired from CRITICAL RULES, kept in history.md: - Rule.",
        ),
        (
            [add("Nowhere", "x")],
            "no change, 1 refused",
            "MEMORY.md: no change; refused: add x: no heading “Nowhere” in the file",
        ),
    ],
)
def test_a_save_is_told(ops: list[Entry], line: str, sentence: str) -> None:
    found = apply(TEXT, reply(ops), Terms("p"))
    assert (report.status(found), report.event(found)) == (line, sentence)


def test_topic_files_only() -> None:
    found = apply(TEXT, reply([], [topic("db.md", "x")]), Terms("p"))
    assert report.status(found) == "topic: db"
    assert report.event(found) == "MEMORY.md: topic files only; appended to db.md"
