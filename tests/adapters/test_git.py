"""The shapes of a repository, made by real git, and read without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from memoryd.adapters.git import CONFIG_LIMIT, GitFiles
from memoryd.adapters.git_config import Setting, settings, values
from memoryd.core.project import Identity, Repository, Resolved, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryd.ports import Repositories

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    # submodules of local repositories need it
    "GIT_ALLOW_PROTOCOL": "file",
}
ORIGIN = "https://example.com/acme/api.git"


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *arguments],
        env=ENVIRONMENT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def make(directory: Path, *, origin: str = "", commit: bool = False) -> Path:
    directory.mkdir(parents=True)
    git(directory, "init", "-q")
    if origin:
        git(directory, "remote", "add", "origin", origin)
    if commit:
        git(directory, "commit", "-q", "--allow-empty", "-m", "first")
    return directory


def linked(repository: Path, at: Path) -> Path:
    git(repository, "worktree", "add", "-q", "--detach", str(at))
    return at


def superproject(directory: Path, part: Path, path: str = "common") -> Path:
    make(directory, commit=True)
    git(directory, "submodule", "--quiet", "add", str(part), path)
    git(directory, "commit", "-qm", "with submodule")
    return directory / path


class Desk:
    """A person's machine: what was looked at, and what is known of it."""

    def __init__(self, home: Path) -> None:
        self.files: Repositories = GitFiles(home)
        self.known: dict[str, Identity] = {}
        self.worktrees: Literal["shared", "separate"] = "shared"

    def look(self, directory: Path) -> Repository:
        found = self.files.look(directory)
        assert found is not None
        return found

    def see(self, directory: Path) -> Resolved:
        resolved = resolve(
            self.look(directory),
            list(self.known.values()),
            join_clones=True,
            worktrees=self.worktrees,
            still_there=self.files.still_there,
        )
        self.known[resolved.identity.id] = resolved.identity
        return resolved

    def name(self, directory: Path) -> str:
        return self.see(directory).identity.name


@pytest.fixture
def w(tmp_path: Path) -> Path:
    """Where projects lie; no link in its path."""
    where = tmp_path.resolve() / "w"
    where.mkdir()
    return where


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "home" / "u")


def sub(directory: Path) -> Path:
    below = directory / "src" / "deep"
    below.mkdir(parents=True)
    return below


# ── shapes that check out ──────────────────────────────────────────────────────────────────────────


def test_a_repository(desk: Desk, w: Path) -> None:
    api = make(w / "api", origin=ORIGIN)
    found = desk.look(sub(api))
    assert (found.kind, found.top, found.primary) == ("repository", str(api), str(api))
    assert found.here.path == str(api / "src" / "deep")
    assert found.place.path == str(api / ".git")
    assert found.place.inode == (api / ".git").stat().st_ino
    assert found.place.born > 0
    assert (found.origin, found.own) == ("example.com/acme/api", None)


def test_a_plain_directory(desk: Desk, w: Path) -> None:
    found = desk.look(w)
    assert (found.kind, found.top, found.place) == ("plain", str(w), found.here)


def test_the_four_places_of_a_repository_are_one_project(desk: Desk, w: Path) -> None:
    api = make(w / "api", commit=True)
    beside, inside = linked(api, w / "api-fix"), linked(api, api / "trees" / "b")
    for place in (sub(beside), inside, api, sub(api), sub(inside), beside):
        assert desk.name(place) == "api"
    assert len(desk.known) == 1
    git(api, "worktree", "remove", "--force", str(beside))
    assert desk.name(api) == "api"
    git(api, "worktree", "remove", "--force", str(inside))
    assert desk.name(inside) == "api"


def test_worktrees_can_be_separate(desk: Desk, w: Path) -> None:
    api = make(w / "api", commit=True)
    beside, inside = linked(api, w / "api-fix"), linked(api, api / "b")
    desk.worktrees = "separate"
    names = [desk.name(place) for place in (api, beside, inside, sub(api), sub(beside))]
    assert names == ["api", "api-fix", "b", "api", "api-fix"]
    git(api, "worktree", "move", str(beside), str(w / "moved"))
    assert desk.name(w / "moved") == "api-fix"


