from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.core.project import (
    NAME_LIMIT,
    Identity,
    Kind,
    Place,
    Repository,
    Resolved,
    normalise_origin,
    resolve,
    safe_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

HOME = "/home/u"
ORIGIN = "github.com/acme/api"


def repository(
    top: str,
    *,
    inode: int = 1,
    born: int = 100,
    origin: str = "",
    kind: Kind = "repository",
    own: Place | None = None,
) -> Repository:
    git = top if kind == "bare" else f"{top}/.git"
    return Repository(
        kind=kind,
        here=Place(top, 9, inode + 5000),
        top=own.path.rpartition("/")[2] if own else top,
        primary=top,
        place=Place(git, 9, inode, born),
        own=own,
        origin=origin,
        home=HOME,
    )


def plain(directory: str, *, inode: int = 1, top: str = "") -> Repository:
    here = Place(directory, 9, inode)
    top = top or directory
    return Repository("plain", here, top, top, replace(here, path=top), home=HOME)


def submodule(superproject: str, path: str, *, inode: int = 1) -> Repository:
    top = f"{superproject}/{path}"
    place = Place(f"{superproject}/.git/modules/{path}", 9, inode, 100)
    return Repository(
        "submodule", Place(top, 9, inode + 5000), top, top, place,
        origin=ORIGIN, superproject=superproject, home=HOME,
    )  # fmt: skip


class Book:
    """The identities seen so far, and which of their places are gone."""

    def __init__(self) -> None:
        self.known: dict[str, Identity] = {}
        self.gone: set[str] = set()
        self.join_clones = True
        self.worktrees: Literal["shared", "separate"] = "shared"

    def see(self, repository: Repository, *, pinned: str = "") -> Resolved:
        resolved = resolve(
            repository,
            list(self.known.values()),
            join_clones=self.join_clones,
            worktrees=self.worktrees,
            still_there=lambda identity: identity.place.path not in self.gone,
            pinned=pinned,
        )
        before = self.known.get(resolved.identity.id)
        assert resolved.changed == (before != resolved.identity)
        self.known[resolved.identity.id] = resolved.identity
        return resolved

    def name(self, repository: Repository, *, pinned: str = "") -> str:
        return self.see(repository, pinned=pinned).identity.name

    def names(self, repositories: Iterable[Repository]) -> list[str]:
        return [self.name(one) for one in repositories]


@pytest.fixture
def book() -> Book:
    return Book()


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["api", "my.Repo_2", ".dotfiles", "-x", "...", "a" * NAME_LIMIT])
def test_a_safe_name_stays(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("real", "slug"),
    [
        ("my project", "my-project"),
        ("Über café", "Uber-cafe"),
        ("日本語", "project"),
        ("🚀 launch", "launch"),
        ("a\nb\x1b[0m", "a-b-0m"),
        ("api\n", "api"),
        ("", "project"),
        (".", "project"),
        ("..", "project"),
        ("-", "project"),
        ("a/../../etc", "a-..-..-etc"),
        ("x" * 300, "x" * 60),
    ],
)
def test_any_other_name_becomes_a_slug_and_a_hash(real: str, slug: str) -> None:
    assert re.fullmatch(re.escape(slug) + "-[0-9a-f]{8}", safe_name(real))


@given(st.text())
def test_every_name_is_a_safe_one_and_the_same_in_nfc_and_nfd(real: str) -> None:
    name = safe_name(real)
    assert re.match(r"^[A-Za-z0-9._-]+\Z", name)
    assert name not in (".", "..", "-")
    assert len(name) <= NAME_LIMIT
    forms = {safe_name(unicodedata.normalize(form, real)) for form in ("NFC", "NFD")}
    assert len(forms) == 1


# ── origins ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/api",
        "https://github.com/acme/api.git",
        "https://github.com/acme/api/",
        "https://github.com/acme/api.git/",
        "https://GitHub.com:443/acme/api.git",
        "http://github.com:80/acme/api",
        "https://user:t0ken@github.com/acme/api.git",
        "https://user:p@ss@github.com/acme/api.git",
        "https://github.com/acme/api.git?private_token=abc#x",
        "https://github.com//acme//api",
        "https://github.com/acme/%61pi",
        "ssh://git@github.com/acme/api.git",
        "ssh://git@github.com:22/acme/api",
        "git+ssh://git@github.com/acme/api",
        "git://github.com:9418/acme/api.git",
        "git@github.com:acme/api.git",
        "git@github.com:/acme/api",
        "github.com:acme/api",
        "user:secret@github.com:acme/api",
        " https://github.com./acme/api\n",
        "codecommit::https://user:pw@github.com/acme/api",
    ],
)
def test_one_repository_by_any_url(url: str) -> None:
    assert normalise_origin(url) == ORIGIN


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("ssh://git@host:2222/a/b.git", "host:2222/a/b"),
        ("ssh://[::1]:22/a", "[::1]/a"),
        ("git@[::1]:a/b", "[::1]/a/b"),
        ("https://host/Acme/API", "host/Acme/API"),
        ("https://host/a/../b", "host/a/../b"),
        ("/srv/git/api.git", "/srv/git/api"),
        ("/w/api/.git", "/w/api"),
        ("/w/x/../api//", "/w/api"),
        ("file:///srv/git/api.git", "/srv/git/api"),
        ("file://localhost/srv/git/api", "/srv/git/api"),
        ("", ""),
        ("../api", ""),
        ("api.git", ""),
        ("/", ""),
        ("https://", ""),
        ("https://host", ""),
        ("file://x", ""),
        ("https://host/a%0ab", ""),
        ("git@host:a\nb", ""),
    ],
)
def test_origins_of_other_forms(url: str, origin: str) -> None:
    assert normalise_origin(url) == origin


