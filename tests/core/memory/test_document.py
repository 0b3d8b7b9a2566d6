from __future__ import annotations

import time
from collections import Counter

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.memory.document import (
    BOM,
    SECTIONS,
    Size,
    in_shape,
    new_text,
    outline,
    parse,
    repair,
    shown,
    size,
)
from memoryd.core.text import count_lines

SHAPED = memories.memory(["- a"], ["- b"], ["- c"], ["- `db.md`."])


def headings_of(text: str) -> list[tuple[int, str]]:
    return [(found.level, found.name) for found in outline(parse(text).lines).headings]


# ── shape ──────────────────────────────────────────────────────────────────────────────────────────


def test_four_sections_in_order_are_the_shape() -> None:
    assert in_shape(outline(parse(SHAPED).lines))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# p\n",
        SHAPED.replace("## Active Warnings\n", ""),
        SHAPED + "\n## Notes\n",
        SHAPED + "\n## CRITICAL RULES\n",
        SHAPED.replace("## CRITICAL RULES", "## Topic Files", 1),
        SHAPED.replace("## Topic Files", "### Topic Files"),
        SHAPED.replace("## Topic Files", "##Topic Files"),
        SHAPED.replace("## Topic Files", " ## Topic Files"),
        SHAPED.replace("\n## Topic Files", "\u2028## Topic Files"),
        SHAPED.replace("\n## Topic Files", "\x0c## Topic Files"),
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert not in_shape(outline(parse(text).lines))


def test_names_compare_case_insensitively_and_outer_space_is_ignored() -> None:
    text = SHAPED.replace("## CRITICAL RULES", "##  critical Rules  ").replace(
        "## Topic", "## TOPIC"
    )
    assert repair(text, "p") == text


def test_subheadings_are_free() -> None:
    text = SHAPED.replace("- b", "### Build\n\n- b\n\n### CRITICAL RULES\n\n- c\n#### deep")
    assert repair(text, "p") == text


def test_a_missing_title_alone_is_no_fault() -> None:
    text = SHAPED.removeprefix("# p\n\n")
    assert repair(text, "p") == text


def test_a_heading_is_hashes_one_space_and_text_at_the_lines_start() -> None:
    lines = [
        "## a",
        "### b",
        "# c",
        "#### d",
        "##e",
        " ## f",
        "## ",
        "##",
        "##\tg",
        "- ## h",
        "##  i ",
    ]
    assert headings_of("\n".join(lines)) == [(2, "a"), (3, "b"), (2, "i")]


@pytest.mark.parametrize(
    ("opener", "closer"),
    [
        ("```", "```"),
        ("```python", "```"),
        ("```", "`````  "),
        ("   ~~~", "~~~"),
        ("~~~ a ~~~ `b`", "~~~~"),
        ("````\n```", "````"),
        ("~~~\n```", "~~~"),
    ],
)
def test_a_line_inside_a_fence_is_no_heading(opener: str, closer: str) -> None:
    assert headings_of(f"{opener}\n## in\n{closer}\n## out") == [(2, "out")]


@pytest.mark.parametrize("line", ["``", "```a`b", "    ```", "- ```", "~~"])
def test_what_opens_no_fence_hides_nothing(line: str) -> None:
    assert headings_of(f"{line}\n## seen\n```\n```") == [(2, "seen")]


def test_a_closing_fence_has_nothing_behind_it() -> None:
    assert headings_of("```\n## in\n```py\n## in too\n```\n## out") == [(2, "out")]


# ── a new file ─────────────────────────────────────────────────────────────────────────────────────


def test_a_new_file_is_the_title_and_the_four_headings() -> None:
    assert new_text("p") == (
        "# p\n\n## CRITICAL RULES\n\n## Architecture & Config Facts\n\n## Active Warnings\n\n"
        "## Topic Files\n"
    )
    assert repair(new_text("p"), "p") == new_text("p")


# ── repair ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["", "\n", "\n \n\n"])
def test_a_blank_file_gets_title_and_none_yet_everywhere(text: str) -> None:
    body = "\n\n- None yet.\n\n"
    assert repair(text, "p") == "# p\n\n" + body.join(f"## {name}" for name in SECTIONS) + body[:-1]


