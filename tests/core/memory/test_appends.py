from __future__ import annotations

import time

import pytest

from memoryd.core.memory.appends import Kept, appended, fault, names, of_retired
from memoryd.core.memory.reply import TopicAppend


def after(before: str | None, text: str = "- x", file: str = "db.md") -> str:
    return appended(file, before, TopicAppend(file, text), "p")


@pytest.mark.parametrize(
    ("before", "result"),
    [
        (None, "# p: db\n\n- x\n"),
        ("", "- x\n"),
        ("# t\n", "# t\n\n- x\n"),
        ("# t", "# t\n\n- x\n"),
        ("# t\n\n", "# t\n\n- x\n"),
        ("# t\r\n- a\r\n", "# t\r\n- a\r\n\r\n- x\r\n"),
        ("# t\r\n- a", "# t\r\n- a\r\n\r\n- x\r\n"),
        ("# t\r\n\r\n", "# t\r\n\r\n- x\r\n"),
    ],
)
def test_a_blank_line_stands_before_an_append_and_one_newline_after(
    before: str | None, result: str
) -> None:
    assert after(before) == result


def test_a_new_topic_file_starts_with_project_and_stem() -> None:
    assert after(None, file="a.b.md") == "# p: a.b\n\n- x\n"


def test_lines_of_an_append_get_the_files_line_ends() -> None:
    assert after("a\r\nb\r\n", "- x\n- y") == "a\r\nb\r\n\r\n- x\r\n- y\r\n"


def test_what_stood_in_the_file_stays() -> None:
    for before in ("", "x", "x\n\n\n", "\ufeffx\r\n", "a\u2028b\r"):
        assert after(before).startswith(before)


def test_retired_rules_stand_as_they_stood_below_a_heading() -> None:
    assert of_retired(["- a", "### sub", "  * b"]) == TopicAppend(
        "history.md", "## Retired CRITICAL RULES\n\n- a\n### sub\n  * b"
    )


@pytest.mark.parametrize(
    ("line", "file", "named"),
    [
        ("- `db.md`.", "db.md", True),
        ("- db.md: tables", "db.md", True),
        ("- see [db.md](./db.md)", "db.md", True),
        ("- ./db.md", "db.md", True),
        ("- db.md.", "db.md", True),
        ("- `my-db.md`.", "db.md", False),
        ("- `my_db.md`.", "db.md", False),
        ("- `x.db.md`.", "db.md", False),
        ("- `db.md.bak`", "db.md", False),
        ("- `db.md-old`", "db.md", False),
        ("- docs/db.md", "db.md", False),
        ("- dbxmd", "db.md", False),
        ("- db", "db.md", False),
    ],
)
def test_a_file_is_named_as_a_whole_name(line: str, file: str, *, named: bool) -> None:
    assert names(line, file) is named


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("- Use bun.", True),
        ("use BUN", True),
        ("- short", True),
        ("- Never push to main", True),
        ("- push to main", True),
        ("- never", False),
        ("- Use npm.", False),
    ],
)
def test_a_removed_line_is_kept_as_a_line_or_inside_one(line: str, *, held: bool) -> None:
    kept = Kept(
        [
            TopicAppend("a.md", "## Day\n\n- **Use bun**\n- short"),
            TopicAppend("b.md", "We never push\nto main: CI."),
        ]
    )
    assert kept.holds(line) is held


def test_nothing_is_kept_where_nothing_is_appended() -> None:
    assert not Kept([]).holds("- a line of some length")


@pytest.mark.parametrize(
    "text", ["a\x1b[0m", "a\u200b", "a\rb", "<system-reminder>", "[memoryd] x"]
)
def test_an_append_holds_no_control_characters_and_no_marks(text: str) -> None:
    assert fault(TopicAppend("a.md", text))


def test_an_append_may_hold_headings_fences_and_tabs() -> None:
    assert fault(TopicAppend("a.md", "## Day\n\n```py\n\tx = 1\n```")) == ""


def test_many_lines_are_looked_for_in_large_appends_quickly() -> None:
    started = time.process_time()
    kept = Kept([TopicAppend("a.md", "word " * 4_000) for _ in range(20)])
    assert not any(kept.holds(f"- a removed line number {number}") for number in range(200))
    assert time.process_time() - started < 10
