from __future__ import annotations

import re

import pytest

from memoryd.core.statusline import FAINT, GREEN, PLAIN, RED, YELLOW, line


@pytest.mark.parametrize(
    ("status", "coloured"),
    [
        ("saving…", f"{FAINT}saving…{PLAIN}"),
        ("+4 -2", f"{GREEN}+4{PLAIN} {GREEN}-2{PLAIN}"),
        ("+1 ~2 topic: history", f"{GREEN}+1{PLAIN} {GREEN}~2{PLAIN} {GREEN}topic: history{PLAIN}"),
        ("topic: a, b, c +2", f"{GREEN}topic: a, b, c +2{PLAIN}"),
        ("no change", f"{FAINT}no change{PLAIN}"),
        ("no change, 3 skipped", f"{FAINT}no change{PLAIN}, {YELLOW}3 skipped{PLAIN}"),
        ("+1 2 refused", f"{GREEN}+1{PLAIN} {YELLOW}2 refused{PLAIN}"),
        (
            "-1 topic: history 1 rule(s) retired",
            f"{GREEN}-1{PLAIN} {GREEN}topic: history{PLAIN} {YELLOW}1 rule(s) retired{PLAIN}",
        ),
        (
            "error: the fork got an API error, 529 (overloaded)",
            f"{RED}error: the fork got an API error, 529 (overloaded){PLAIN}",
        ),
        ("held for review: 9 of 10 bullets", f"{YELLOW}held for review: 9 of 10 bullets{PLAIN}"),
        ("+1 1 duplicate", f"{GREEN}+1{PLAIN} {FAINT}1 duplicate{PLAIN}"),
    ],
)
def test_what_was_written_is_green_what_was_left_out_yellow(status: str, coloured: str) -> None:
    painted = line(status, "09:15", colour=True)
    assert painted == f"memory: {coloured}{FAINT} · 09:15{PLAIN}"
    assert re.sub(r"\x1b\[\d+m", "", painted) == line(status, "09:15", colour=False)


def test_without_colour_it_is_plain() -> None:
    assert line("+4 -2", "09:15", colour=False) == "memory: +4 -2 · 09:15"


def test_where_nothing_happened_yet_there_is_no_line() -> None:
    assert line("", "09:15", colour=True) == ""


def test_nothing_that_a_terminal_would_obey_gets_through() -> None:
    assert line("error: \x1b]0;x\x07", "09:15", colour=False) == (
        "memory: error: \\u{1b}]0;x\\u{7} · 09:15"
    )
