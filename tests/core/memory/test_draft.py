from __future__ import annotations

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.memory.document import BOM, outline
from memoryd.core.memory.draft import Draft, NotFound

TEXT = memories.memory(
    ["- a", "- b"], ["### Build", "", "- c", "", "### Test", "", "- d"], [], ["- t"]
)


def added(text: str, section: str, bullet: str = "- new") -> str:
    draft = Draft(text)
    heading = draft.heading(section)
    assert heading is not None
    draft.insert(heading, bullet)
    return draft.text()


# ── headings ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    ["Build", "build", "BUILD ", "### Build", "## build", "# Build", "###### Build", "###Build"],
)
def test_a_heading_is_named_in_any_case_with_any_number_of_hashes(name: str) -> None:
    found = Draft(TEXT).heading(name)
    assert found is not None
    assert (found.level, found.name) == (3, "Build")


@pytest.mark.parametrize("name", ["p", "# p", "nowhere", "", "###", "deep"])
def test_only_level_2_and_3_headings_are_named(name: str) -> None:
    assert Draft(TEXT + "\n#### deep\n").heading(name) is None


def test_of_several_with_one_name_the_first_is_meant() -> None:
    found = Draft(TEXT + "\n### Build\n\n- e\n").heading("Build")
    assert found is not None
    assert Draft(TEXT).section(found.at) == "architecture & config facts"


def test_a_heading_in_a_fence_is_none() -> None:
    assert Draft("```\n## in\n```\n").heading("in") is None


@given(memories.FILES)
def test_each_line_has_the_section_of_the_last_heading_above_it(text: str) -> None:
    draft = Draft(text)
    assert [name for _, name in draft.sections()] == [
        draft.section(index) for index in range(len(draft.lines))
    ]


# ── finding ────────────────────────────────────────────────────────────────────────────────────────


def found(line: str, *lines: str) -> int | str:
    at = Draft("\n".join(lines)).find(line)
    return at.why if isinstance(at, NotFound) else at


def test_the_first_equal_line_is_found_trailing_space_ignored() -> None:
    assert found("- a  ", "- b", "- a\t", "- a") == 1
    assert found("- a", "x", "- a\r") == 1


def test_else_the_only_line_that_differs_by_indentation_and_marker() -> None:
    assert found("a", "- b", "  * a") == 1
    assert found("- a", "- b", "a") == 1
    assert found("  * a", "-\ta", "b") == 0


def test_an_equal_line_goes_before_a_looser_one() -> None:
    assert found("- a", "* a", "- a") == 1


def test_none_or_several_are_not_found() -> None:
    assert found("- x", "- a") == "not in the file"
    assert found("a", "- a", "* a") == "several such lines"


@pytest.mark.parametrize("line", ["- A", "a.", "**a**", "-a", "--a", "- - a"])
def test_any_other_difference_is_another_line(line: str) -> None:
    assert found(line, "- a", "- b") == "not in the file"


@pytest.mark.parametrize("line", ["-", "- ", "*"])
def test_a_marker_alone_names_no_blank_line(line: str) -> None:
    assert found(line, "", "- a") == "not in the file"


# ── inserting ──────────────────────────────────────────────────────────────────────────────────────


def test_a_bullet_goes_to_the_end_of_the_headings_own_block() -> None:
    assert added(TEXT, "CRITICAL RULES") == TEXT.replace("- b\n", "- b\n- new\n")
    assert added(TEXT, "Build") == TEXT.replace("- c\n", "- c\n- new\n")


def test_the_block_ends_before_the_next_level_2_or_3_heading() -> None:
    text = added(TEXT, "Architecture & Config Facts")
    assert text == TEXT.replace("Facts\n\n", "Facts\n\n- new\n\n")


def test_blank_lines_at_the_blocks_end_are_left_after_it() -> None:
    text = TEXT.replace("- b\n\n", "- b\n\n\n\n")
    assert added(text, "CRITICAL RULES") == text.replace("- b\n", "- b\n- new\n")


def test_right_under_an_empty_heading_a_blank_line_comes_first() -> None:
    assert added(TEXT, "Active Warnings") == TEXT.replace("Warnings\n\n", "Warnings\n\n- new\n\n")
    tight = "## A\n## B\n"
    assert added(tight, "A") == "## A\n\n- new\n## B\n"
    assert added(tight, "B") == "## A\n## B\n\n- new\n"
    assert added("## A", "A") == "## A\n\n- new\n"


