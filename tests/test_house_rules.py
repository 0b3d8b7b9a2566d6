"""Rules of the house that no tool of the build knows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "memoryd").rglob("*.py"), *(ROOT / "clients").rglob("*.py")])


def calls(name: str) -> list[str]:
    """Places that call a method of that name."""
    return [
        f"{source.relative_to(ROOT)}:{node.lineno}"
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    ]


def test_lines_are_split_at_newlines_only() -> None:
    assert calls("splitlines") == []


def catches_any(handler: ast.ExceptHandler) -> bool:
    """Also among others; one that raises again behind its clean-up catches nothing."""
    kinds = [] if handler.type is None else [handler.type]
    if kinds and isinstance(kinds[0], ast.Tuple):
        kinds = kinds[0].elts
    named = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
    ends = handler.body[-1]
    again = isinstance(ends, ast.Raise)
    return (not kinds or bool(named & {"Exception", "BaseException"})) and not again


def test_any_exception_is_caught_at_named_places_only() -> None:
    found = Counter(
        str(source.relative_to(ROOT))
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ExceptHandler) and catches_any(node)
    )
    assert found == {
        "memoryd/daemon/dispatch.py": 1,  # a request
        "memoryd/daemon/work.py": 2,  # a save: its story, and what is told of its end
        "memoryd/ctl/main.py": 1,  # a command
        "memoryd/adapters/ledger_thread.py": 1,  # a work: the error goes to who asked for it
        "clients/claude_code/shim.py": 1,  # a hook: it can never hurt the session
    }


def test_memory_files_are_written_by_one_adapter_only() -> None:
    writers = {
        place.partition(":")[0]
        for name in ("write_bytes", "write_text", "fsync", "ftruncate")
        for place in calls(name)
        if place.startswith(("memoryd/core", "memoryd/daemon", "memoryd/worker"))
    }
    assert writers <= {
        "memoryd/daemon/instance.py",  # its own word of who holds the lock
    }
