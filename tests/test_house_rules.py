"""Rules of the house that no tool of the build knows."""

from __future__ import annotations

import ast
import re
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


USER_TEXT = re.compile(
    "answer|body|content|data|event|input|lines?|message|old|outputs|prompt|question|refused"
    "|response|result|skipped|texts?|typed|value|words"
)
"""Names of fields that hold what a person or a model wrote, where they hold text or bytes."""

NO_USER_TEXT = {
    "git_config.Setting.value": "of a repository's config",
    "parser.Command.text": "of our own reference",
    "script.Failure.message": "of an API that is scripted",
    "protocol.ShimHeaders.event": "an id",
    "spool.Drained.refused": "names of files",
}


def hides_fields(decorator: ast.expr) -> bool:
    return "repr=False" in ast.unparse(decorator)


def generated_reprs() -> list[ast.ClassDef]:
    """Classes whose repr is made from their fields, renamed to `module.Class`."""
    found = []
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.ClassDef) or not (node.bases or node.decorator_list):
                continue
            own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            if "__repr__" not in own and not any(map(hides_fields, node.decorator_list)):
                node.name = f"{source.stem}.{node.name}"
                found.append(node)
    return found


def test_user_text_is_in_no_repr() -> None:
    shown = {
        f"{kind.name}.{field.target.id}"
        for kind in generated_reprs()
        for field in kind.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and USER_TEXT.fullmatch(field.target.id)
        and re.search(r"\b(str|bytes|bytearray|Any|object)\b", ast.unparse(field.annotation))
    }
    assert shown == set(NO_USER_TEXT)  # another one needs a repr of its own, which shows its length
