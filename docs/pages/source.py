"""What the source says without being imported: constants, docstrings below a name, codes in calls."""

from __future__ import annotations

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]


class Call(NamedTuple):
    """A call in the source: the name that is called, its arguments, the file that holds it."""

    name: str
    arguments: tuple[ast.expr, ...]
    keywords: dict[str, ast.expr]
    file: str


@cache
def tree(file: str) -> ast.Module:
    """The syntax tree of a file, named from the top of the repository."""
    return ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))


def constant(file: str, name: str) -> str:
    """The literal text that a module gives to a name."""
    for node in tree(file).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _target(node) == name:
            return str(ast.literal_eval(node.value))
    raise LookupError(f"{file} gives no value to {name}")


def notes(body: list[ast.stmt]) -> dict[str, str]:
    """The docstrings that stand right below a name in a module or a class."""
    found: dict[str, str] = {}
    for node, below in pairwise(body):
        target = _target(node)
        if target and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target] = str(below.value.value)
    return found


def classes(file: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, in its order."""
    return {node.name: node for node in tree(file).body if isinstance(node, ast.ClassDef)}


def calls(*folders: str) -> Iterator[Call]:
    """Every call below the folders, file by file."""
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            file = path.relative_to(REPOSITORY).as_posix()
            for node in ast.walk(tree(file)):
                if isinstance(node, ast.Call):
                    keywords = {word.arg: word.value for word in node.keywords if word.arg}
                    yield Call(_called(node.func), tuple(node.args), keywords, file)


def text_of(node: ast.expr | None) -> str:
    """A literal text; empty where it is something else."""
    literal = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(ast.literal_eval(node)) if literal and node is not None else ""


def _target(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
