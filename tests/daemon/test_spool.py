from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from wire import event, request

from memoryd.daemon import spool as spool_module
from memoryd.daemon.dispatch import Dispatcher
from memoryd.daemon.spool import Drained, Spool
from memoryd.errors import RequestError, StorageError, UnsafePathError, UnwrittenError
from memoryd.protocol import Done, GetVersion, Message, Shutdown, TurnEnded

if TYPE_CHECKING:
    from memoryd.daemon.caller import Caller
    from memoryd.daemon.dispatch import Handler

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Desk:
    """A handler that keeps what it got and fails where a test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool"
        self.folder.mkdir(mode=0o700)
        self.got: list[str] = []
        self.failing: list[Exception] = []
        self.caller: Caller | None = None
        handlers: dict[type[Message], Handler] = {
            TurnEnded: self.turn_ended,
            Shutdown: self.refuse,
            GetVersion: self.refuse,
        }
        self.spool = Spool(self.folder, Dispatcher(handlers))

    async def turn_ended(self, message: TurnEnded, caller: Caller) -> None:
        self.caller = caller
        if self.failing:
            raise self.failing.pop()
        self.got.append(message.session_id)

    async def refuse(self, _message: Message, _caller: Caller) -> Done:
        raise AssertionError("must not be reached")

    def leave(self, number: int, data: bytes | None = None) -> str:
        """As a shim does; returns the file's name."""
        name = f"{number:020}-{number:032x}.http"
        (self.folder / f"{name}.tmp").write_bytes(data or event(session=f"s{number}"))
        (self.folder / f"{name}.tmp").rename(self.folder / name)
        return name

    def there(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())

    def refused(self) -> list[str]:
        return sorted(each.name for each in (self.folder / "refused").iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_events_are_handled_oldest_first_and_then_gone(desk: Desk) -> None:
    for number in (5, 3, 40, 1):
        desk.leave(number)
    assert desk.spool.waiting() == 4
    assert await desk.spool.drain() == Drained(4)
    assert desk.got == ["s1", "s3", "s5", "s40"]
    assert desk.there() == []
    assert desk.spool.waiting() == 0
    assert await desk.spool.drain() == Drained()


async def test_a_handler_knows_that_nobody_waits(desk: Desk) -> None:
    desk.leave(
        1, request("/v1/turn_ended", {"session_id": "s"}, headers={"memoryd-event": "ab" * 16})
    )
    await desk.spool.drain()
    assert desk.caller is not None
    assert desk.caller.spooled
    assert desk.caller.shim.event == "ab" * 16
    assert desk.caller.peer.uid == os.geteuid()
    await desk.caller.gone()


async def test_a_file_stays_until_its_handler_is_done(desk: Desk) -> None:
    name = desk.leave(1)
    desk.failing = [StorageError("/p", "write", "disk full")]
    desk.leave(2)
    assert await desk.spool.drain() == Drained(0, (), more=True)
    assert desk.there()[0] == name
    assert await desk.spool.drain() == Drained(2)
    assert desk.got == ["s1", "s2"]


async def test_an_event_that_always_fails_gives_way_in_the_end(desk: Desk) -> None:
    name = desk.leave(1)
    desk.leave(2)
    desk.failing = [ValueError()] * 3
    assert await desk.spool.drain() == Drained(more=True)
    assert await desk.spool.drain() == Drained(more=True)
    assert await desk.spool.drain() == Drained(1, (name,))
    assert desk.got == ["s2"]
    assert desk.refused() == [name]


@pytest.mark.parametrize(
    "data",
    [
        b"rubbish\r\n\r\n",
        event()[:-1],
        event()[:40],
        b"\0" * 100,
        request("/v1/turn_ended", b"[]"),
        request("/v1/shutdown", b"{}"),
        request("/v1/version", method="GET"),
        request("/v2/turn_ended", {"session_id": "s"}),
        request("/v1/nothing", b"{}"),
        b"x" * (spool_module.FILE_LIMIT + 1),
    ],
)
async def test_what_is_no_whole_event_is_put_aside(
    desk: Desk, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bad = desk.leave(1, data)
    desk.leave(2)
    assert await desk.spool.drain() == Drained(1, (bad,))
    assert desk.got == ["s2"]
    assert desk.refused() == [bad]
    assert bad in caplog.text
    assert await desk.spool.drain() == Drained()


async def test_an_empty_file_is_put_aside(desk: Desk) -> None:
    name = desk.leave(1)
    (desk.folder / name).write_bytes(b"")
    assert await desk.spool.drain() == Drained(0, (name,))


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "socket"])
async def test_only_regular_files_of_ours_are_read(desk: Desk, kind: str, tmp_path: Path) -> None:
    name = desk.leave(1)
    place_something_else(desk.folder, name, kind, tmp_path)
    assert await desk.spool.drain() == Drained(0, (name,))
    assert not desk.got
    assert (tmp_path / "elsewhere").read_bytes() == event()


