from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import answers
import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core import statusline
from memoryd.core.text import hazard, printable
from memoryd.ctl import render, screens
from memoryd.ctl.render import Column, Fields, Gap, Say, Span, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.ctl.render import Element

GOLDEN = Path(__file__).parent / "golden"
VIEW = screens.View(answers.NOW, answers.HOME)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

SCREENS: dict[str, Callable[[], list[Element]]] = {
    "status-calm": lambda: screens.status(answers.calm(), VIEW),
    "status-busy": lambda: screens.status(answers.busy(), VIEW),
    "status-verbose": lambda: screens.status(answers.calm(), VIEW._replace(verbose=True)),
    "log": lambda: screens.log(answers.runs(), VIEW),
    "show": lambda: screens.run(answers.full_run(), VIEW),
}

TONES = st.sampled_from(["", "strong", "faint", "good", "warn", "bad"])
LINES = st.lists(st.builds(Span, st.text(max_size=30), TONES), max_size=4).map(tuple)
ELEMENTS: st.SearchStrategy[Element] = st.one_of(
    st.builds(Say, LINES, st.integers(0, 2)),
    st.builds(Fields, st.lists(st.tuples(st.text("abc", max_size=9), LINES)).map(tuple)),
    st.just(Gap()),
    st.lists(st.tuples(LINES, LINES), max_size=3).map(
        lambda rows: Table(
            (Column("one", gives=True), Column("two", right=True)),
            tuple(rows),
            tuple(row[0] for row in rows),
            "three",
        )
    ),
)


@pytest.fixture(autouse=True)
def _utc(utc: None) -> None:
    """As in the golden files."""


def drawn(elements: list[Element], *, width: int, colour: bool) -> str:
    out = io.StringIO()
    render.draw(elements, out, width=width, colour=colour)
    return out.getvalue()


class TestGoldenScreens:
    @pytest.mark.parametrize("name", SCREENS)
    def test_in_a_pipe(self, name: str) -> None:
        golden.same(GOLDEN / f"{name}.txt", render.plain(SCREENS[name]()))

    @pytest.mark.parametrize("width", [80, 120])
    @pytest.mark.parametrize("name", SCREENS)
    def test_on_a_terminal(self, name: str, width: int) -> None:
        text = drawn(SCREENS[name](), width=width, colour=True)
        golden.same(GOLDEN / f"{name}-{width}.txt", text)


class TestPlain:
    def test_nothing_is_wrapped_or_coloured(self) -> None:
        sentence = "word " * 100
        assert render.plain([Say(render.line(sentence, "bad"))]) == sentence.rstrip() + "\n"

    def test_fields_stand_below_each_other(self) -> None:
        rows = (("a", render.line("1")), ("long label", render.line("2")))
        assert render.plain([Fields(rows)]) == "  a           1\n  long label  2\n"

    def test_a_note_is_the_last_column(self) -> None:
        table = Table((Column("n", right=True),), ((render.line("10"),),), (render.line("x"),), "e")
        assert render.plain([table]) == " n  e\n10  x\n"

    @given(st.lists(ELEMENTS, max_size=4))
    def test_no_hazard_gets_out(self, elements: list[Element]) -> None:
        assert not hazard(render.plain(elements), layout=True)


class TestDraw:
    @given(
        elements=st.lists(ELEMENTS, max_size=4), width=st.integers(20, 200), colour=st.booleans()
    )
    def test_no_hazard_but_our_colours_gets_out(
        self, elements: list[Element], width: int, *, colour: bool
    ) -> None:
        text = drawn(elements, width=width, colour=colour)
        assert not hazard(COLOUR.sub("", text), layout=True)
        assert colour or "\x1b" not in text

    def test_what_does_not_fit_goes_on_below_the_first_letter(self) -> None:
        text = drawn([Say(render.line("aaaa bbbb cccc"), indent=1)], width=12, colour=False)
        assert [row.rstrip() for row in text.split("\n")] == ["  aaaa bbbb", "  cccc", ""]

    def test_a_narrow_terminal_cuts_the_column_that_gives(self) -> None:
        assert rows_of_a_table(width=16) == ["project    state", "a-very-l…  done", ""]

    def test_a_narrow_terminal_leaves_out_what_can_be_spared(self) -> None:
        columns = (Column("a"), Column("topics", spare=True), Column("b"))
        table = Table(columns, (tuple(map(render.line, ("1", "history", "2"))),))
        assert drawn([table], width=13, colour=False) == "a  topics   b\n1  history  2\n"
        assert drawn([table], width=12, colour=False) == "a  b\n1  2\n"

    def test_the_column_that_gives_keeps_a_least_width(self) -> None:
        assert rows_of_a_table(width=12) == ["project   s…", "a-very-…  d…", ""]


def rows_of_a_table(*, width: int) -> list[str]:
    columns = (Column("project", gives=True), Column("state"))
    table = Table(columns, ((render.line("a-very-long-name"), render.line("done")),))
    return [row.rstrip() for row in drawn([table], width=width, colour=False).split("\n")]


class TestStatusLine:
    @pytest.mark.parametrize(
        ("status", "tones"),
        [
            ("+4 -2", ["", "good", "", "good", "faint"]),
            ("error: no response", ["", "bad", "faint"]),
            ("no change, 3 skipped", ["", "faint", "", "warn", "faint"]),
        ],
    )
    def test_has_its_colours(self, status: str, tones: list[str]) -> None:
        assert [span.tone for span in render.status_line(status, "09:15")] == tones

    @given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
    def test_reads_as_the_plain_one(self, status: str) -> None:
        text = "".join(span.text for span in render.status_line(status, "09:15"))
        assert text == statusline.line(printable(status), "09:15", colour=False)

    def test_of_nothing_is_nothing(self) -> None:
        assert render.status_line("", "09:15") == ()


class TestHarmless:
    def test_our_own_colours_stay(self) -> None:
        text = statusline.line("+1 2 refused", "09:15", colour=True)
        assert render.harmless(text) == text

    @given(st.text(max_size=60))
    def test_nothing_else_does(self, text: str) -> None:
        left = render.harmless(f"{statusline.RED}{text}\x1b[2J{statusline.PLAIN}")
        assert not hazard(render._CODES.sub("", left))