@pytest.mark.parametrize("bare", ["api.git", "api/.bare", "api/.git"])
def test_worktrees_of_a_bare_repository_take_its_name(desk: Desk, w: Path, bare: str) -> None:
    source = make(w / "source", commit=True)
    git(w, "clone", "-q", "--bare", str(source), bare)
    one, two = linked(w / bare, w / "trees" / "one"), linked(w / bare, w / bare / ".." / "two")
    assert {desk.name(place) for place in (one, two, sub(one), w / bare)} == {"api"}
    assert len(desk.known) == 1


def test_the_folder_around_a_hidden_bare_repository_is_the_same_project(
    desk: Desk, w: Path
) -> None:
    source = make(w / "source", commit=True)
    git(w, "clone", "-q", "--bare", str(source), "api/.bare")
    (w / "api" / ".git").write_text("gitdir: ./.bare\n")
    main = linked(w / "api" / ".bare", w / "api" / "main")
    assert {desk.name(place) for place in (w / "api", main, w / "api" / ".bare")} == {"api"}
    assert len(desk.known) == 1


def test_a_worktree_with_relative_paths(desk: Desk, w: Path) -> None:
    api = make(w / "api", commit=True)
    beside = linked(api, w / "fix")
    (beside / ".git").write_text("gitdir: ../api/.git/worktrees/fix\n")
    (api / ".git" / "worktrees" / "fix" / "gitdir").write_text("../../../../fix/.git\n")
    assert desk.name(beside) == "api"


def test_submodules_differ_and_none_is_in_git_modules(desk: Desk, w: Path) -> None:
    common = make(w / "common", origin=ORIGIN, commit=True)
    first, second = superproject(w / "S1", common), superproject(w / "S2", common)
    for part in (first, second):
        git(part, "remote", "set-url", "origin", ORIGIN)
    names = [desk.name(place) for place in (first, second, common, sub(first), w / "S1")]
    assert names == ["S1.common", "S2.common", "common", "S1.common", "S1"]
    assert not any(".git" in identity.directory for identity in desk.known.values())
    assert desk.name(w / "S1" / ".git" / "modules" / "common") == "S1"


def test_a_nested_submodule(desk: Desk, w: Path) -> None:
    inner = make(w / "inner", commit=True)
    superproject(w / "middle", inner, "in")
    outer = superproject(w / "outer", w / "middle", "libs/mid")
    git(w / "outer", "submodule", "--quiet", "update", "--init", "--recursive")
    found = desk.look(outer / "in")
    assert (found.kind, found.superproject) == ("submodule", str(outer))
    assert desk.name(outer / "in") == "mid.in"
    assert desk.name(outer) == "outer.mid"


def test_a_submodule_in_a_linked_worktree_is_that_of_the_main_one(desk: Desk, w: Path) -> None:
    common = make(w / "common", commit=True)
    first = superproject(w / "S1", common, "libs/common")
    tree = linked(w / "S1", w / "S1-fix")
    git(tree, "submodule", "--quiet", "update", "--init")
    assert desk.name(tree / "libs" / "common") == "S1.common"
    assert desk.name(first) == "S1.common"
    assert len(desk.known) == 1
    desk.worktrees = "separate"
    assert desk.name(tree / "libs" / "common") != desk.name(first)


def test_a_linked_worktree_of_a_submodule_is_the_submodule(desk: Desk, w: Path) -> None:
    common = make(w / "common", commit=True)
    first = superproject(w / "S1", common)
    tree = linked(first, w / "common-fix")
    assert desk.name(tree) == "S1.common"
    assert desk.name(first) == "S1.common"


def test_a_submodule_after_a_sparse_checkout(desk: Desk, w: Path) -> None:
    common = make(w / "common", commit=True)
    first = superproject(w / "S1", common)
    git(first, "sparse-checkout", "set", "src")
    assert "worktree" not in (w / "S1/.git/modules/common/config").read_text().split("[ext")[0]
    assert desk.name(first) == "S1.common"