def place_something_else(folder: Path, name: str, kind: str, tmp_path: Path) -> None:
    file = folder / name
    file.unlink()
    (tmp_path / "elsewhere").write_bytes(event())
    match kind:
        case "link":
            file.symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case _:
            os.mknod(file, stat.S_IFSOCK | 0o600)


async def test_a_file_of_another_uid_is_put_aside(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = desk.leave(1)
    found = os.stat_result((0o100600, 1, 1, 1, os.geteuid() + 1, 0, 10, 0, 0, 0))
    assert "belongs to uid" in spool_module._fault(found)
    monkeypatch.setattr(spool_module, "_fault", lambda _: "belongs to uid 7")
    assert await desk.spool.drain() == Drained(0, (name,))


async def test_other_names_are_left_alone(desk: Desk) -> None:
    for name in ("notes.txt", "1-ab.http", f"{1:020}-{'a' * 32}.http.part", ".hidden"):
        (desk.folder / name).write_bytes(event())
    before = desk.there()
    assert await desk.spool.drain() == Drained()
    assert desk.there() == before


async def test_an_unfinished_file_goes_after_a_while(desk: Desk) -> None:
    for name, age in (("young.http.tmp", 0.0), ("old.http.tmp", spool_module.TORN_AFTER + 60)):
        (desk.folder / name).write_bytes(b"")
        os.utime(desk.folder / name, (time.time() - age,) * 2)
    await desk.spool.drain()
    assert desk.there() == ["young.http.tmp"]


async def test_a_call_handles_so_many_and_says_that_more_are_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "PASS_LIMIT", 3)
    for number in range(1, 6):
        desk.leave(number)
    assert await desk.spool.drain() == Drained(3, (), more=True)
    assert await desk.spool.drain() == Drained(2)
    assert desk.got == [f"s{number}" for number in range(1, 6)]


async def test_few_of_the_files_put_aside_are_kept(desk: Desk) -> None:
    names = [desk.leave(number, b"rubbish\r\n\r\n") for number in range(1, 31)]
    await desk.spool.drain()
    assert desk.refused() == names[-spool_module.KEPT :]


async def test_a_spool_that_others_can_write_to_is_not_read(desk: Desk) -> None:
    desk.leave(1)
    desk.folder.chmod(0o777)
    with pytest.raises(UnsafePathError):
        await desk.spool.drain()
    assert not desk.got


async def test_an_empty_folder_is_looked_at_without_a_thread_until_it_changes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(desk.folder, (time.time() - 60,) * 2)
    assert await desk.spool.drain() == Drained()
    with monkeypatch.context() as patched:
        patched.setattr(Spool, "_oldest", None)
        assert await desk.spool.drain() == Drained()
    desk.leave(1)
    assert await desk.spool.drain() == Drained(1)


async def test_a_folder_that_changed_just_now_is_read_again(desk: Desk) -> None:
    desk.leave(1)
    assert await desk.spool.drain() == Drained(1)
    before = desk.folder.stat()
    assert await desk.spool.drain() == Drained()
    desk.leave(2)
    os.utime(desk.folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await desk.spool.drain() == Drained(1)


async def test_no_spool_is_an_empty_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "none", Dispatcher({}))
    for _ in range(2):
        assert await spool.drain() == Drained()
    assert spool.waiting() == 0


@pytest.mark.parametrize(
    ("call", "fails_on"), [("unlink", event()), ("replace", b"rubbish\r\n\r\n")]
)
async def test_a_spool_that_cant_be_changed_is_told(
    desk: Desk, call: str, fails_on: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    desk.leave(1, fails_on)
    monkeypatch.setattr(Path, call, full)
    with pytest.raises(StorageError, match="Read-only"):
        await desk.spool.drain()


async def test_a_refusal_of_the_handler_is_final(desk: Desk) -> None:
    name = desk.leave(1)
    desk.failing = [RequestError(409, "x", "y", "z")]
    assert await desk.spool.drain() == Drained(0, (name,))


async def test_an_event_that_the_ledger_has_no_room_for_stays_however_often(desk: Desk) -> None:
    name = desk.leave(1)
    full = UnwrittenError(Path("/s/ledger.sqlite3"), "write", "database or disk is full")
    desk.failing = [full] * 5
    for _ in range(5):
        with pytest.raises(UnwrittenError):
            await desk.spool.drain()
    assert desk.there() == [name]
    assert await desk.spool.drain() == Drained(1)
    assert desk.got == ["s1"]
