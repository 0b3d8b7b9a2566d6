from __future__ import annotations

import ast
import re
import subprocess
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, get_args

import msgspec
import pytest
from documents import REPOSITORY, Document, all_documents, reference

from docs.pages import errors as errors_page
from docs.pages import source
from docs.pages.errors_prose import PROBLEMS, WARNINGS
from memoryd import errors, protocol
from memoryd.config import ForkSettings, ProjectSettings, Settings, parse
from memoryd.core.failure import FailureKind
from memoryd.ctl import parser
from memoryd.daemon import dispatch

if TYPE_CHECKING:
    from docs.pages.source import Call

ROOMS = ("memoryd/daemon", "memoryd/ctl")


def problems() -> dict[str, set[int]]:
    """Codes of problems in the source, and the statuses that stand beside them as numbers."""
    found: dict[str, set[int]] = {}
    for call in source.calls(*ROOMS):
        code = problem_code(call)
        if code:
            found.setdefault(code, set()).update(statuses(call))
    return found


def problem_code(call: Call) -> str:
    if call.name in ("RequestError", "_problem") and len(call.arguments) > 1:
        return source.text_of(call.arguments[1])
    return source.text_of(call.keywords.get("code")) if call.name == "Problem" else ""


def statuses(call: Call) -> set[int]:
    first = call.arguments[0] if call.arguments else None
    if isinstance(first, ast.Constant) and isinstance(first.value, int):
        return {first.value}
    if isinstance(first, ast.Attribute):
        return {HTTPStatus[first.attr].value}
    return set()


def warnings() -> set[str]:
    found = {
        source.text_of(call.keywords.get("code") if call.name == "Warned" else call.arguments[0])
        for call in source.calls(*ROOMS)
        if call.name == "Warned" or (call.name == "_step" and "rounds" in call.file)
    }
    return found - {""}


def test_pages_made_from_the_code_are_up_to_date() -> None:
    command = [sys.executable, "-m", "docs.generate", "--check"]
    checked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert checked.stdout == ""
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("document", all_documents(), ids=str)
def test_a_table_is_whole(document: Document) -> None:
    """A line break in a cell would end the table there, and show the rest as text."""
    for block in re.split(r"\n\n+", document.prose):
        rows = block.strip("\n").split("\n")
        if any(row.startswith("|") for row in rows):
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
            assert len(cells) == 1, rows[0]
            assert re.fullmatch(r"[-:| ]+", rows[1])


def test_the_generator_loads_neither_the_event_loop_nor_the_sdk() -> None:
    program = (
        "import sys, docs.generate; print([n for n in ('anyio', 'anthropic') if n in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


def test_every_setting_has_a_heading() -> None:
    tables = ((Settings, ""), (ForkSettings, "fork."), (ProjectSettings, "projects."))
    wanted = {
        f"{front}{field.name}"
        for table, front in tables
        for field in msgspec.structs.fields(table)
        if field.name not in ("fork", "projects")
    }
    assert wanted <= set(reference("settings.md").headings)


def test_every_command_has_a_heading() -> None:
    wanted = {f"memoryctl {name}" for name in parser.names()}
    assert wanted <= set(reference("commands.md").headings)


def test_every_message_and_every_route_stands_in_the_protocol() -> None:
    page = reference("protocol.md")
    kinds = {name for name in source.classes("memoryd/protocol.py") if name != "Message"}
    routes = {f"{method} /v{protocol.GENERATION}/{name}" for method, name in protocol.ROUTES}
    assert kinds <= set(page.headings)
    assert routes <= set(page.codes)


def test_every_problem_code_has_a_heading_and_no_other_has() -> None:
    found = problems()
    assert set(found) == set(PROBLEMS)
    assert set(found) <= set(reference("errors.md").headings)


def test_a_problem_has_the_status_that_its_page_says() -> None:
    wrong = {code: found for code, found in problems().items() if found - {PROBLEMS[code].status}}
    assert wrong == {}


def test_every_warning_code_has_a_heading_and_no_other_has() -> None:
    assert warnings() == set(WARNINGS)
    assert warnings() <= set(reference("errors.md").headings)


def test_every_error_of_ours_has_a_heading_by_the_code_that_a_client_sees() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, errors.MemorydError):
            assert errors_page.own_code(kind) == dispatch._code(kind.__new__(kind))
    own = {errors_page.own_code(kind) for kind in errors_page._own()}
    assert own <= set(reference("errors.md").headings)


def test_every_kind_of_failure_is_told() -> None:
    assert set(get_args(FailureKind)) <= set(reference("errors.md").codes)


BLOCKS = [
    pytest.param(block, id=f"{document}-{number}")
    for document in all_documents()
    for number, block in enumerate(document.blocks("toml"))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_of_the_config_is_taken_and_changes_something(block: str) -> None:
    found = parse(block.encode(), REPOSITORY / "config.toml", {"HOME": "/home/you"})
    assert found.settings != Settings() or "gate" in block