def test_an_old_submodule_with_a_repository_of_its_own(desk: Desk, w: Path) -> None:
    outer = make(w / "outer", commit=True)
    part = make(outer / "part", commit=True)
    assert desk.look(part).kind == "repository"
    git(outer, "submodule", "--quiet", "add", "./part")
    assert (part / ".git").is_dir()
    found = desk.look(part)
    assert (found.kind, found.superproject) == ("submodule", str(outer))


def test_links_to_a_project_and_to_home_are_followed(desk: Desk, w: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / "u"
    api = make(home / "api", commit=True)
    tree = linked(api, home / "fix")
    (w / "link").symlink_to(api)
    (w / "house").symlink_to(home)
    places = (api, w / "link", w / "house" / "api", w / "house" / "fix", tree)
    assert [desk.name(place) for place in places] == ["api"] * 5
    assert Desk(w / "house").name(home) == "home"


def test_a_git_that_is_a_link_counts_where_it_is_named_back(desk: Desk, w: Path) -> None:
    api, store = make(w / "api", commit=True), w / "store" / "x.git"
    store.parent.mkdir()
    (api / ".git").rename(store)
    (api / ".git").symlink_to(store)
    assert desk.look(api).kind == "plain"
    git(store, "config", "core.worktree", str(api))
    assert desk.look(sub(api)).kind == "repository"
    assert desk.name(api) == "api"
    assert desk.name(linked(api, w / "fix")) == "api"


# ── moves and copies ───────────────────────────────────────────────────────────────────────────────


def test_a_moved_repository_keeps_its_memory(desk: Desk, w: Path) -> None:
    desk.see(make(w / "api", commit=True))
    (w / "api").rename(w / "backend")
    moved = desk.see(w / "backend")
    assert (moved.identity.name, moved.outcome) == ("api", "moved")


def test_a_copy_does_not_steal_it(desk: Desk, w: Path) -> None:
    desk.see(make(w / "api", commit=True))
    shutil.copytree(w / "api", w / "copy")
    assert desk.name(w / "copy") == "copy"
    assert desk.name(w / "api") == "api"
    shutil.rmtree(w / "api")
    assert desk.name(w / "copy") == "copy"


def test_a_repository_that_got_the_inode_of_a_deleted_one_is_new(desk: Desk, w: Path) -> None:
    desk.see(make(w / "api"))
    shutil.rmtree(w / "api")
    assert desk.name(make(w / "other")) == "other"


def test_another_repository_under_the_old_name(desk: Desk, w: Path) -> None:
    desk.see(make(w / "api", origin=ORIGIN))
    (w / "api").rename(w / "api-old")
    assert desk.name(make(w / "api", origin="host:other")).startswith("api-")
    assert desk.name(w / "api-old") == "api"


def test_clones_are_joined_once(desk: Desk, w: Path) -> None:
    desk.see(make(w / "api", origin=ORIGIN))
    clone = make(w / "again", origin="git@example.com:acme/api")
    assert desk.see(clone).outcome == "joined"
    assert desk.see(clone).outcome == "known"
    assert desk.name(clone) == "api"


# ── home, root, nowhere ────────────────────────────────────────────────────────────────────────────


def test_home_root_nowhere_and_a_deleted_directory(desk: Desk, w: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / "u"
    home.mkdir(parents=True)
    gone = w / "gone" / "deeper"
    names = [desk.name(place) for place in (Path("/"), home, gone, w)]
    assert names == ["root", "home", "deeper", "w"]
    assert desk.look(gone).here.inode == 0
    for nothing in ("", ".", "w", "/a\0b"):
        assert desk.files.look(Path(nothing)) is None


def test_a_deleted_directory_of_a_repository_is_still_in_it(desk: Desk, w: Path) -> None:
    api = make(w / "api")
    assert desk.name(api / "gone" / "deeper") == "api"


def test_a_repository_at_home_does_not_name_its_parts(desk: Desk, tmp_path: Path) -> None:
    home = tmp_path.resolve() / "home" / "u"
    make(home)
    (home / "notes").mkdir()
    api = make(home / "src" / "api")
    names = [desk.name(place) for place in (home / "notes", home, api)]
    assert names == ["notes", "home", "api"]


def test_a_directory_in_another_coding_is_a_project(desk: Desk, w: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(w) + b"/caf\xe9"))
    odd.mkdir()
    assert desk.name(odd) == desk.name(odd)
    desk.look(odd).here.path.encode()


# ── shapes that don't check out ────────────────────────────────────────────────────────────────────


def point(at: Path, target: Path) -> None:
    at.mkdir(parents=True, exist_ok=True)
    (at / ".git").write_text(f"gitdir: {target}\n")


def not_named_back(w: Path, victim: Path) -> None:
    point(w / "evil", victim / ".git" / "worktrees" / "fix")


def named_back_from_elsewhere(w: Path, victim: Path) -> None:
    own = w / "evil" / "x" / "worktrees" / "y"
    own.mkdir(parents=True)
    (own / "commondir").write_text(f"{victim / '.git'}\n")
    (own / "gitdir").write_text(f"{w / 'evil' / '.git'}\n")
    point(w / "evil", own)


def pointed_straight_at_it(w: Path, victim: Path) -> None:
    point(w / "evil", victim / ".git")


def pointed_at_its_submodule(w: Path, victim: Path) -> None:
    point(w / "evil", victim / ".git" / "modules" / "part")


def in_it_pointed_at_its_submodule(w: Path, victim: Path) -> None:
    point(victim / "evil", victim / ".git" / "modules" / "part")
    (w / "evil").symlink_to(victim / "evil")


def a_link_to_it(w: Path, victim: Path) -> None:
    (w / "evil").mkdir()
    (w / "evil" / ".git").symlink_to(victim / ".git")


def a_link_to_its_git_file(w: Path, _victim: Path) -> None:
    (w / "evil").mkdir()
    (w / "evil" / ".git").symlink_to(w / "fix" / ".git")


def a_commondir_in_a_repository(w: Path, victim: Path) -> None:
    make(w / "evil")
    (w / "evil" / ".git" / "commondir").write_text(f"{victim / '.git'}\n")


def a_pipe(w: Path, _victim: Path) -> None:
    (w / "evil").mkdir()
    os.mkfifo(w / "evil" / ".git")


def too_long(w: Path, victim: Path) -> None:
    target = linked(victim, w / "evil")
    pointer = (target / ".git").read_text().strip()
    (target / ".git").write_text(f"{pointer}{'/.' * 5000}\n")


def rubbish(w: Path, _victim: Path) -> None:
    (w / "evil").mkdir()
    (w / "evil" / ".git").write_bytes(b"gitdir: \0\xff\n\n")


def empty(w: Path, _victim: Path) -> None:
    (w / "evil").mkdir()
    (w / "evil" / ".git").touch()


@pytest.mark.parametrize(
    "shape",
    [
        not_named_back,
        named_back_from_elsewhere,
        pointed_straight_at_it,
        pointed_at_its_submodule,
        in_it_pointed_at_its_submodule,
        a_link_to_it,
        a_link_to_its_git_file,
        a_commondir_in_a_repository,
        a_pipe,
        too_long,
        rubbish,
        empty,
    ],
)
def test_a_repository_that_names_another_is_its_own_project(
    desk: Desk, w: Path, shape: Callable[[Path, Path], None]
) -> None:
    part = make(w / "part", commit=True)
    superproject(w / "victim", part, "part")
    linked(w / "victim", w / "fix")
    desk.see(w / "victim")
    shape(w, w / "victim")
    found = desk.look(sub(w / "evil"))
    assert (found.kind, found.top) == ("plain", str((w / "evil").resolve()))
    assert found.origin == ""
    assert desk.name(w / "evil" / "src") == "evil"


def test_an_empty_git_directory_is_passed_over_as_git_does(desk: Desk, w: Path) -> None:
    api = make(w / "api")
    (api / "masked" / ".git").mkdir(parents=True)
    assert desk.name(api / "masked") == "api"


def test_a_bare_repository_inside_a_repository_is_not_one(desk: Desk, w: Path) -> None:
    api = make(w / "api")
    git(api, "init", "-q", "--bare", "fixtures/evil.git")
    assert desk.name(api / "fixtures" / "evil.git") == "api"


def test_a_bare_repository_kept_in_another_repository(desk: Desk, w: Path) -> None:
    source, around = make(w / "source", commit=True), make(w / "around")
    git(around, "clone", "-q", "--bare", str(source), "api.git")
    assert desk.name(linked(around / "api.git", w / "tree")) == "api"


def test_a_nested_repository_that_is_kept_elsewhere(desk: Desk, w: Path) -> None:
    outer = make(w / "outer")
    git(outer, "init", "-q", "--separate-git-dir", str(w / "store"), "inner")
    assert desk.look(outer / "inner").kind == "plain"
    git(w / "store", "config", "core.worktree", str(outer / "inner"))
    assert desk.look(outer / "inner").kind == "repository"
    assert desk.name(outer / "inner") == "inner"


def test_repositories_that_name_each_other_in_a_circle(desk: Desk, w: Path) -> None:
    for mine, other in (("a", "b"), ("b", "a")):
        make(w / mine / "sub")
        tree = w / mine / "sub" / ".git" / "worktrees" / "x"
        tree.mkdir(parents=True)
        (tree / "commondir").write_text("../..\n")
        (tree / "gitdir").write_text(f"{w / other / '.git'}\n")
        point(w / other, tree)
    assert desk.look(w / "a").place.path == str(w / "b" / "sub" / ".git")
    assert desk.look(w / "b" / "sub").kind == "repository"


def test_links_in_a_circle(desk: Desk, w: Path) -> None:
    (w / "loop").symlink_to(w / "loop")
    (w / "x").mkdir()
    (w / "x" / ".git").symlink_to(".git")
    assert desk.look(w / "loop").kind == "plain"
    assert desk.look(w / "x").kind == "plain"


@pytest.mark.parametrize(
    "config",
    [b"[remote", b"", b"\xff\xfe", b'[remote "origin"]\nurl=host:a\n' + b"#" * CONFIG_LIMIT],
    ids=["cut", "empty", "not UTF-8", "long"],
)
def test_a_config_that_cannot_be_read_gives_no_origin(desk: Desk, w: Path, config: bytes) -> None:
    api = make(w / "api")
    (api / ".git" / "config").write_bytes(config)
    assert (desk.look(api).kind, desk.look(api).origin) == ("repository", "")


@pytest.mark.parametrize("make_config", [Path.mkdir, os.mkfifo])
def test_a_config_that_is_no_file_gives_no_origin(
    desk: Desk, w: Path, make_config: Callable[[Path], None]
) -> None:
    api = make(w / "api")
    (api / ".git" / "config").unlink()
    make_config(api / ".git" / "config")
    assert (desk.look(api).kind, desk.look(api).origin) == ("repository", "")


def test_an_origin_in_an_included_file_counts_for_nothing(desk: Desk, w: Path) -> None:
    api = make(w / "api")
    (w / "more").write_text(f'[remote "origin"]\nurl = {ORIGIN}\n')
    git(api, "config", "include.path", str(w / "more"))
    assert desk.look(api).origin == ""


def test_other_users_repositories_are_not_believed(
    desk: Desk, w: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make(w / "api", origin=ORIGIN)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    found = desk.look(sub(api))
    assert (found.kind, found.top, found.origin) == ("plain", str(api), "")


def test_a_worktree_of_another_users_repository_is_not_believed(
    desk: Desk, w: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make(w / "api", commit=True)
    tree = linked(api, w / "fix")
    monkeypatch.setattr("memoryd.adapters.git._ours", lambda path: path != api / ".git")
    assert desk.name(tree) == "fix"


def test_a_repository_on_another_file_system_is_not_found(
    desk: Desk, w: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make(w / "api")
    mounted = sub(api)
    assert desk.look(mounted).kind == "repository"

    def mount(path: Path, *, follow: bool = True) -> os.stat_result | None:
        try:
            found = path.stat(follow_symlinks=follow)
        except OSError:
            return None
        device = 99 if path == mounted else found.st_dev
        return os.stat_result((*found[:2], device, *found[3:]))

    monkeypatch.setattr("memoryd.adapters.git._stat", mount)
    assert desk.look(mounted).kind == "plain"


def test_nothing_is_run_and_no_variable_is_looked_at(
    desk: Desk, w: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, other = make(w / "api", commit=True), make(w / "other", commit=True)
    canary = w / "canary"
    program = w / "program"
    program.write_text(f"#!/bin/sh\necho ran >> '{canary}'\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external"):
        git(api, "config", key, str(program))
    for alias in ("status", "rev-parse", "worktree"):
        git(api, "config", f"alias.{alias}", f"!{program}")
    (api / ".git" / "hooks").mkdir(exist_ok=True)
    shutil.copy(program, api / ".git" / "hooks" / "post-checkout")
    # the canary sings when git itself asks
    (api / "file").touch()
    git(api, "status")
    assert canary.exists()
    canary.unlink()
    monkeypatch.setenv("PATH", str(w))
    shutil.copy(program, w / "git")
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(w))
    assert desk.name(sub(api)) == "api"
    assert not canary.exists()


# ── still there ────────────────────────────────────────────────────────────────────────────────────


def test_still_there(desk: Desk, w: Path) -> None:
    repository = desk.see(make(w / "api")).identity
    directory = desk.see(w).identity
    assert desk.files.still_there(repository)
    assert desk.files.still_there(directory)
    (w / "api").rename(w / "b")
    assert not desk.files.still_there(repository)
    make(w / "api")
    assert not desk.files.still_there(repository)


# ── config files ───────────────────────────────────────────────────────────────────────────────────


def test_the_syntax_of_config_files() -> None:
    text = (
        '\ufeff; top\n[Remote "Ori\\"gin"] URL = one # comment\r\n'
        '  fetch="a ; b" \\\n  c\\n\n'
        "[remote.ORIGIN]\n\turl = two \n flag\n[core]bare=false"
    )
    assert settings(text) == [
        Setting("remote", 'Ori"gin', "url", "one"),
        Setting("remote", 'Ori"gin', "fetch", "a ; b   c\n"),
        Setting("remote", "origin", "url", "two"),
        Setting("remote", "origin", "flag", None),
        Setting("core", "", "bare", "false"),
    ]
    assert values(settings(text), "remote", "origin", "url") == ["two"]


@pytest.mark.parametrize(
    "text", ["key = 1", "[a]\n1 = 2", '[a]\nb = "c', "[a]\nb = c\\x", "[a]\nb # c", '[a "b]\nc = 1']
)
def test_what_follows_a_fault_of_syntax_is_left_out(text: str) -> None:
    assert settings(f"[x]\ny = z\n{text}\n[k]\nl = m\n")[:1] == [Setting("x", "", "y", "z")]
    assert values(settings(f"{text}\n[k]\nl = m\n"), "k", "", "l") == []


PIECES = st.sampled_from(
    [
        '"',
        "\\\\",
        '\\"',
        "\\n",
        "\\\n",
        "\\x",
        " ",
        "  ",
        "#",
        ";",
        "a",
        "é",
        "=",
        "[",
        "]",
        "\n",
        "\r",
    ]
)


@given(value=st.lists(PIECES, max_size=12).map("".join), header=st.sampled_from(
    ['[s "x"]', "[s.x]", '[S  "x"]', '[s "\\x"]', "[s]"]
))  # fmt: skip
@hypothesis_settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_it_is_read_as_git_reads_it(tmp_path: Path, value: str, header: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(f"{header}\nkey ={value}\n".encode())
    listed = subprocess.run(
        ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"],
        env=ENVIRONMENT, cwd=tmp_path, check=False, capture_output=True,
    )  # fmt: skip
    if listed.returncode:
        return
    expected = [entry.partition("\n") for entry in listed.stdout.decode().split("\0") if entry]
    ours = [
        (".".join(filter(None, (one.section, one.subsection, one.key))), one.value or "")
        for one in settings(file.read_bytes().decode())
    ]
    # what stands for white space inside of a value depends on git's version
    assert [(name, content.replace("\r", " ")) for name, content in ours] == [
        (name, content.replace("\r", " ")) for name, _, content in expected
    ]