@given(st.text())
def test_any_text_is_an_origin_or_none(url: str) -> None:
    assert "\n" not in normalise_origin(url)


@given(st.from_regex(r"[a-z]{1,8}:[a-z0-9@:]{1,8}", fullmatch=True))
def test_no_credential_of_a_url_is_kept(secret: str) -> None:
    assert normalise_origin(f"https://{secret}@example.com/a.git") == "example.com/a"


# ── one project ────────────────────────────────────────────────────────────────────────────────────


def test_the_first_load_is_new_and_the_next_ones_are_known(book: Book) -> None:
    first = book.see(repository("/w/api"))
    assert (first.identity.name, first.outcome, first.changed) == ("api", "new", True)
    again = book.see(repository("/w/api"))
    assert (again.identity, again.outcome, again.changed) == (first.identity, "known", False)


def test_a_linked_worktree_shares_the_memory_of_its_repository(book: Book) -> None:
    own = Place("/w/api/.git/worktrees/fix", 9, 77, 200)
    assert book.name(repository("/w/api", own=own)) == "api"
    assert book.see(repository("/w/api")).outcome == "known"
    assert len(book.known) == 1


def test_separate_worktrees_have_memories_of_their_own(book: Book) -> None:
    book.worktrees = "separate"
    own = Place("/w/api/.git/worktrees/fix", 9, 77, 200)
    linked = replace(repository("/w/api", own=own, origin=ORIGIN), top="/w/api-fix")
    assert book.names([repository("/w/api", origin=ORIGIN), linked]) == ["api", "api-fix"]
    assert book.see(linked).outcome == "known"
    # `git worktree move` keeps what git calls it
    moved = replace(linked, top="/elsewhere/fix")
    assert book.see(moved).identity.directory == "/elsewhere/fix"
    assert book.name(moved) == "api-fix"
    book.worktrees = "shared"
    assert book.name(linked) == "api"


@pytest.mark.parametrize(
    ("bare", "name"),
    [("/w/api.git", "api"), ("/w/api", "api"), ("/w/api/.bare", "api"), ("/w/api/.git", "api")],
)
def test_a_bare_repository_gives_its_name_without_git(book: Book, bare: str, name: str) -> None:
    assert book.name(repository(bare, kind="bare")) == name


def test_a_directory_that_becomes_a_repository_keeps_its_memory(book: Book) -> None:
    assert book.name(plain("/w/idea")) == "idea"
    became = book.see(repository("/w/idea", inode=8))
    assert (became.identity.name, became.identity.kind, became.changed) == (
        "idea", "repository", True,
    )  # fmt: skip
    book.gone.add("/w/idea/.git")
    assert book.name(plain("/w/idea")) == "idea"
    assert len(book.known) == 1


def test_a_repository_that_is_no_longer_believed_is_another_project(book: Book) -> None:
    assert book.name(repository("/w/api")) == "api"
    assert book.name(plain("/w/api", inode=2)).startswith("api-")


def test_one_directory_by_two_spellings_is_one_project(book: Book) -> None:
    first = book.see(repository("/P/Proj", inode=3))
    other = book.see(repository("/p/proj", inode=3))
    assert (other.identity, other.outcome) == (first.identity, "known")
    assert book.name(plain("/P/Docs", inode=4)) == book.name(plain("/p/docs", inode=4))


def test_nfc_and_nfd_of_one_path_are_one_project(book: Book) -> None:
    composed, decomposed = (unicodedata.normalize(form, "/w/café") for form in ("NFC", "NFD"))
    assert book.name(plain(composed, inode=1)) == book.name(plain(decomposed, inode=2))


# ── two projects ───────────────────────────────────────────────────────────────────────────────────


