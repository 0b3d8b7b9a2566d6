"""Completion scripts, made from the parser.

Owns which arguments name a file; knows no command by its name.
"""

from __future__ import annotations

import argparse

from memoryd.ctl import parser

FILES = frozenset({"memory", "reply", "typed", "jsonl"})
"""Arguments of `apply` that name a file."""


def script(shell: str) -> str:
    """The script for `bash` or `zsh`."""
    # Takes longer than everything else of memoryctl.
    import shtab  # noqa: PLC0415

    words = parser.build()
    for page in _pages(words):
        for action in page._actions:  # noqa: SLF001  shtab asks for an attribute of an action
            if action.dest in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(words, shell=shell))


def _pages(words: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        page
        for action in words._actions  # noqa: SLF001  the only way to a command's parser
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        for page in action.choices.values()
    ]
