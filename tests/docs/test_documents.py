from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from documents import REPOSITORY, Document, all_documents, tracked

from memoryd import __version__
from memoryd.ctl import parser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

README = Document(REPOSITORY / "README.md")
CHANGELOG = Document(REPOSITORY / "CHANGELOG.md")
DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = [pytest.param(document, id=str(document)) for document in all_documents()]

FOLDERS = ("tutorial", "howto", "reference", "explanation", "decisions")

TARGET = re.compile(r"^(?P<name>[a-z-]+):", re.MULTILINE)
MAKE = re.compile(r"\bmake (?P<target>[a-z-]+)")
CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

MADE_UP_HOMES = r"(?:u\w*|you)\b"
MACHINE = re.compile(
    rf"(?<![\w.$~/-])(?:/work/|/root/|/Users/|/home/(?!{MADE_UP_HOMES})\w)".encode()
)
REGISTRY = re.compile(
    rb"(?:pypi|pythonhosted|npmjs|debian|golang|crates)\.(?:org|com|io)|https?://[^\s/]*(?:proxy|mirror)\."
)
MADE_UP_HOSTS = re.compile(rb"https?://[\w.-]*\.(?:example|test|invalid)\b[^\s]*")


def commands(document: Document) -> Iterator[list[str]]:
    """What a document says of memoryctl, in words."""
    lines = [line for block in document.blocks("sh") for line in block.split("\n")]
    for said in (*document.codes, *lines):
        for typed in re.findall(r"(?<![/\w])memoryctl( [^\n|)#\"]*)?", said):
            yield shlex.split(typed, comments=True)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_leads_somewhere(document: Document) -> None:
    for link in document.links:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = document.path if not name else (document.path.parent / name).resolve()
        assert target.exists(), link
        if anchor:
            assert anchor in Document(target).anchors, link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_command_that_is_named_exists(document: Document) -> None:
    for words in commands(document):
        if words and not words[0].startswith(("-", "COMMAND", "…")):
            assert words[0] in parser.names(), words


def test_the_readme_names_targets_of_the_makefile() -> None:
    targets = set(TARGET.findall((REPOSITORY / "Makefile").read_text()))
    named = {found["target"] for found in MAKE.finditer("\n".join(README.blocks("sh")))}
    assert {"demo", "test"} <= named <= targets


def test_the_readme_leads_to_every_folder_of_the_documentation() -> None:
    named = {link.split("/")[1] for link in README.links if link.startswith("docs/")}
    assert set(FOLDERS) <= named


def test_every_page_is_led_to_from_its_folder() -> None:
    index = Document(REPOSITORY / "docs" / "README.md")
    linked = {(index.path.parent / link.partition("#")[0]).resolve() for link in index.links}
    pages = {document.path for document in all_documents() if document.path.parent.name in FOLDERS}
    assert pages <= linked


def test_the_changelog_keeps_its_form() -> None:
    versions = re.findall(r"^## (.+)$", CHANGELOG.text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert set(re.findall(r"^### (.+)$", CHANGELOG.text, re.MULTILINE)) <= CHANGES
    assert __version__ in CHANGELOG.text


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_was_decided_and_what_was_not(path: Path) -> None:
    headings = Document(path).headings
    assert headings[1:] == ["Context", "Decision", "Rejected", "Consequences"]


def test_nothing_names_a_place_of_one_machine() -> None:
    found = {
        str(path.relative_to(REPOSITORY)): match[0]
        for path in tracked()
        if path.exists() and (match := MACHINE.search(path.read_bytes()))
    }
    found.pop("tests/docs/test_documents.py", None)
    assert found == {}


def test_nothing_names_a_registry_or_a_proxy() -> None:
    found = {
        str(path.relative_to(REPOSITORY)): match[0]
        for path in tracked()
        if path.exists() and (match := REGISTRY.search(MADE_UP_HOSTS.sub(b"", path.read_bytes())))
    }
    found.pop("tests/docs/test_documents.py", None)
    assert found == {}
