from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.text import count_lines, cut, fold, hazard, plural, printable, storable


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("\n", 1), ("a", 1), ("a\nb", 2), ("a\nb\n", 2), ("a\u2028b\x0cc", 1)],
)
def test_a_final_newline_counts_no_line(text: str, lines: int) -> None:
    assert count_lines(text) == lines


@given(st.text())
def test_lines_are_counted_as_split_by_newline(text: str) -> None:
    assert count_lines(text) == (len(text.removesuffix("\n").split("\n")) if text else 0)


@pytest.mark.parametrize(
    ("text", "short"), [("abc", "abc"), ("abcd", "abc…"), ("", ""), ("日本語文", "日本語…")]
)
def test_a_cut_text_ends_with_an_ellipsis(text: str, short: str) -> None:
    assert cut(text, 3) == short


@pytest.mark.parametrize("text", ["  Use\tBUN\n", "use bun", "USE\u00a0\u2003BUN"])
def test_folding_takes_case_and_spacing_away(text: str) -> None:
    assert fold(text) == "use bun"


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 duplicates"), (1, "1 duplicate"), (2, "2 duplicates")]
)
def test_plural(count: int, said: str) -> None:
    assert plural(count, "duplicate") == said


HAZARDS = (
    "\x00\x07\x1b\x7f\x80\x9f\u00ad\u034f\u200b\u200f\u2028\u2029\u202e\u2066\ufeff\U000e0041\ud83d"
)


@pytest.mark.parametrize("character", HAZARDS)
def test_a_hazard_is_named_and_shown_as_an_escape(character: str) -> None:
    assert hazard(f"a{character}") == f"U+{ord(character):04X}"
    assert printable(f"a{character}b") == f"a\\u{{{ord(character):x}}}b"
    assert printable(f"a{character}b", layout=True) == f"a\\u{{{ord(character):x}}}b"


@pytest.mark.parametrize("character", "\n\t")
def test_newline_and_tab_are_layout(character: str) -> None:
    assert hazard(character) != ""
    assert hazard(character, layout=True) == ""
    assert printable(f"a{character}b", layout=True) == f"a{character}b"


def test_a_return_is_no_layout() -> None:
    assert hazard("a\rb", layout=True) == "U+000D"


@pytest.mark.parametrize("text", ["plain", "größer", "日本", "🚀", "e\u0301", "\u00a0"])
def test_harmless_text_is_printed_as_it_is(text: str) -> None:
    assert hazard(text) == ""
    assert printable(text) == text


@given(st.text())
def test_what_is_printed_holds_no_hazard(text: str) -> None:
    assert hazard(printable(text)) == ""


@given(st.text(max_size=20), st.sampled_from(["\ud800", "\udfff", "\udc80"]))
def test_what_is_stored_is_utf_8(text: str, half: str) -> None:
    assert storable(text + half + text).encode() == (text + "\ufffd" + text).encode()
