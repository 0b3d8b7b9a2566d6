"""Which project a directory belongs to, and what that project is called.

Owns the rules of names and identities: when two directories share a memory, when a moved repository
keeps its own, when a copy gets another. It must not know how a repository is read (that is
`adapters/git`), where memories lie, or how identities are stored.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Literal, assert_never
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Kind = Literal["plain", "repository", "bare", "submodule"]
"""What names the project: a directory, a repository with a work tree, one without, a submodule."""

IdentityKind = Literal["plain", "repository", "bare", "submodule", "worktree"]
"""As `Kind`, and a linked worktree that has a memory of its own (`worktrees = "separate"`)."""

Outcome = Literal["known", "new", "joined", "moved"]

NAME_LIMIT = 200
"""Characters of a project's name: a file name takes 255 bytes, and a suffix must fit."""

SLUG_LIMIT = 60
"""Characters of the readable part of a name that is not the real one."""

HASH_LENGTH = 8
ID_LENGTH = 12

NO_NAMES = (".", "..", "-")

HOME_NAME = "home"
"""Real name of the home directory itself; its own name is often that of a repository in it."""

ROOT_NAME = "root"
"""Real name of `/`, which has none."""

HIDDEN_BARE_NAMES = (".git", ".bare")
"""Bare repositories that are kept inside the directory of their worktrees: it names the project."""

DEFAULT_PORTS = {
    "ssh": "22",
    "git+ssh": "22",
    "ssh+git": "22",
    "http": "80",
    "https": "443",
    "git": "9418",
}

