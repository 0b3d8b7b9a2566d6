"""Finds the `claude` program: the session's own, else on the PATH, else in its usual places.

Owns which file may be run: a regular, executable one of ours or root's that nobody else can write.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "claude"

USUAL_PLACES = (
    "~/.local/bin",
    "~/.claude/local",
    "~/.npm-global/bin",
    "~/.bun/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "/usr/bin",
)
"""Where its installers put it: a service's PATH often has none of them."""


def find(executable: str, env: Mapping[str, str]) -> Path | None:
    """The program to run; `executable` is what the session itself runs, or empty.

    Looks at files: call in a thread.
    """
    candidates = _candidates(executable, env)
    return next((path for path in candidates if is_runnable(path)), None)


def is_runnable(path: Path) -> bool:
    """Whether it is an executable file that only we or root can have put there."""
    try:
        found = path.stat()
    except OSError:
        return False
    return (
        stat.S_ISREG(found.st_mode)
        and os.access(path, os.X_OK)
        and found.st_uid in (0, os.geteuid())
        and not found.st_mode & stat.S_IWOTH
    )


def _candidates(executable: str, env: Mapping[str, str]) -> Iterator[Path]:
    if _is_the_client(Path(executable)):
        yield Path(executable)
    for directory in env.get("PATH", "").split(os.pathsep):
        if directory.startswith("/"):
            yield Path(directory) / NAME
    for place in USUAL_PLACES:
        yield paths.expand(place, env) / NAME


def _is_the_client(path: Path) -> bool:
    """By name: the native installer keeps it as `…/claude/versions/2.1.332`."""
    if not path.is_absolute():
        return False
    return path.name == NAME or path.parts[-3:-1] == (NAME, "versions")
