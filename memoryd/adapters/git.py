"""Repositories, read from their files.

Owns the shapes that a `.git` can have and what makes each of them believable. It must not run git, nor
look at a `GIT_*` variable: a repository's config can name programs, and a `.git` file, a `commondir` or
a link can name somebody else's repository. A shape that does not check out is a plain directory. What
an identity is, is decided in `core/project`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.adapters.git_config import Setting, settings, values
from memoryd.core.project import Kind, Place, Repository, normalise_origin

if TYPE_CHECKING:
    from memoryd.core.project import Identity

POINTER_LIMIT = 8 * 1024
"""Bytes of a `.git`, `commondir` or `gitdir` file: one path."""

CONFIG_LIMIT = 1024 * 1024
"""Bytes of a config file; a longer one is as good as missing."""

WRITTEN_ONCE = ("description", "commondir")
"""Files that are written when a repository or a linked worktree is made; the first there is, counts."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A work tree with its `.git`, checked."""

    kind: Kind
    top: Path
    primary: Path
    private: Path | None
    """The git directory of this very work tree; None for a plain directory."""
    common: Path | None
    """The git directory that the project is known by."""
    superproject: Path | None = None

    @property
    def linked(self) -> bool:
        return self.private != self.common


class GitFiles:
    """Implements `ports.Repositories`. Every call blocks: call in a thread."""

    def __init__(self, home: Path) -> None:
        self._home = _real(home)

    def look(self, directory: Path) -> Repository | None:
        """Where `directory` is; None where that is no absolute path.

        A directory that is gone or can't be read is looked at by its parents; it raises nothing.
        """
        if not directory.is_absolute() or "\0" in str(directory):
            return None
        here = _real(directory)
        shape = _Search().discover(here) or _plain(here)
        return Repository(
            kind=shape.kind,
            here=_place(here),
            top=_text(shape.top),
            primary=_text(shape.primary),
            place=_born(shape.common) if shape.common else _place(shape.top),
            own=_born(shape.private) if shape.private and shape.linked else None,
            origin=_origin(shape),
            superproject=_text(shape.superproject) if shape.superproject else "",
            home=_text(self._home),
        )

    def still_there(self, identity: Identity) -> bool:
        """Whether the recorded place is still the recorded one; a device's number may change."""
        recorded = identity.place
        now = _born(Path(recorded.path))
        if not now.inode:
            return False
        return now.inode == recorded.inode or 0 != now.born == recorded.born


# ── finding ────────────────────────────────────────────────────────────────────────────────────────


class _Search:
    """One look; remembers which directories it is inside of, as shapes may name each other."""

    def __init__(self) -> None:
        self._open: set[Path] = set()

    def discover(self, start: Path) -> _Shape | None:
        """The nearest work tree at or above `start` on its file system, else a bare repository."""
        device = None
        bare = None
        for folder in (start, *start.parents):
            found = _stat(folder)
            if found is None:
                continue
            if device is not None and device != found.st_dev:
                break
            device = found.st_dev
            if shape := self._shape(folder):
                return shape
            if bare is None and _is_repository(folder) and _ours(folder):
                bare = _Shape("bare", folder, folder, folder, folder)
        return bare

    def _shape(self, top: Path) -> _Shape | None:
        if top in self._open:
            return None
        self._open.add(top)
        try:
            return self._shape_of(top, top / ".git")
        finally:
            self._open.remove(top)

    def _shape_of(self, top: Path, dot: Path) -> _Shape | None:
        """What its own `.git` makes of `top`; None where there is none that git would take."""
        found = _stat(dot, follow=False)
        if found is None:
            return None
        if found.st_uid != os.geteuid():
            # Another user's: one in /tmp must not gather all directories below, none is believed.
            owner = _stat(top)
            return _plain(top) if owner is not None and owner.st_uid == found.st_uid else None
        if stat.S_ISDIR(found.st_mode):
            return self._main(top, dot) if _is_repository(dot) else None
        if stat.S_ISREG(found.st_mode):
            target = _pointed(dot, "gitdir: ", top)
            return (target and self._pointed_to(top, target)) or _plain(top)
        if stat.S_ISLNK(found.st_mode):
            return _elsewhere(top, _real(dot)) or _plain(top)
        return _plain(top)

    def _main(self, top: Path, dot: Path) -> _Shape:
        if _stat(dot / "commondir") is not None:
            return _plain(top)
        shape = _Shape("repository", top, top, dot, dot)
        around = self.discover(top.parent)
        if around is not None and around.private and _lists_submodule(around.top, top):
            return replace(shape, kind="submodule", superproject=around.primary)
        return shape

    def _pointed_to(self, top: Path, target: Path) -> _Shape | None:
        if target.parent.name == "worktrees":
            return self._worktree(top, target)
        return self._submodule(top, target) or _elsewhere(top, target)

    def _worktree(self, top: Path, target: Path) -> _Shape | None:
        """A linked worktree: its repository has to name it back."""
        common = _pointed(target / "commondir", "", target)
        back = _pointed(target / "gitdir", "", target)
        if common is None or not _same(common, target.parent.parent):
            return None
        if back is None or back.name != ".git" or not _same(back.parent, top):
            return None
        if not _is_repository(common) or not _ours(common) or not _ours(target):
            return None
        main = self._shape(_named_work_tree(common) or common.parent)
        if main is not None and main.private == common:
            return replace(main, top=top, private=target)
        return _Shape("bare", top, common, target, common)

    def _submodule(self, top: Path, target: Path) -> _Shape | None:
        """A submodule: its repository lies in the superproject's and names it back."""
        around = self.discover(top.parent)
        if around is None or around.private is None or around.common is None:
            return None
        if around.private / "modules" not in target.parents or not _names_back(top, target):
            return None
        # Each linked worktree of a superproject has its own copy of a submodule: they are one
        # project, known by the place it has in the main one, whether it was made there or not.
        common = around.common / target.relative_to(around.private)
        primary = around.primary / top.relative_to(around.top)
        return _Shape("submodule", top, primary, target, common, around.primary)


