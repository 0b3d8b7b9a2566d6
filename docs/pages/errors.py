"""The page of errors: problem codes, our own errors, warnings, and failures of a save."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, get_args

from docs.pages.errors_prose import FAILURES, PROBLEMS, WARNINGS
from docs.pages.markdown import code, paragraph, table
from docs.pages.markdown import page as whole
from memoryd import errors
from memoryd.core import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENING = """\
What is wrong is always told in one sentence, where there is one with the command that mends it
behind `try:`. `memoryctl status` shows all that is wrong now, the worst first. The exit codes of
both programs are in [commands.md](commands.md#exit-codes-of-memoryctl); what to do when a save
fails is told in [When a save fails](../howto/when-a-save-fails.md)."""

PROBLEMS_OPENING = """\
An answer from status 400 on is a [Problem](protocol.md#problem) with one of these codes. memoryctl
shows its sentence and its hint and exits with 1, with 4 where the generation differs."""

OWN_OPENING = """\
An error of memoryd's own that ends a request has the status 500, and its code is the name of its
class."""

WARNINGS_OPENING = """\
What the daemon noticed and the person should know stands in `memoryctl status`, in its JSON as
[Warned](protocol.md#warned) with one of these codes. A warning goes when its cause has gone."""

FAILURES_OPENING = """\
A question to the model that brought no reply is of one of these kinds. The kind follows from the
HTTP status and the error's type, never from words in a text. The turn stays owed in every case. An
example of each, as it stands behind `error: ` on the status line:"""

EXAMPLES: dict[failure.FailureKind, tuple[int, str]] = {
    "transient": (529, "overloaded_error"),
    "credentials": (401, "authentication_error"),
    "too_long": (400, "invalid_request_error"),
    "rejected": (404, "not_found_error"),
}


def page() -> str:
    """The page as Markdown."""
    return whole("Errors", "the source", _parts())


def _parts() -> Iterator[str]:
    yield OPENING
    yield "## Problem codes"
    yield PROBLEMS_OPENING
    for name, told in PROBLEMS.items():
        yield f"### {name}"
        yield f"Status {told.status}. {told.text}" if told.status else told.text
    yield "## Codes of our own errors"
    yield OWN_OPENING
    for kind in _own():
        yield f"### {own_code(kind)}"
        yield f"`{kind.__name__}`: {paragraph(kind.__doc__)}"
    yield "## Warnings"
    yield WARNINGS_OPENING
    for name, text in WARNINGS.items():
        yield f"### {name}"
        yield text
    yield "## Failures of a save"
    yield FAILURES_OPENING
    yield _failures()
    yield "## The tree of exceptions"
    yield "\n".join(_tree(errors.MemorydError, 0))


def own_code(kind: type[errors.MemorydError]) -> str:
    """`StorageError` as `storage`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    return words.removesuffix("_error")


def _own() -> Iterator[type[errors.MemorydError]]:
    """The classes of errors.py but for the base and the one that brings its own code."""
    for kind in _defined():
        if kind not in (errors.MemorydError, errors.RequestError):
            yield kind


def _defined() -> list[type[errors.MemorydError]]:
    return [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.MemorydError)
    ]


def _failures() -> str:
    kinds: tuple[failure.FailureKind, ...] = get_args(failure.FailureKind)
    rows = [
        (code(kind), failure.sentence(kind, *EXAMPLES.get(kind, (0, ""))), FAILURES[kind])
        for kind in kinds
    ]
    return table(("Kind", "Example", "What follows"), rows)


def _tree(kind: type[errors.MemorydError], depth: int) -> Iterator[str]:
    first = paragraph(kind.__doc__).partition("\n")[0]
    yield f"{'  ' * depth}- `{kind.__name__}`: {first}"
    for below in _defined():
        if kind in below.__bases__:
            yield from _tree(below, depth + 1)
