from __future__ import annotations

import memories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import memory

from memoryd.core.memory.document import shown
from memoryd.core.memory.load import Load, split, units
from memoryd.core.memory.prompt import block

PATH = "/home/u/.cli-tweaks/memory/p/MEMORY.md"
MOST, LIMIT = 6, 9_000


def loaded(text: str, *, topics: int = 0, most: int = MOST, limit: int = LIMIT) -> tuple[str, Load]:
    names = [f"topic-{number}.md" for number in range(topics)]
    whole = block("p", text, names, "/home/u/.cli-tweaks/memory/p", language_note=True)
    return whole, split(whole, shown(text), PATH, project="p", most=most, limit=limit)


def joined(load: Load) -> str:
    """The parts without the line that numbers them."""
    first, *rest = load.parts
    return "\n".join([first, *(part.partition("\n")[2] for part in rest)])


def big(lines: int, length: int, *, rules: int = 3) -> str:
    facts = [f"- Fact {number} ".ljust(length, "x") for number in range(lines)]
    return memory([f"- Rule {number}." for number in range(rules)], facts, ["- Trap."])


def test_a_short_block_is_one_part_as_it_is() -> None:
    whole, load = loaded(memory(["- a"]))
    assert load == Load((whole,), 11, 11)


def test_parts_are_numbered_from_the_second_on() -> None:
    _, load = loaded(big(100, 300))
    assert load.parts[0].startswith("[PROJECT MEMORY: p]\n")
    assert load.parts[1].startswith("[PROJECT MEMORY: p, part 2 of 4]\n")
    assert load.parts[3].startswith("[PROJECT MEMORY: p, part 4 of 4]\n")


@pytest.mark.parametrize(
    ("lines", "length"),
    [(83, 595), (83, 590), (82, 600), (100, 490), (150, 325), (180, 272), (5, 9_800), (1, 49_000)],
)
def test_all_of_49_900_characters_reach_the_model_in_order(lines: int, length: int) -> None:
    text = big(lines, length)
    assert 49_000 < len(text) < 50_200
    whole, load = loaded(text, topics=30)
    assert load.loaded == load.total == len(shown(text).split("\n"))
    assert all(units(part) <= LIMIT for part in load.parts)
    assert len(load.parts) <= MOST
    assert joined(load).replace("\n", "") == whole.replace("\n", "")


def test_a_line_is_broken_only_where_whole_lines_waste_too_much() -> None:
    whole, load = loaded(big(150, 300))
    assert joined(load) == whole


def test_where_lines_are_broken_no_word_is() -> None:
    text = memory([], [f"- {'some words ' * 90}end {number}" for number in range(60)])
    whole, load = loaded(text[:49_990], topics=60)
    assert load.loaded == load.total
    assert joined(load).split() == whole.split()
    assert joined(load) != whole


# ── what does not fit ──────────────────────────────────────────────────────────────────────────────


def test_the_critical_rules_go_first_and_the_rest_is_named_with_its_path() -> None:
    text = memory(
        [f"- Rule {number}." for number in range(40)],
        [f"- Fact {number} ".ljust(500, "x") for number in range(150)],
    )
    text = text.replace(
        "## CRITICAL RULES", "## Architecture & Config Facts\n\n- early\n\n## CRITICAL RULES"
    )
    _, load = loaded(text)
    shown_text = joined(load)
    body = shown_text.partition("\n\n")[2]
    assert body.startswith("## CRITICAL RULES\n\n- Rule 0.\n")
    assert all(f"- Rule {number}.\n" in body for number in range(40))
    assert load.loaded < load.total == len(text.split("\n")) - 1
    missing = load.total - load.loaded
    assert (
        f"{missing} of {load.total} lines of the memory are not shown here for lack of room: "
        f"read {PATH} when they may matter."
    ) in shown_text


def test_more_rules_than_room_are_loaded_as_far_as_they_go() -> None:
    text = memory([f"- Rule {number} ".ljust(590, "x") for number in range(150)])
    _, load = loaded(text)
    assert 80 < load.loaded < 100
    assert "- Rule 79 " in joined(load)
    assert len(load.parts) == MOST


def test_very_many_topic_names_do_not_crowd_out_the_memory() -> None:
    _, load = loaded(big(20, 100), topics=8_000)
    assert load.loaded == load.total
    assert "topic-7.md" in load.parts[-1]
    assert load.parts[-1].endswith("…")


def test_characters_beyond_the_basic_plane_count_two_units() -> None:
    assert units("a😀") == 3
    text = big(40, 10).replace("x", "").replace("Fact", "😀" * 500)
    _, load = loaded(text)
    assert load.loaded == load.total
    assert all(units(part) <= LIMIT for part in load.parts)


def test_without_memory_the_one_line_is_the_part() -> None:
    line = block("p", None, (), "/x", language_note=True)
    assert split(line, "", PATH, project="p", most=MOST, limit=LIMIT) == Load((line,), 0, 0)


def test_the_same_file_gives_the_same_parts() -> None:
    assert loaded(big(100, 300)) == loaded(big(100, 300))


# ── for any file ───────────────────────────────────────────────────────────────────────────────────


@given(memories.FILES, st.integers(0, 40), st.integers(1, 6), st.integers(1_400, 9_000))
def test_parts_hold_their_limits_and_the_order(
    text: str, topics: int, most: int, limit: int
) -> None:
    whole, load = loaded(text, topics=topics, most=most, limit=limit)
    assert 1 <= len(load.parts) <= most
    assert all(units(part) <= limit for part in load.parts)
    assert 0 <= load.loaded <= load.total
    if load.loaded == load.total:
        wanted = whole.replace("\n", "")
        assert joined(load).replace("\n", "") == wanted or "not shown here" in joined(load)
    else:
        lines = shown(text).split("\n")
        critical = [
            number for number, line in enumerate(lines) if line.casefold() == "## critical rules"
        ]
        if critical and load.loaded and "```" not in text and "~~~" not in text:
            assert lines[critical[0]] in joined(load)


@given(memories.FILES, st.integers(1, 3), st.integers(40, 400))
def test_even_without_room_nothing_raises(text: str, most: int, limit: int) -> None:
    _, load = loaded(text, most=most, limit=limit)
    assert len(load.parts) <= most
    assert all(units(part) <= limit for part in load.parts)


def test_a_load_shows_no_text() -> None:
    assert repr(Load(("secret",), 1, 2)) == "Load(1 parts, 1 of 2 lines)"
