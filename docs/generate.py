"""Makes the pages of docs/reference that follow from the code.

`python -m docs.generate` writes them; with `--check` nothing is written, the pages that are out of date
are named, and the exit code is 1 where there is one. Run it from the top of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docs.pages import commands, errors, files, protocol, settings, status_line

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "errors.md": errors.page,
    "files.md": files.page,
    "protocol.md": protocol.page,
    "settings.md": settings.page,
    "status-line.md": status_line.page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that are out of date; the exit code."""
    stale = [name for name, page in PAGES.items() if _text(name) != page()]
    if "--check" in arguments:
        for name in stale:
            sys.stdout.write(f"out of date: docs/reference/{name}; try: python -m docs.generate\n")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")
        sys.stdout.write(f"written: docs/reference/{name}\n")
    return 0


def _text(name: str) -> str:
    """The page as it lies there; empty where there is none."""
    try:
        return (FOLDER / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
