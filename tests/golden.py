"""Screens and texts kept in files: a change of wording or layout is seen in review.

`MEMORYD_WRITE_GOLDEN=1` writes them anew.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memoryd import __version__

if TYPE_CHECKING:
    from pathlib import Path

ESCAPE = "\x1b"
SHOWN_ESCAPE = "␛"
"""Colours stay readable in a review."""


def same(file: Path, text: str) -> None:
    """`text` is what the file holds, but for spaces at line ends and the version."""
    text = text.replace(ESCAPE, SHOWN_ESCAPE).replace(__version__, "VERSION")
    shown = "\n".join(line.rstrip() for line in text.split("\n"))
    if os.environ.get("MEMORYD_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
