"""The benchmarks work: each figure is taken once, of a hundredth of its load. Times are not looked at."""

from __future__ import annotations

import pytest
from bench.all import FIGURES, main

MODEL_CALLS = {"P10"}
"""Figures that start a worker, which takes seconds to import what it asks the model with."""

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("names", [set(FIGURES) - MODEL_CALLS, MODEL_CALLS], ids=["quick", "model"])
def test_every_figure_is_shown_beside_its_reference(
    names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--quick", "--only", ",".join(sorted(names))])
    shown = {line.split(" ")[0] for line in capsys.readouterr().out.split("\n")}
    assert names <= shown


def test_an_unknown_figure_is_told_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "P1,P99"])
    assert "no figure P99; there is P1, P2" in capsys.readouterr().err