def test_sections_come_in_order_under_their_canonical_names() -> None:
    text = "# t\n## topic files\n- t\n## ACTIVE WARNINGS\n- w\n## critical rules\n- c\n"
    assert repair(text, "p") == (
        "# t\n\n## CRITICAL RULES\n\n- c\n\n## Architecture & Config Facts\n\n- None yet.\n\n"
        "## Active Warnings\n\n- w\n\n## Topic Files\n\n- t\n"
    )


def test_outer_blank_lines_of_head_and_bodies_go_inner_ones_stay() -> None:
    text = "\n\nhead\n\nmore\n\n\n## CRITICAL RULES\n\n\n- a\n\n\n- b\n\n\n\n"
    assert repair(text, "p").startswith(
        "head\n\nmore\n\n## CRITICAL RULES\n\n- a\n\n\n- b\n\n## Arch"
    )


def test_a_repeated_section_is_merged_with_a_blank_line_between() -> None:
    text = "## CRITICAL RULES\n- a\n## Active Warnings\n## critical rules\n- b\n"
    assert "## CRITICAL RULES\n\n- a\n\n- b\n\n## Arch" in repair(text, "p")


def test_another_section_goes_behind_the_facts_as_unsorted() -> None:
    text = "## Zeta\n- z\n## Architecture & Config Facts\n- f\n## Alpha \n\n## Topic Files\n"
    assert repair(text, "p") == (
        "# p\n\n## CRITICAL RULES\n\n- None yet.\n\n"
        "## Architecture & Config Facts\n\n- f\n\n### Unsorted: Zeta\n\n- z\n\n### Unsorted: Alpha\n\n"
        "## Active Warnings\n\n- None yet.\n\n## Topic Files\n\n- None yet.\n"
    )


def test_what_stands_before_the_first_section_stays_as_the_head() -> None:
    text = "intro\n\n### sub\n- x\n## CRITICAL RULES\n- a"
    assert repair(text, "p").startswith("intro\n\n### sub\n- x\n\n## CRITICAL RULES\n\n- a\n\n")


def test_a_title_is_added_only_to_a_blank_head() -> None:
    assert repair("## X\n", "p").startswith("# p\n\n")
    assert repair("no title\n## X\n", "p").startswith("no title\n\n## CRITICAL")


def test_a_file_in_shape_keeps_its_empty_sections() -> None:
    text = "\n\n".join(f"## {name}" for name in SECTIONS)
    assert repair(text, "p") == text


def test_fenced_headings_are_content_of_a_repair() -> None:
    text = "## CRITICAL RULES\n```md\n## Notes\n```\n"
    assert "## CRITICAL RULES\n\n```md\n## Notes\n```\n\n## Arch" in repair(text, "p")


def test_an_unclosed_fence_swallows_no_section() -> None:
    text = "## CRITICAL RULES\n- a\n```\ncode\n\n## Active Warnings\n- w\n"
    fixed = repair(text, "p")
    assert "- a\n```\ncode\n```\n\n## Arch" in fixed
    assert "## Active Warnings\n\n- w\n" in fixed


def test_an_unclosed_fence_above_a_section_leaves_a_file_without_shape() -> None:
    text = SHAPED.replace("- a", "- a\n~~~~ text")
    assert repair(text, "p") == SHAPED.replace("- a", "- a\n~~~~ text\n~~~~").replace(
        "\n\n\n", "\n\n"
    )


def test_an_unclosed_fence_below_the_last_heading_is_left() -> None:
    text = SHAPED + "```\n"
    assert repair(text, "p") == text


def test_a_repaired_crlf_file_has_crlf_throughout_and_keeps_its_mark() -> None:
    fixed = repair(BOM + "## Notes\r\n- a\r\n## CRITICAL RULES\r\n- b", "p")
    assert fixed.startswith(f"{BOM}# p\r\n\r\n## CRITICAL RULES\r\n\r\n- b\r\n")
    assert fixed.count("\n") == fixed.count("\r\n")
    assert fixed.endswith("\r\n")


