from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from faults import Faults, Killed

from memoryd.adapters import memory_dir
from memoryd.adapters.memory_dir import MemoryFiles
from memoryd.errors import StorageError
from memoryd.ports import FileWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memoryd.ports import MemoryDir

MEMORY = "MEMORY.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def place(home: Path) -> Path:
    """A project's memory directory."""
    place = home / "memory" / "api"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def files(home: Path) -> MemoryDir:
    return MemoryFiles(home)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Faults:
    return Faults(monkeypatch, tmp_path)


def write(files: MemoryDir, place: Path, name: str, text: str, *, run: str = "r1") -> bool:
    """The whole way of one file; whether it is in place."""
    found = files.read_file(place, name)
    wanted = FileWrite(name, text.encode(), found.digest if found else None)
    (staged,) = files.stage(place, [wanted], run)
    return files.publish(place, staged)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestReading:
    def test_a_missing_directory_is_an_empty_one(self, files: MemoryDir, home: Path) -> None:
        found = files.read(home / "memory" / "none")
        assert (found.memory, found.topics) == (None, ())

    def test_bytes_as_they_are_and_their_digest(self, files: MemoryDir, place: Path) -> None:
        (place / MEMORY).write_bytes(b"\xef\xbb\xbfa\r\n\xff")
        found = files.read(place).memory
        assert found is not None
        assert found.data == b"\xef\xbb\xbfa\r\n\xff"
        assert len(found.digest) == 64
        assert "\\xff" not in repr(found)

    def test_topic_files_by_code_points(self, files: MemoryDir, place: Path) -> None:
        for name in ("é.md", "b.md", "B.md", "a10.md", "a9.md", MEMORY, "x.txt"):
            (place / name).write_text("x")
        assert files.read(place).topics == ("B.md", "a10.md", "a9.md", "b.md", "é.md")

    def test_backups_are_no_topic_files(self, files: MemoryDir, place: Path) -> None:
        backup = "MEMORY.pre-migration"
        for name in (f"{backup}.md", f"{backup}-2.md", f"{backup}-old.md"):
            (place / name).write_text("x")
        assert files.read(place).topics == (f"{backup}-old.md",)

    def test_what_is_no_file_is_no_topic_file(self, files: MemoryDir, place: Path) -> None:
        (place / "folder.md").mkdir()
        (place / ".#db.md").symlink_to("somebody@host.1234:567")  # an editor's lock
        (place / "memory.md").write_text("another spelling")
        assert files.read(place).topics == ()

    def test_a_name_that_no_message_can_hold_is_left_out(
        self, files: MemoryDir, place: Path
    ) -> None:
        (place / os.fsdecode(b"\xff.md")).write_text("x")
        (place / "db.md").write_text("x")
        assert files.read(place).topics == ("db.md",)

    def test_a_pipe_is_refused_and_not_waited_for(self, files: MemoryDir, place: Path) -> None:
        os.mkfifo(place / MEMORY)
        with pytest.raises(StorageError, match=r"read .*MEMORY.md: no regular file"):
            files.read(place)

    def test_a_directory_is_refused(self, files: MemoryDir, place: Path) -> None:
        (place / MEMORY).mkdir()
        with pytest.raises(StorageError, match=r"MEMORY.md: no regular file"):
            files.read_file(place, MEMORY)

    def test_a_file_where_the_directory_should_be(self, files: MemoryDir, home: Path) -> None:
        (home / "api").write_text("x")
        with pytest.raises(StorageError, match=r"list .*api: Not a directory"):
            files.read(home / "api")

    def test_far_too_large(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory_dir, "FILE_LIMIT", 10)
        (place / MEMORY).write_text("x" * 10)
        assert files.read_file(place, MEMORY) is not None
        (place / MEMORY).write_text("x" * 11)
        with pytest.raises(StorageError, match="over 10 bytes"):
            files.read_file(place, MEMORY)


