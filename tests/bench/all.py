"""`make bench`: every figure of docs/reference/performance.md, beside its reference.

`python -m bench.all [--only P6,P7] [--quick]` from the folder `tests`. A missed goal is shown and is no
failure: the machine may be busy, and a benchmark is no test.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from bench import (
    bench_apply,
    bench_load,
    bench_process,
    bench_shim,
    bench_transcript,
    bench_wire,
)
from bench.measure import Plan
from bench.table import head, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.table import Row

FIGURES: dict[str, Callable[[Plan], Iterator[Row]]] = {
    **bench_shim.FIGURES,
    **bench_wire.FIGURES,
    **bench_process.FIGURES,
    **bench_load.FIGURES,
    **bench_transcript.FIGURES,
    **bench_apply.FIGURES,
}
QUICK = Plan(pairs=1, share=0.01)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="make bench", description=(__doc__ or "").partition(",")[0]
    )
    parser.add_argument("--only", type=_names, default=list(FIGURES), metavar="P6,P7")
    parser.add_argument("--quick", action="store_true", help="see that it works: says nothing")
    asked = parser.parse_args(arguments)
    # The daemons' homes are private whatever the person's umask is.
    os.umask(0o077)
    show(head())
    rows: list[Row] = []
    for name in asked.only:
        for row in FIGURES[name](QUICK if asked.quick else Plan()):
            rows.append(row)
            show(str(row))
    show(summary(rows))


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(FIGURES):
        raise argparse.ArgumentTypeError(
            f"no figure {', '.join(unknown)}; there is {', '.join(FIGURES)}"
        )
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