def _plain(top: Path) -> _Shape:
    return _Shape("plain", top, top, None, None)


def _lists_submodule(superproject: Path, top: Path) -> bool:
    """An old submodule keeps its repository in its own `.git`; only `.gitmodules` tells."""
    listed = settings(_read(superproject / ".gitmodules", CONFIG_LIMIT))
    path = str(top.relative_to(superproject))
    return any(
        (setting.section, setting.key, setting.value) == ("submodule", "path", path)
        for setting in listed
    )


def _elsewhere(top: Path, target: Path) -> _Shape | None:
    """A repository that lies inside the directory, or that names it as its work tree."""
    if not _is_repository(target) or not _ours(target):
        return None
    if top in target.parents or _names_back(top, target):
        return _Shape("repository", top, top, target, target)
    return None


def _names_back(top: Path, target: Path) -> bool:
    named = _named_work_tree(target)
    return named is not None and _same(named, top) and _is_repository(target) and _ours(target)


def _named_work_tree(repository: Path) -> Path | None:
    """`core.worktree`, which stands in `config.worktree` once a sparse checkout was made."""
    for name in ("config", "config.worktree"):
        if named := values(_settings(repository / name), "core", "", "worktree"):
            return _joined(repository, named[-1])
    return None


def _origin(shape: _Shape) -> str:
    if shape.common is None:
        return ""
    # The first is the one that is fetched from.
    urls = values(_settings(shape.common / "config"), "remote", "origin", "url")
    return normalise_origin(_text(urls[0])) if urls else ""


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


def _is_repository(directory: Path) -> bool:
    head = _stat(directory / "HEAD", follow=False)
    return (
        head is not None
        and (stat.S_ISREG(head.st_mode) or stat.S_ISLNK(head.st_mode))
        and _is_directory(directory / "objects")
        and _is_directory(directory / "refs")
    )


def _is_directory(path: Path) -> bool:
    found = _stat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _ours(path: Path) -> bool:
    found = _stat(path)
    return found is not None and found.st_uid == os.geteuid()


def _same(one: Path, other: Path) -> bool:
    """One directory, in whatever case a file system lets it be written."""
    if one == other:
        return True
    mine, its = _stat(one), _stat(other)
    return mine is not None and its is not None and os.path.samestat(mine, its)


def _place(directory: Path) -> Place:
    found = _stat(directory)
    if found is None:
        return Place(_text(directory))
    return Place(_text(directory), found.st_dev, found.st_ino)


def _born(directory: Path) -> Place:
    """The place of a git directory, with the time at which it was made."""
    births = (_stat(directory / name) for name in WRITTEN_ONCE)
    born = next((birth.st_mtime_ns for birth in births if birth), 0)
    return replace(_place(directory), born=born)


def _pointed(file: Path, prefix: str, base: Path) -> Path | None:
    """The real path that a pointer file holds, relative to `base`; None where it holds none."""
    text = _read(file, POINTER_LIMIT)
    if not text.startswith(prefix):
        return None
    return _joined(base, text.removeprefix(prefix).rstrip("\r\n"))


def _joined(base: Path, path: str) -> Path | None:
    return _real(base / path) if path and "\0" not in path else None


def _settings(file: Path) -> list[Setting]:
    return settings(_read(file, CONFIG_LIMIT))


def _read(file: Path, limit: int) -> str:
    """A regular file's text; empty where it is none, is longer than `limit` or can't be read."""
    try:
        # A fifo would hold an open that waits for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            data = opened.read(limit + 1) if regular else b""
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return os.fsdecode(data) if len(data) <= limit else ""


def _stat(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except OSError:
        return None


def _real(path: Path) -> Path:
    """Links followed as far as they lead; Path.resolve() raises where they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def _text(path: Path | str) -> str:
    """As text that can be stored: bytes that are no UTF-8 are written out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