def test_the_first_owns_the_plain_name(book: Book) -> None:
    first, second, third = book.names(
        [repository("/w/api"), repository("/oss/api", inode=2), plain("/tmp/API", inode=3)]
    )
    assert first == "api"
    assert re.fullmatch("api-[0-9a-f]{8}", second)
    assert re.fullmatch("API-[0-9a-f]{8}", third)
    assert book.names([repository("/oss/api", inode=2), repository("/w/api")]) == [second, first]


def test_another_repository_in_the_old_place_gets_its_own_memory(book: Book) -> None:
    old = book.see(repository("/w/api", inode=1, origin=ORIGIN)).identity
    book.gone.add("/w/api/.git")
    new = book.see(repository("/w/api", inode=2, born=200, origin="host/other"))
    assert new.outcome == "new"
    assert new.identity.name != old.name
    assert new.identity.id != old.id
    moved = book.see(repository("/w/api-old", inode=1, origin=ORIGIN))
    assert (moved.identity.name, moved.outcome) == ("api", "moved")


def test_a_clone_anew_in_the_same_place_is_the_same(book: Book) -> None:
    book.see(repository("/w/api", inode=1, origin=ORIGIN))
    again = book.see(repository("/w/api", inode=2, born=200, origin=ORIGIN))
    assert (again.identity.name, again.outcome, again.changed) == ("api", "known", True)


def test_a_new_origin_of_the_same_repository_changes_nothing_else(book: Book) -> None:
    book.see(repository("/w/api", origin=ORIGIN))
    renamed = book.see(repository("/w/api", origin="host/acme/api"))
    assert (renamed.identity.name, renamed.identity.origin) == ("api", "host/acme/api")


def test_submodules_are_told_apart_by_their_superproject(book: Book) -> None:
    names = book.names(
        [
            submodule("/w/S1", "common", inode=1),
            submodule("/w/S2", "common", inode=2),
            repository("/w/common", inode=3, origin=ORIGIN),
            repository("/w/clone", inode=4, origin=ORIGIN),
            submodule("/w/S2", "libs/common", inode=5),
        ]
    )
    assert names[:4] == ["S1.common", "S2.common", "common", "common"]
    assert re.fullmatch(r"S2\.common-[0-9a-f]{8}", names[4])


def test_a_moved_superproject_keeps_the_memory_of_its_submodules(book: Book) -> None:
    book.see(submodule("/w/S1", "common"))
    book.gone.add("/w/S1/.git/modules/common")
    moved = book.see(submodule("/w/S9", "common"))
    assert (moved.identity.name, moved.outcome) == ("S1.common", "moved")


# ── clones, moves, copies ──────────────────────────────────────────────────────────────────────────


def test_clones_share_one_memory_and_it_is_told_once(book: Book) -> None:
    book.see(repository("/w/api", origin=ORIGIN))
    clone = repository("/w/second", inode=2, origin=ORIGIN)
    joined = book.see(clone)
    assert (joined.identity.name, joined.outcome) == ("api", "joined")
    assert joined.identity.joined_from == "/w/api"
    assert book.see(clone).outcome == "known"
    assert book.name(repository("/w/api", origin=ORIGIN)) == "api"


def test_clones_can_be_kept_apart(book: Book) -> None:
    book.see(repository("/w/api", origin=ORIGIN))
    clone = repository("/w/second", inode=2, origin=ORIGIN)
    book.see(clone)
    book.join_clones = False
    assert book.name(clone) == "second"
    assert book.name(repository("/w/third", inode=3, origin=ORIGIN)) == "third"
    assert len({identity.id for identity in book.known.values()}) == 3
    book.join_clones = True
    assert book.name(clone) == "second"


def test_a_moved_repository_keeps_its_memory_by_its_inode(book: Book) -> None:
    book.see(repository("/w/api"))
    book.gone.add("/w/api/.git")
    moved = book.see(repository("/elsewhere/renamed"))
    assert (moved.identity.name, moved.outcome, moved.changed) == ("api", "moved", True)
    assert moved.identity.directory == "/elsewhere/renamed"
    assert book.see(repository("/elsewhere/renamed")).outcome == "known"


def test_a_moved_repository_keeps_its_memory_by_its_origin(book: Book) -> None:
    book.see(repository("/w/api", origin=ORIGIN))
    book.gone.add("/w/api/.git")
    for join in (False, True):
        book.join_clones = join
        moved = book.see(repository("/other/disk/api", inode=50, born=900, origin=ORIGIN))
        assert moved.identity.name == "api"
        assert not moved.identity.joined_from


def test_of_two_deleted_clones_the_first_is_the_one_that_moved(book: Book) -> None:
    book.join_clones = False
    for inode, top in enumerate(("/w/api", "/w/second"), 1):
        book.see(repository(top, inode=inode, born=inode, origin=ORIGIN))
    book.gone = {"/w/api/.git", "/w/second/.git"}
    assert book.name(repository("/w/third", inode=3, born=3, origin=ORIGIN)) == "api"


