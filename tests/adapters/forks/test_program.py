from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from memoryd.adapters.forks import program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _only_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "USUAL_PLACES", ("~/.local/bin", "~/.claude/local"))


def put(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def env(home: Path, *path: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.pathsep.join(path)}


def test_the_sessions_own_program_is_taken_first(tmp_path: Path) -> None:
    own = put(tmp_path / "own" / "claude")
    put(tmp_path / "bin" / "claude")
    assert program.find(str(own), env(tmp_path, str(tmp_path / "bin"))) == own


def test_the_native_installers_versions_count_as_the_program(tmp_path: Path) -> None:
    own = put(tmp_path / ".local/share/claude/versions/2.1.332")
    assert program.find(str(own), env(tmp_path)) == own


@pytest.mark.parametrize("name", ["node", "claude-helper", "versions"])
def test_another_program_of_that_process_is_not_run(tmp_path: Path, name: str) -> None:
    own = put(tmp_path / "own" / name)
    assert program.find(str(own), env(tmp_path)) is None


def test_the_path_is_searched_and_only_absolute_folders_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "claude")
    put(tmp_path / "relative" / "claude")
    on_path = put(tmp_path / "bin" / "claude")
    assert program.find("", env(tmp_path, "", ".", "relative", str(tmp_path / "bin"))) == on_path


@pytest.mark.parametrize("place", [".local/bin", ".claude/local"])
def test_its_usual_places_are_searched_last(tmp_path: Path, place: str) -> None:
    usual = put(tmp_path / place / "claude")
    assert program.find("relative/claude", env(tmp_path, "/nowhere")) == usual


def test_a_link_is_followed(tmp_path: Path) -> None:
    real = put(tmp_path / "versions" / "2.1.332")
    link = tmp_path / ".local/bin/claude"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert program.find("", env(tmp_path)) == link


@pytest.mark.parametrize("mode", [0o644, 0o757])
def test_a_file_that_is_no_program_or_that_others_can_write_is_passed_over(
    tmp_path: Path, mode: int
) -> None:
    put(tmp_path / ".local/bin/claude", mode)
    usual = put(tmp_path / ".claude/local/claude")
    assert program.find("", env(tmp_path)) == usual


def test_a_directory_and_a_program_that_is_gone_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".local/bin/claude").mkdir(parents=True)
    assert program.find(str(tmp_path / "gone" / "claude"), env(tmp_path)) is None