@pytest.mark.parametrize("line", ["- None yet.", "- none yet", "  - NONE YET. "])
def test_none_yet_alone_gives_way(line: str) -> None:
    text = TEXT.replace("Warnings\n\n", f"Warnings\n\n{line}\n\n")
    assert added(text, "Active Warnings") == TEXT.replace("Warnings\n\n", "Warnings\n\n- new\n\n")


def test_none_yet_beside_another_line_stays() -> None:
    text = TEXT.replace("- a\n", "- None yet.\n")
    assert added(text, "CRITICAL RULES") == text.replace("- b\n", "- b\n- new\n")


def test_after_a_fence_the_bullet_stands_behind_it() -> None:
    text = TEXT.replace("- b\n", "```\n## x\n```\n")
    assert added(text, "CRITICAL RULES") == text.replace("```\n\n", "```\n- new\n\n")


# ── line ends ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("section", ["CRITICAL RULES", "Active Warnings", "Topic Files"])
@pytest.mark.parametrize("final", ["", "\r\n"])
def test_in_a_crlf_file_with_a_mark_only_the_new_line_differs(section: str, final: str) -> None:
    text = BOM + TEXT.removesuffix("\n").replace("\n", "\r\n") + final
    expected = BOM + added(TEXT, section).replace("\n", "\r\n")
    assert added(text, section) == expected


def test_replacing_keeps_the_lines_own_end() -> None:
    draft = Draft("- a\r\n- b\n- c\n")
    assert draft.replace(0, "- x") == "- a"
    assert draft.replace(1, "- y") == "- b"
    assert draft.text() == "- x\r\n- y\n- c\n"


def test_the_last_line_of_a_crlf_file_without_final_newline_is_ended() -> None:
    draft = Draft("- a\r\n- b")
    draft.replace(1, "- x")
    assert draft.text() == "- a\r\n- x\r\n"


def test_removing_takes_one_line_and_leaves_the_blank_ones() -> None:
    draft = Draft("## A\n\n- a\n\n## B\n")
    assert draft.remove(2) == "- a"
    assert draft.text() == "## A\n\n\n## B\n"


@given(memories.FILES)
def test_an_untouched_draft_is_the_text(text: str) -> None:
    assert Draft(text).text() == text


@given(memories.FILES, st.data())
def test_an_insert_adds_at_most_two_lines_and_changes_no_other(
    text: str, data: st.DataObject
) -> None:
    draft = Draft(text)
    headings = draft.outline.headings
    if not headings:
        return
    before = [line.removesuffix("\r") for line in draft.lines]
    draft.insert(data.draw(st.sampled_from(headings)), "- new")
    after = [line.removesuffix("\r") for line in draft.lines]
    at = after.index("- new")
    if len(after) == len(before):
        assert before[at].strip().casefold().startswith("- none yet")
        assert before[:at] + before[at + 1 :] == after[:at] + after[at + 1 :]
    else:
        start = at - (len(after) - len(before) - 1)
        assert after[start:at] in ([], [""])
        assert after[:start] + after[at + 1 :] == before


@given(memories.FILES, st.data())
def test_outline_and_duplicates_follow_each_change(text: str, data: st.DataObject) -> None:
    draft = Draft(text)
    for _ in range(data.draw(st.integers(1, 6))):
        line = data.draw(st.sampled_from(draft.lines or [""]))
        assert draft.outline == outline(draft.lines)
        assert draft.double(line) == Draft(draft.text()).double(line)
        kind = data.draw(st.sampled_from(("insert", "remove", "replace")))
        if kind == "insert" and draft.outline.headings:
            draft.insert(data.draw(st.sampled_from(draft.outline.headings)), "- new")
        elif draft.lines:
            at = data.draw(st.integers(0, len(draft.lines) - 1))
            _ = draft.remove(at) if kind == "remove" else draft.replace(at, "- other")
    assert draft.outline == outline(draft.lines)


def test_a_sections_body_is_its_lines_with_subheadings() -> None:
    draft = Draft(TEXT)
    assert draft.body("critical rules") == ["", "- a", "- b", ""]
    assert draft.body("topic files") == ["", "- t"]
    assert "### Test" in draft.body("architecture & config facts")


# ── duplicates ─────────────────────────────────────────────────────────────────────────────────────


def test_a_double_is_looked_for_in_the_whole_file() -> None:
    draft = Draft("# T\n\n- **A b.**\n\n```\n- c\n```\n")
    assert draft.double("a  b") == 2
    assert draft.double("* C") == 5
    assert draft.double("- a b", but=2) is None
    assert draft.double("- d") is None


def test_a_draft_shows_no_text() -> None:
    assert repr(Draft("secret")) == "Draft(1 lines)"