def test_a_copy_beside_the_original_does_not_steal_its_memory(book: Book) -> None:
    book.see(repository("/w/api", inode=1))
    copy = book.see(repository("/w/api-copy", inode=2, born=300))
    assert (copy.identity.name, copy.outcome) == ("api-copy", "new")
    assert book.see(repository("/w/api", inode=1)).identity.name == "api"


def test_the_inode_of_a_deleted_repository_says_nothing(book: Book) -> None:
    # Linux gives it to the next directory that is made.
    book.see(repository("/w/api", inode=1, born=100))
    book.gone.add("/w/api/.git")
    other = book.see(repository("/w/other", inode=1, born=300))
    assert (other.identity.name, other.outcome) == ("other", "new")


def test_without_a_birth_the_origins_have_to_agree(book: Book) -> None:
    book.see(repository("/w/api", inode=1, born=0, origin=ORIGIN))
    book.gone.add("/w/api/.git")
    assert book.name(repository("/w/x", inode=1, born=0, origin="host/x")) == "x"
    assert book.name(repository("/w/y", inode=1, born=0)) == "api"


def test_a_moved_plain_directory_is_another_project(book: Book) -> None:
    book.see(plain("/w/notes"))
    book.gone.add("/w/notes")
    assert book.name(plain("/w/texts")) == "texts"


# ── home and root ──────────────────────────────────────────────────────────────────────────────────


def test_home_and_root_have_names_of_their_own(book: Book) -> None:
    names = book.names([plain("/", inode=1), plain(HOME, inode=2), plain(f"{HOME}/root", inode=3)])
    assert names[:2] == ["root", "home"]
    assert re.fullmatch("root-[0-9a-f]{8}", names[2])


@pytest.mark.parametrize("top", [HOME, "/home", "/"])
def test_a_repository_around_home_does_not_name_what_is_below(book: Book, top: str) -> None:
    around = repository(top, inode=1, origin=ORIGIN)
    names = [
        book.name(replace(around, here=Place(here, 9, inode)))
        for inode, here in enumerate((HOME, f"{HOME}/notes", "/opt", "/"), 2)
    ]
    assert names == ["home", "notes", "opt", "root"]
    assert {identity.kind for identity in book.known.values()} == {"plain"}


def test_a_linked_worktree_of_a_repository_at_home_is_named_by_the_directory(book: Book) -> None:
    own = Place(f"{HOME}/.git/worktrees/wt", 9, 7, 1)
    linked = replace(repository(HOME, own=own), here=Place("/w/wt", 9, 8), top="/w/wt")
    assert book.name(linked) == "wt"


def test_a_sibling_of_home_is_not_around_it(book: Book) -> None:
    assert book.name(repository("/home/u2")) == "u2"
    assert book.name(repository("/hom", inode=2)) == "hom"


def test_an_unbelieved_repository_at_home_does_not_gather_what_is_below(book: Book) -> None:
    assert book.name(plain(f"{HOME}/notes/a", top=HOME)) == "a"


# ── pinned names ───────────────────────────────────────────────────────────────────────────────────


def test_the_config_can_pin_a_name(book: Book) -> None:
    repo = repository("/w/api", origin=ORIGIN)
    assert book.name(repo) == "api"
    assert book.name(repo, pinned="my backend") == safe_name("my backend")
    assert book.see(repo, pinned="my backend").outcome == "known"
    assert book.name(plain("/w/docs", inode=2), pinned="my backend") == safe_name("my backend")
    assert book.name(repo) == "api"
    shop = repository("/w/shop", inode=4)
    book.name(shop, pinned="other")
    assert book.name(shop) == "shop"


def test_a_pinned_name_is_taken(book: Book) -> None:
    book.name(plain("/x", inode=3), pinned="shop")
    assert book.name(repository("/w/shop", inode=4)).startswith("shop-")


def test_a_name_is_never_empty(book: Book) -> None:
    for inode, path in enumerate(("/", "//", HOME, "/w/ ", "/w/-"), 1):
        assert len(book.name(plain(path, inode=inode))) > 1


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["api", "API", "ä pi"])), unique=True
    )
)
def test_different_repositories_never_share_a_memory(places: list[tuple[str, str]]) -> None:
    book = Book()
    seen = [
        repository(f"/{folder}/{name}", inode=inode, born=inode, origin=f"host/{inode}")
        for inode, (folder, name) in enumerate(places, 1)
    ]
    names = book.names(seen)
    assert len({name.casefold() for name in names}) == len(places)
    assert book.names(seen) == names