_SAFE = re.compile(r"[A-Za-z0-9._-]+\Z")
_UNSAFE_RUN = re.compile(r"[^A-Za-z0-9._]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP = re.compile(r"(?:[^/@:]*(?::[^/@]*)?@)?(\[[^\]/]+\]|[^/:@\[\]]+):(?!//)(.+)", re.DOTALL)
_HELPER = re.compile(r"\A[A-Za-z0-9-]+::")
"""`ext::`, `codecommit::`: the program that fetches."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Place:
    """A directory as the file system knows it; device and inode are 0 where it is gone.

    `born` (nanoseconds, 0: unknown) is the time of a file that is written once when a repository is
    made: an inode alone is given to the next directory as soon as the old one is deleted.
    """

    path: str
    device: int = 0
    inode: int = 0
    born: int = 0


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a directory is; all paths are real and absolute."""

    kind: Kind
    here: Place
    """The directory that was looked at."""
    top: str
    """The work tree that holds it; `here` itself outside of any repository."""
    primary: str
    """The directory that names the project: the main work tree, or the bare repository."""
    place: Place
    """What the project is known by: the common git directory, or the directory of a plain one."""
    own: Place | None = None
    """The git directory of a linked worktree; None in a main work tree."""
    origin: str = ""
    """URL of the remote `origin` as `normalise_origin` gives it, or empty."""
    superproject: str = ""
    """Top directory of a submodule's superproject."""
    home: str = ""
    """The person's home directory."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A place that has a memory. Several places may share one memory: they have one `name`.

    `id` stays for life and is the key; `name` is the directory below the memory root.
    """

    id: str
    name: str
    real_name: str
    kind: IdentityKind
    directory: str
    """Where it was last seen: the main work tree, the bare repository or the plain directory."""
    place: Place
    origin: str = ""
    """Normalised; empty for what is never joined by it."""
    joined_from: str = ""
    """Directory of the clone whose memory it shares; empty where the memory is its own."""
    pinned: bool = False
    """The name stands in the config."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The identity of a directory and how it was found.

    `joined` and `new` come once, at the first load; `changed` says that the identity has to be stored.
    """

    identity: Identity
    outcome: Outcome
    changed: bool


def safe_name(real: str) -> str:
    """A directory name of `^[A-Za-z0-9._-]+\\Z`, at most NAME_LIMIT long; the same for NFC and NFD.

    A real name that is one already stays; any other becomes a readable slug and a short hash.
    """
    name = unicodedata.normalize("NFC", real)
    if _SAFE.match(name) and name not in NO_NAMES and len(name) <= NAME_LIMIT:
        return name
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = _UNSAFE_RUN.sub("-", letters).strip("-.")[:SLUG_LIMIT].rstrip("-.")
    return f"{slug or 'project'}-{_hash(name)}"


def normalise_origin(url: str) -> str:
    """One text for one repository: `host/path` of a remote one, an absolute path of a local one.

    Scheme, user, password, default port, query, `.git` and outer slashes are dropped, the host is
    lower case. Empty for what names no repository by itself, such as a relative path.
    """
    url = _HELPER.sub("", url.strip(), count=1)
    if not url or _CONTROL.search(url):
        return ""
    if scheme := _SCHEME.match(url):
        return _from_url(scheme[1].lower(), url[scheme.end() :])
    if url.startswith("/"):
        return _local(url)
    if found := _SCP.match(url):
        return _remote(found[1], "", found[2])
    return ""


def resolve(
    repository: Repository,
    known: Sequence[Identity],
    *,
    join_clones: bool,
    worktrees: Literal["shared", "separate"],
    still_there: Callable[[Identity], bool],
    pinned: str = "",
) -> Resolved:
    """The identity of `repository` among those `known`, in the order in which they were first seen.

    `still_there` says whether an identity's recorded place is still what was recorded; it is asked for
    few of them. `pinned` is the name that the config gives, or empty. Two calls that may each find
    something new must not overlap: the first has to be stored before the second is made.
    """
    found = _candidate(repository, worktrees)
    if pinned:
        return _pinned(found, known, pinned)
    rows = [row for row in known if not row.pinned]
    if (row := _same_path(found, rows, still_there)) is not None:
        if row.joined_from and not join_clones:
            return _named(replace(found, id=row.id), known)
        return _seen(row, found, "known")
    for row in rows:
        if not _same_inode(row, found):
            continue
        if still_there(row):
            return Resolved(row, "known", changed=False)
        if found.kind != "plain" and _same_birth(row, found):
            return _seen(row, found, "moved")
    return _by_origin(found, rows, still_there, join=join_clones) or _named(found, known)


# ── what is looked for ─────────────────────────────────────────────────────────────────────────────


def _candidate(repository: Repository, worktrees: Literal["shared", "separate"]) -> Identity:
    """An identity without id and name: what `repository` would be if it were new."""
    if _covers(repository.primary, repository.home):
        return _plain(repository.here, repository.home)
    if repository.own is not None and worktrees == "separate":
        top = repository.top
        return Identity("", "", _base(top), "worktree", top, repository.own)
    kind, primary, place = repository.kind, repository.primary, repository.place
    match kind:
        case "plain":
            return _plain(place, repository.home)
        case "submodule":
            real = f"{_bare_name(repository.superproject)}.{_base(primary)}"
            return Identity("", "", real, kind, primary, place)
        case "bare":
            return Identity("", "", _bare_name(primary), kind, primary, place, repository.origin)
        case "repository":
            return Identity("", "", _base(primary), kind, primary, place, repository.origin)
        case _:
            assert_never(kind)


def _plain(place: Place, home: str) -> Identity:
    special = {home: HOME_NAME, "/": ROOT_NAME}
    real = special.get(place.path) or _base(place.path)
    return Identity("", "", real, "plain", place.path, place)


def _covers(directory: str, home: str) -> bool:
    return bool(home) and f"{home}/".startswith(f"{directory.rstrip('/')}/")


def _bare_name(directory: str) -> str:
    name = _base(directory)
    if name in HIDDEN_BARE_NAMES:
        return _base(directory.rpartition("/")[0])
    return name.removesuffix(".git") or name


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or ROOT_NAME


# ── whether it is known ────────────────────────────────────────────────────────────────────────────


def _same_path(
    found: Identity, rows: Iterable[Identity], still_there: Callable[[Identity], bool]
) -> Identity | None:
    path, directory = _key(found.place.path), _key(found.directory)
    became = None
    for row in rows:
        if _key(row.place.path) == path and (
            # Another repository may have been put where a known one was.
            _origins_agree(row, found) or (_same_inode(row, found) and _same_birth(row, found))
        ):
            return row
        if _key(row.directory) == directory and {row.kind, found.kind} == {"plain", "repository"}:
            became = row
    # A directory that was made a repository keeps its memory; so does one that no longer is one.
    if became is not None and (became.kind == "plain" or not still_there(became)):
        return became
    return None


def _same_inode(row: Identity, found: Identity) -> bool:
    mine, other = row.place, found.place
    return bool(mine.inode) and (mine.device, mine.inode) == (other.device, other.inode)


def _same_birth(row: Identity, found: Identity) -> bool:
    """Where one of the two times is unknown, the origins have to say it."""
    if row.place.born and found.place.born:
        return row.place.born == found.place.born
    return _origins_agree(row, found)


def _origins_agree(row: Identity, found: Identity) -> bool:
    return not (row.origin and found.origin) or row.origin == found.origin


def _by_origin(
    found: Identity,
    rows: Iterable[Identity],
    still_there: Callable[[Identity], bool],
    *,
    join: bool,
) -> Resolved | None:
    if not found.origin:
        return None
    gone = None
    for row in rows:
        if row.origin != found.origin:
            continue
        if not still_there(row):
            gone = gone or row
        elif join:
            joined = replace(found, name=row.name, joined_from=row.directory)
            return _stored(joined, rows, "joined")
    return _seen(gone, found, "moved") if gone is not None else None


def _seen(row: Identity, found: Identity, outcome: Outcome) -> Resolved:
    now = replace(
        row, kind=found.kind, directory=found.directory, place=found.place, origin=found.origin
    )
    return Resolved(now, outcome, changed=now != row)


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


def _pinned(found: Identity, known: Sequence[Identity], pinned: str) -> Resolved:
    name, path = safe_name(pinned), _key(found.place.path)
    for row in known:
        if row.pinned and row.name == name and _key(row.place.path) == path:
            return _seen(row, found, "known")
    return _stored(replace(found, name=name, real_name=pinned, pinned=True), known, "new")


def _named(found: Identity, known: Sequence[Identity]) -> Resolved:
    """The plain name for the first that is seen, `name-<hash>` for the next."""
    plain = safe_name(found.real_name)
    # A file system that ignores case would give two spellings one directory.
    taken = {row.name.casefold() for row in known}
    names = (f"{plain[:NAME_LIMIT]}-{digest}" for digest in _hashes(found.place.path, HASH_LENGTH))
    name = plain
    while name.casefold() in taken:
        name = next(names)
    return _stored(replace(found, name=name), known, "new")


def _stored(found: Identity, known: Iterable[Identity], outcome: Outcome) -> Resolved:
    if found.id:
        return Resolved(found, outcome, changed=True)
    ids = {row.id for row in known}
    fresh = next(id_ for id_ in _hashes(found.place.path, ID_LENGTH) if id_ not in ids)
    return Resolved(replace(found, id=fresh), outcome, changed=True)


def _hashes(path: str, length: int) -> Iterator[str]:
    for salt in count():
        yield _hash(f"{_key(path)}\0{salt}" if salt else _key(path), length)


def _hash(text: str, length: int = HASH_LENGTH) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _key(path: str) -> str:
    return unicodedata.normalize("NFC", path)


# ── origins ────────────────────────────────────────────────────────────────────────────────────────


def _from_url(scheme: str, rest: str) -> str:
    if scheme == "file":
        return _local(rest[rest.find("/") :]) if "/" in rest else ""
    authority, _, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    port = ""
    if found := re.fullmatch(r"(\[[^\]]*\]|[^:]*):(\d*)", host):
        host, port = found[1], found[2]
    if port == DEFAULT_PORTS.get(scheme):
        port = ""
    return _remote(host, port, re.split(r"[?#]", path)[0])


def _remote(host: str, port: str, path: str) -> str:
    host = host.lower().rstrip(".")
    path = _without_suffix("/".join(step for step in unquote(path).split("/") if step))
    if not host or not path or _CONTROL.search(path):
        return ""
    return f"{host}:{port}/{path}" if port else f"{host}/{path}"


def _local(path: str) -> str:
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            steps = steps[:-1]
        elif step not in ("", "."):
            steps.append(step)
    return f"/{_without_suffix('/'.join(steps))}" if steps else ""


def _without_suffix(path: str) -> str:
    return path.removesuffix("/.git").removesuffix(".git").rstrip("/") or path
