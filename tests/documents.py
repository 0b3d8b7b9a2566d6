"""The Markdown files of the repository as tests see them: headings, links, blocks, words in backticks."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)\n(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"^#{1,6} (?P<name>.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"`(?P<text>[^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Document:
    """One Markdown file."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """All but the fenced blocks."""
        return _BLOCK.sub("", self.text)

    @property
    def headings(self) -> list[str]:
        """Their names, without backticks."""
        return [found["name"].replace("`", "") for found in _HEADING.finditer(self.prose)]

    @property
    def anchors(self) -> set[str]:
        """What a link may name behind `#`, by the rule of the usual hosts."""
        return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in self.headings}

    @property
    def links(self) -> list[str]:
        return [found["target"] for found in _LINK.finditer(self.prose)]

    @property
    def codes(self) -> list[str]:
        """What stands in backticks."""
        return [found["text"] for found in _CODE.finditer(self.prose)]

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks of a language."""
        found = _BLOCK.finditer(self.text)
        return [block["text"] for block in found if block["language"] == language]

    def __str__(self) -> str:
        return str(self.path.relative_to(REPOSITORY))


def tracked() -> list[Path]:
    """The files that git knows."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    return [REPOSITORY / name for name in listed.decode().split("\0") if name]


@cache
def all_documents() -> tuple[Document, ...]:
    """README, CHANGELOG and what lies in docs."""
    paths = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"]
    paths += sorted((REPOSITORY / "docs").rglob("*.md"))
    return tuple(Document(path) for path in paths)


def reference(name: str) -> Document:
    """A page of docs/reference."""
    return Document(REPOSITORY / "docs" / "reference" / name)