class TestWriting:
    def test_a_new_file_is_for_its_person_alone(self, files: MemoryDir, home: Path) -> None:
        place = home / "memory" / "new"
        old = os.umask(0)
        try:
            assert write(files, place, MEMORY, "x")
        finally:
            os.umask(old)
        assert mode(place) == 0o700
        assert mode(place / MEMORY) == 0o600

    def test_several_files_are_staged_and_published_one_by_one(
        self, files: MemoryDir, place: Path
    ) -> None:
        (place / "db.md").write_text("old")
        before = files.read_file(place, "db.md")
        assert before is not None
        writes = [FileWrite("db.md", b"new", before.digest), FileWrite(MEMORY, b"memory", None)]
        topic, memory = files.stage(place, writes, "r1")
        assert (place / "db.md").read_text() == "old"
        assert not (place / MEMORY).exists()
        assert files.publish(place, topic)
        assert (place / "db.md").read_text() == "new"
        assert not files.staged_exists(place, topic)
        assert files.staged_exists(place, memory)
        assert files.publish(place, memory)
        assert names(place) == [MEMORY, "db.md"]
        assert (topic.before, memory.before) == (before.digest, None)
        now = files.read_file(place, MEMORY)
        assert now is not None
        assert now.digest == memory.after

    @pytest.mark.parametrize("edit", ["edited", "deleted", "created"])
    def test_a_target_that_changed_is_left_alone(
        self, files: MemoryDir, place: Path, edit: str
    ) -> None:
        path = place / MEMORY
        if edit != "created":
            path.write_text("old")
        found = files.read_file(place, MEMORY)
        wanted = FileWrite(MEMORY, b"ours", found.digest if found else None)
        (staged,) = files.stage(place, [wanted], "r1")
        if edit == "deleted":
            path.unlink()
        else:
            path.write_text("theirs")
        assert not files.publish(place, staged)
        assert path.exists() is (edit != "deleted")
        assert not path.exists() or path.read_text() == "theirs"
        files.discard(place, staged)
        files.discard(place, staged)
        assert MEMORY not in names(place) or names(place) == [MEMORY]

    def test_what_a_killed_daemon_staged_is_staged_anew(
        self, files: MemoryDir, place: Path
    ) -> None:
        files.stage(place, [FileWrite(MEMORY, b"first", None)], "r1")
        (staged,) = files.stage(place, [FileWrite(MEMORY, b"second", None)], "r1")
        assert files.publish(place, staged)
        assert (place / MEMORY).read_text() == "second"
        assert names(place) == [MEMORY]

    @pytest.mark.parametrize("wanted", [0o640, 0o644, 0o664, 0o400, 0o600])
    def test_the_mode_is_kept(self, files: MemoryDir, place: Path, wanted: int) -> None:
        (place / MEMORY).write_text("old")
        (place / MEMORY).chmod(wanted)
        old = os.umask(0o077)
        try:
            assert write(files, place, MEMORY, "new")
        finally:
            os.umask(old)
        assert mode(place / MEMORY) == wanted
        assert (place / MEMORY).read_text() == "new"

    def test_the_group_is_kept_where_we_may_set_it(self, files: MemoryDir, place: Path) -> None:
        ours = {os.getegid(), *os.getgroups()}
        group = 12345 if os.geteuid() == 0 else max(ours)
        (place / MEMORY).write_text("old")
        os.chown(place / MEMORY, -1, group)
        assert write(files, place, MEMORY, "new")
        assert (place / MEMORY).stat().st_gid == group

    def test_a_group_that_we_may_not_set_stops_nothing(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        (place / MEMORY).write_text("old")
        monkeypatch.setattr(os, "chown", refuse)
        assert write(files, place, MEMORY, "new")

    def test_extended_attributes_are_kept(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs = {"user.a": b"1", "security.odd": b"2", "user.z": b"3"}
        given: dict[str, bytes] = {}

        def set_it(_: object, name: str, value: bytes) -> None:
            if name.startswith("security."):
                raise PermissionError(errno.EPERM, "Operation not permitted")
            given[name] = value

        (place / MEMORY).write_text("old")
        monkeypatch.setattr(os, "listxattr", lambda _: list(theirs))
        monkeypatch.setattr(os, "getxattr", lambda _, name: theirs[name])
        monkeypatch.setattr(os, "setxattr", set_it)
        assert write(files, place, MEMORY, "new")
        assert given == {"user.a": b"1", "user.z": b"3"}

    def test_real_extended_attributes(self, files: MemoryDir, place: Path) -> None:
        (place / MEMORY).write_text("old")
        try:
            os.setxattr(place / MEMORY, "user.origin", b"by hand")
        except OSError as error:
            assert error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP)  # noqa: PT017  no such file system
            return
        assert write(files, place, MEMORY, "new")
        assert os.getxattr(place / MEMORY, "user.origin") == b"by hand"

    def test_a_system_without_extended_attributes(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "listxattr")
        (place / MEMORY).write_text("old")
        assert write(files, place, MEMORY, "new")

    def test_a_file_system_that_syncs_no_directory(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.fsync

        def refuse(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Invalid argument")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", refuse)
        assert write(files, place, MEMORY, "new")

    def test_a_reader_never_sees_a_partial_file(
        self, files: MemoryDir, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fsync", lambda _: None)  # what a reader sees does not depend on it
        path = place / MEMORY
        texts = [str(digit) * 20_000 for digit in range(10)]
        path.write_text(texts[0])
        seen: set[str] = set()
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                seen.add(path.read_text())

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1000):
                assert write(files, place, MEMORY, texts[number % 10])
        finally:
            over.set()
            reader.join()
        assert seen <= set(texts)
        assert names(place) == [MEMORY]

    def test_nothing_is_made_outside_of_the_directory(
        self, home: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[str] = []
        real = os.open

        def noted(path: str | Path, flags: int, mode: int = 0o777, **more: int) -> int:
            if flags & os.O_CREAT:
                made.append(os.path.dirname(path))  # noqa: PTH120  a path or a text
            return real(path, flags, mode, **more)

        monkeypatch.setenv("TMPDIR", str(home / "nowhere"))
        monkeypatch.setattr(os, "open", noted)
        files = MemoryFiles(home)
        assert write(files, place, MEMORY, "x")
        files.back_up(place, b"x")
        files.keep_failed_reply(place, "x")
        assert made == [str(place)] * 3


class TestLinks:
    def test_a_linked_file_is_written_where_it_is(
        self, files: MemoryDir, home: Path, place: Path
    ) -> None:
        vault = home / "vault"
        vault.mkdir()
        (vault / "note.md").write_text("old")
        (vault / "note.md").chmod(0o640)
        (place / MEMORY).symlink_to(vault / "note.md")
        assert write(files, place, MEMORY, "new")
        assert (place / MEMORY).is_symlink()
        assert (vault / "note.md").read_text() == "new"
        assert mode(vault / "note.md") == 0o640
        assert names(vault) == ["note.md"]
        assert names(place) == [MEMORY]

    def test_its_staged_text_lies_beside_the_target(
        self, files: MemoryDir, home: Path, place: Path
    ) -> None:
        vault = home / "vault"
        vault.mkdir()
        (vault / "note.md").write_text("old")
        (place / MEMORY).symlink_to("../../vault/note.md")
        found = files.read_file(place, MEMORY)
        assert found is not None
        (staged,) = files.stage(place, [FileWrite(MEMORY, b"new", found.digest)], "r1")
        assert names(vault) == [staged.temporary, "note.md"]
        files.sweep(place, frozenset({staged.temporary}))
        assert files.staged_exists(place, staged)
        files.sweep(place, frozenset())
        assert names(vault) == ["note.md"]

    def test_a_linked_directory(self, files: MemoryDir, home: Path) -> None:
        vault = home / "vault"
        vault.mkdir()
        link = home / "memory" / "api"
        link.parent.mkdir()
        link.symlink_to(vault)
        assert write(files, link, MEMORY, "new")
        assert link.is_symlink()
        assert names(vault) == [MEMORY]
        assert files.read(link).memory is not None

    @pytest.mark.parametrize("what", ["file", "directory"])
    def test_a_link_out_of_the_home_is_refused(
        self, files: MemoryDir, home: Path, tmp_path: Path, what: str
    ) -> None:
        outside = tmp_path / "etc"
        outside.mkdir()
        (outside / MEMORY).write_text("secret")
        place = home / "api"
        if what == "directory":
            place.symlink_to(outside)
        else:
            place.mkdir()
            (place / MEMORY).symlink_to(outside / MEMORY)
        told = rf"follow .*api.*: the link leads out of the home directory, to .*{outside}"
        for refused in attempts(files, place):
            with pytest.raises(StorageError, match=told):
                refused()
        assert (outside / MEMORY).read_text() == "secret"
        assert names(outside) == [MEMORY]

    @pytest.mark.parametrize("what", ["file", "directory", "loop"])
    def test_a_link_to_nowhere_is_refused(self, files: MemoryDir, home: Path, what: str) -> None:
        place = home / "api"
        if what == "directory":
            place.symlink_to(home / "nowhere")
        else:
            place.mkdir()
            (place / MEMORY).symlink_to(MEMORY if what == "loop" else home / "nowhere")
        for refused in attempts(files, place):
            with pytest.raises(StorageError, match=r"follow .*api.*: the link leads nowhere"):
                refused()
        assert not (home / "nowhere").exists()

    def test_what_else_is_written_does_not_follow_a_directory_out(
        self, files: MemoryDir, home: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "etc"
        outside.mkdir()
        (home / "api").symlink_to(outside)
        with pytest.raises(StorageError, match="out of the home"):
            files.keep_failed_reply(home / "api", "x")
        with pytest.raises(StorageError, match="out of the home"):
            files.back_up(home / "api", b"x")
        with pytest.raises(StorageError, match="out of the home"):
            files.sweep(home / "api", frozenset())
        assert names(outside) == []

    def test_a_home_that_is_a_link_itself(self, tmp_path: Path, home: Path, place: Path) -> None:
        (tmp_path / "u").symlink_to(home)
        (home / "note.md").write_text("old")
        (place / MEMORY).symlink_to(tmp_path / "u" / "note.md")
        assert write(MemoryFiles(tmp_path / "u"), place, MEMORY, "new")
        assert (home / "note.md").read_text() == "new"


def attempts(files: MemoryDir, place: Path) -> Iterator[Callable[[], object]]:
    """Ways to reach MEMORY.md, each of which has to refuse."""
    yield lambda: files.read(place)
    yield lambda: files.read_file(place, MEMORY)
    yield lambda: files.stage(place, [FileWrite(MEMORY, b"x", None)], "r1")


class TestBackups:
    def test_older_ones_move_aside(self, files: MemoryDir, place: Path) -> None:
        for text in (b"first", b"second", b"third"):
            files.back_up(place, text)
        assert {name: (place / name).read_bytes() for name in names(place)} == {
            "MEMORY.pre-migration.md": b"third",
            "MEMORY.pre-migration-2.md": b"first",
            "MEMORY.pre-migration-3.md": b"second",
        }
        assert mode(place / "MEMORY.pre-migration.md") == 0o600

    def test_the_same_text_is_kept_once(self, files: MemoryDir, place: Path) -> None:
        files.back_up(place, b"first")
        files.back_up(place, b"first")
        assert names(place) == ["MEMORY.pre-migration.md"]

    def test_a_number_that_is_taken_stays_taken(self, files: MemoryDir, place: Path) -> None:
        (place / "MEMORY.pre-migration-7.md").write_text("by hand")
        files.back_up(place, b"first")
        files.back_up(place, b"second")
        assert (place / "MEMORY.pre-migration-7.md").read_text() == "by hand"
        assert (place / "MEMORY.pre-migration-8.md").read_text() == "first"

    def test_a_link_in_its_place_moves_aside(
        self, files: MemoryDir, home: Path, place: Path
    ) -> None:
        (place / "MEMORY.pre-migration.md").symlink_to(home / "nowhere")
        files.back_up(place, b"first")
        assert (place / "MEMORY.pre-migration.md").read_bytes() == b"first"
        assert (place / "MEMORY.pre-migration-2.md").is_symlink()
        assert not (home / "nowhere").exists()

    def test_a_kill_at_any_point_leaves_whole_backups(
        self, place: Path, home: Path, faults: Faults
    ) -> None:
        files = MemoryFiles(home)
        for armed in faults.each():
            for path in place.iterdir():
                path.unlink()
            (place / "MEMORY.pre-migration.md").write_bytes(b"first")
            with suppress(Killed), armed:
                files.back_up(place, b"second")
            files.back_up(place, b"second")
            files.sweep(place, frozenset())
            assert {path.read_bytes() for path in place.iterdir()} == {b"first", b"second"}
            assert (place / "MEMORY.pre-migration.md").read_bytes() == b"second"
        assert len(faults.passed) > 5


class TestFailedReply:
    def test_it_replaces_the_one_before(self, files: MemoryDir, home: Path) -> None:
        place = home / "memory" / "new"
        files.keep_failed_reply(place, "first")
        files.keep_failed_reply(place, "se\ud800cond")
        assert names(place) == ["memory-save.failed-reply.txt"]
        assert (place / "memory-save.failed-reply.txt").read_text() == "se?cond"
        assert mode(place / "memory-save.failed-reply.txt") == 0o600
        assert files.read(place).topics == ()


class TestSweeping:
    def test_only_what_is_ours(self, files: MemoryDir, place: Path) -> None:
        theirs = (".memoryd-notes.md", "x.tmp", MEMORY)
        for name in (*theirs, ".memoryd-r1-0.tmp", ".memoryd-r2-0.tmp", ".memoryd-backup.tmp"):
            (place / name).write_text("x")
        files.sweep(place, frozenset({".memoryd-r2-0.tmp"}))
        assert names(place) == sorted((*theirs, ".memoryd-r2-0.tmp"))

    def test_a_directory_that_is_not_there(self, files: MemoryDir, home: Path) -> None:
        files.sweep(home / "memory" / "none", frozenset())
        assert not (home / "memory" / "none").exists()

    def test_a_link_that_leads_astray_stops_nothing(
        self, files: MemoryDir, place: Path, tmp_path: Path
    ) -> None:
        (place / "a.md").symlink_to(tmp_path)
        (place / ".memoryd-r1-0.tmp").write_text("x")
        files.sweep(place, frozenset())
        assert names(place) == ["a.md"]


FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_whatever_fails_is_told_and_leaves_whole_files(
    home: Path, place: Path, faults: Faults, error: OSError
) -> None:
    files = MemoryFiles(home)
    for armed in faults.each(lambda: OSError(*error.args)):
        for path in place.iterdir():
            path.unlink()
        (place / MEMORY).write_text("old memory")
        (place / "db.md").write_text("old topic")
        told = ""
        try:
            with armed:
                unit(files, place)
        except StorageError as fault:
            told = str(fault)
        assert not told or (told.startswith("cannot ") and told.endswith(f": {error.strerror}"))
        assert not told or str(home) in told
        assert (place / MEMORY).read_text() in ("old memory", "new memory")
        assert (place / "db.md").read_text() in ("old topic", "new topic")
    assert names(place) == [MEMORY, "db.md"]
    assert len(faults.passed) > 20


def unit(files: MemoryDir, place: Path) -> None:
    """What a save does with two files; as much is taken back as can be where it fails."""
    state = files.read(place)
    topic = files.read_file(place, "db.md")
    assert state.memory is not None
    assert topic is not None
    writes = [
        FileWrite("db.md", b"new topic", topic.digest),
        FileWrite(MEMORY, b"new memory", state.memory.digest),
    ]
    for staged in files.stage(place, writes, "r1"):
        assert files.staged_exists(place, staged)
        assert files.publish(place, staged)


def test_a_stage_that_fails_leaves_nothing(home: Path, place: Path, faults: Faults) -> None:
    files = MemoryFiles(home)
    writes = [FileWrite("db.md", b"topic", None), FileWrite(MEMORY, b"memory", None)]
    for armed in faults.each(lambda: OSError(*FULL.args)):
        try:
            with armed:
                staged = files.stage(place, writes, "r1")
        except StorageError:
            assert names(place) == []
        else:
            for file in staged:
                files.discard(place, file)
    assert len(faults.passed) > 8