@given(memories.FILES)
def test_repairing_twice_is_repairing_once(text: str) -> None:
    once = repair(text, "p")
    assert repair(once, "p") == once


@given(memories.FILES)
def test_a_repaired_file_has_exactly_the_four_sections(text: str) -> None:
    assert [name.casefold() for name in memories.sections(repair(text, "p"))] == [
        name.casefold() for name in SECTIONS
    ]


@given(memories.FILES)
def test_repair_drops_no_line_of_content(text: str) -> None:
    lines = parse(text).lines
    headings = {heading.at: heading.name for heading in outline(lines).sections}
    content = [line for at, line in enumerate(lines) if at not in headings]
    own = {name.casefold() for name in SECTIONS}
    content += [f"### Unsorted: {name}" for name in headings.values() if name.casefold() not in own]
    if repair(text, "p") != text:
        fixed = Counter(memories.filled(parse(repair(text, "p")).lines))
        assert not Counter(memories.filled(content)) - fixed


@given(memories.shaped_files())
def test_a_file_in_shape_comes_back_byte_for_byte(text: str) -> None:
    if memories.sections(text) == list(SECTIONS):
        assert repair(text, "p") == text


@given(memories.FILES)
def test_repair_adds_no_line_end_of_another_kind(text: str) -> None:
    if "\r" not in text:
        assert "\r" not in repair(text, "p")


@pytest.mark.parametrize(
    "text",
    [
        "```\n" * 30_000,
        "```x\n" * 25_000,
        "## a\n```x\n" * 12_000,
        "````\n```\n" * 30_000,
        "~~~\n```\n" * 30_000,
        "## a\n" * 25_000,
        "`" * 250_000,
        "# " * 120_000,
        " " * 250_000 + "## x",
        "\n" * 250_000,
    ],
    ids=range(10),
)
def test_repair_takes_linear_time(text: str) -> None:
    started = time.process_time()
    repair(text, "p")
    assert time.process_time() - started < 10


# ── lines, characters, caps ────────────────────────────────────────────────────────────────────────


@given(st.one_of(memories.FILES, st.text()))
def test_a_parsed_text_is_the_text_again(text: str) -> None:
    assert parse(text).text == text


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("a\u2028b\x0cc\x85d\re\n", 1)],
)
def test_lines_are_separated_by_newlines_and_a_final_one_counts_none(text: str, lines: int) -> None:
    assert count_lines(text) == size(text).lines == lines


def test_characters_are_code_points() -> None:
    assert size("日本😀e\u0301").characters == 5


def test_the_mark_is_no_character() -> None:
    assert size(f"{BOM}ab\n") == Size(1, 3)


@pytest.mark.parametrize(
    ("found", "soft", "hard"),
    [
        (Size(159, 41_999), False, False),
        (Size(160, 0), True, False),
        (Size(0, 42_000), True, False),
        (Size(199, 49_999), True, False),
        (Size(200, 0), True, True),
        (Size(0, 50_000), True, True),
    ],
)
def test_caps_are_under_200_lines_and_50_000_characters_soft_160_and_42_000(
    found: Size, *, soft: bool, hard: bool
) -> None:
    assert (found.at_soft_cap, found.at_hard_cap) == (soft, hard)


@pytest.mark.parametrize(
    ("after", "smaller"),
    [
        (Size(199, 5), True),
        (Size(200, 4), True),
        (Size(200, 5), False),
        (Size(199, 6), False),
        (Size(201, 4), False),
    ],
)
def test_smaller_is_in_one_measure_and_larger_in_none(after: Size, *, smaller: bool) -> None:
    assert after.shrinks_from(Size(200, 5)) is smaller


def test_the_mark_and_the_returns_never_reach_a_prompt() -> None:
    assert shown(f"{BOM}\r\n\r\n# p\r\n\r\n- a\r\n\r\n") == "# p\n\n- a"


def test_a_document_shows_no_text() -> None:
    assert repr(parse("secret words\n")) == "Document(1 lines)"
