from __future__ import annotations

import math
import os
import shutil
import sqlite3
import stat
import zlib
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import ledgers
import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memoryd.adapters import ledger_file, ledger_schema
from memoryd.adapters.ledger import Ledger
from memoryd.adapters.ledger_prune import used
from memoryd.adapters.ledger_rows import TransactionLostError
from memoryd.core.project import Identity, Place
from memoryd.errors import LedgerError, NewerLedgerError, StorageError, UnsafePathError
from memoryd.ports import CANCELLED, FileVersion, Notices
from memoryd.protocol import OpRecord, RunState, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memoryd import ports

RELEASED = sorted((Path(__file__).parent.parent / "fixtures" / "ledgers").glob("*.sql"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite3"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path).ledger as opened:
        yield opened


def of_port(ledger: Ledger) -> ports.Ledger:
    return ledger


# ── what is kept ───────────────────────────────────────────────────────────────────────────────────


def test_an_event_is_seen_once(ledger: Ledger) -> None:
    assert [ledger.first_seen("e1", 1.0), ledger.first_seen("e2", 1.0)] == [True, True]
    assert [ledger.first_seen("e1", 2.0), ledger.first_seen("e2", 0.5)] == [False, False]


def test_sessions(ledger: Ledger) -> None:
    assert ledger.session("s1") is None
    first = ledgers.session("s1", turn={"running": True, "prompt": "é"}, pid=7, seen_at=1.5)
    for row in (first, ledgers.session("s2"), ledgers.session("s3", ended=True)):
        ledger.put_session(row)
    assert ledger.session("s1") == first
    assert [row.id for row in ledger.sessions(ended=False)] == ["s1", "s2"]
    ledger.put_session(msgspec.structs.replace(first, ended=True))
    assert [row.id for row in ledger.sessions(ended=True)] == ["s1", "s3"]


def test_identities_keep_the_order_in_which_they_were_seen(ledger: Ledger) -> None:
    place = Place("/w/api/.git", 9, 2**63 - 1, 1_700_000_000_000_000_000)
    one = Identity("id1", "api", "api", "repository", "/w/api", place, "host/api")
    two = Identity("id0", "café-1", "café", "plain", "/w/café", Place("/w/café"), pinned=True)
    for identity in (one, two):
        ledger.put_identity(identity)
    one = Identity("id1", "api", "api", "repository", "/x/api", place, joined_from="/w/y")
    ledger.put_identity(one)
    assert ledger.identities() == [one, two]


def test_owed_turns_keep_their_place(ledger: Ledger) -> None:
    for name in ("s1", "s2", "s3"):
        ledger.put_owed(ledgers.owed(name, last_answer="fine", not_before=2.5, parked="network"))
    again = ledgers.owed("s1", asked=2, run="r9")
    ledger.put_owed(again)
    assert [owed.session for owed in ledger.owed()] == ["s1", "s2", "s3"]
    assert ledger.owed_by("s1") == again
    assert ledger.owed_by("s9") is None


def test_a_turn_that_asked_again_stays_owed(ledger: Ledger) -> None:
    ledger.put_owed(ledgers.owed(asked=1))
    ledger.put_owed(ledgers.owed(asked=2))
    assert not ledger.settle("s1", 1)
    assert ledger.owed_by("s1") == ledgers.owed(asked=2)
    assert ledger.settle("s1", 2)
    assert not ledger.settle("s1", 2)
    assert ledger.owed() == []


def test_a_run_with_its_ops(ledger: Ledger) -> None:
    usage = Usage(input=1, cache_read=2, cache_write=3, output=4)
    record = ledgers.run(state="done", usage=usage, topics=["db.md"], retired=1, merged=True)
    ops = [
        OpRecord(kind="add", section="Active Warnings", text="- é", because="why"),
        OpRecord(kind="remove", line="- old", outcome="skipped", reason="not in the file"),
    ]
    ledger.put_run(record)
    ledger.put_ops("r1", ops)
    assert ledger.run("r1") == msgspec.structs.replace(record, ops=ops)
    assert ledger.runs("api", limit=9, skipped=True) == [record]
    ledger.put_ops("r1", ops[1:])
    ledger.put_run(record)
    found = ledger.run("r1")
    assert found is not None
    assert found.ops == ops[1:]


def test_a_run_is_found_by_a_start_that_no_other_has(ledger: Ledger) -> None:
    for name in ("abc1", "abd2", "ab%"):
        ledger.put_run(ledgers.run(name))
    found = {start: ledger.run(start) for start in ("abc", "abc1", "ab", "", "x", "ab%", "_bc")}
    assert {start: record.id for start, record in found.items() if record} == {
        "abc": "abc1", "abc1": "abc1", "ab%": "ab%",
    }  # fmt: skip


def test_runs_come_newest_first(ledger: Ledger) -> None:
    states: list[RunState] = ["done", "skipped", "fork"]
    for number, state in enumerate(states):
        ledger.put_run(ledgers.run(f"r{number}", state=state, started_at=-float(number)))
    ledger.put_run(ledgers.run("other", project="web"))
    ledger.put_run(ledgers.run("r0", state="failed"))

    def ids(project: str, limit: int = 9, *, skipped: bool = True) -> list[str]:
        return [record.id for record in ledger.runs(project, limit=limit, skipped=skipped)]

    assert ids("api") == ["r2", "r1", "r0"]
    assert ids("api", skipped=False) == ["r2", "r0"]
    assert ids("api", limit=1) == ["r2"]
    assert ids("") == ["other", "r2", "r1", "r0"]
    assert [record.id for record in ledger.unfinished_runs()] == ["r2", "other"]


def test_a_reply_is_kept_until_it_has_no_use(ledger: Ledger) -> None:
    ledger.put_run(ledgers.run(state="read"))
    ledger.put_reply("r1", "{}")
    ledger.put_reply("r1", '{"ops":[]}')
    for state in ("apply", "failed", "held"):
        ledger.put_run(ledgers.run(state=state))
        assert ledger.reply("r1") == '{"ops":[]}'
    ledger.put_run(ledgers.run(state="done"))
    assert ledger.reply("r1") is None


@pytest.mark.parametrize("data", [b"", b"# api\n", b"\xff\0" * 40_000])
def test_a_version_comes_back_byte_for_byte(ledger: Ledger, data: bytes) -> None:
    digest = ledger.put_version(data)
    assert digest == sha256(data).hexdigest()
    assert ledger.put_version(data) == digest
    assert ledger.version(digest) == data
    assert ledger.version("0" * 64) is None


def test_a_damaged_version_is_never_given_out(ledger: Ledger) -> None:
    digest = ledger.put_version(b"text")
    for blob in (b"rubbish", zlib.compress(b"another text")):
        ledger._execute("UPDATE versions SET data = ?", (blob,))
        with pytest.raises(LedgerError, match="is damaged"):
            ledger.version(digest)


def test_file_versions(ledger: Ledger) -> None:
    ledger.put_run(ledgers.run())
    ledger.put_file_version("r1", "db.md", "", "a")
    ledger.put_file_version("r1", "MEMORY.md", "b", "c")
    ledger.put_file_version("r1", "MEMORY.md", "b", "d")
    assert ledger.file_versions("r1") == [
        FileVersion(name="MEMORY.md", before="b", after="d"),
        FileVersion(name="db.md", before="", after="a"),
    ]


def test_intents(ledger: Ledger) -> None:
    ledger.put_run(ledgers.run())
    intent = ledgers.intent(ledgers.run(state="commit", ops=[OpRecord(kind="add")]))
    ledger.put_intent(intent)
    assert (ledger.intents(), ledger.intent("r1")) == ([intent], intent)
    rest = msgspec.structs.replace(intent, files=[], published=intent.files)
    ledger.put_intent(rest)
    assert ledger.intents() == [rest]
    ledger.close_intent("r1")
    ledger.close_intent("r1")
    assert (ledger.intents(), ledger.intent("r1")) == ([], None)


def test_notices_events_pauses_and_switches(ledger: Ledger) -> None:
    assert ledger.notices("api") == Notices()
    for notices in (Notices(skipped=["- a"]), Notices(refused=["too long"])):
        ledger.put_notices("api", notices)
    assert (ledger.notices("api"), ledger.notices("web")) == (
        Notices(refused=["too long"]), Notices(),
    )  # fmt: skip
    assert ledger.last_event("api") is None
    ledger.add_event("api", "r1", 9.0, "first")
    ledger.add_event("api", "", 1.0, "last")
    ledger.add_event("web", "", 2.0, "other")
    assert ledger.last_event("api") == (1.0, "last")
    ledger.put_pause("", math.inf)
    for until in (5.0, 7.5):
        ledger.put_pause("api", until)
    assert ledger.pauses() == {"": math.inf, "api": 7.5}
    ledger.put_pause("", 0.0)
    assert ledger.pauses() == {"api": 7.5}
    for name in ("web", "api", "web"):
        ledger.switch_project(name, off=True)
    assert ledger.switched_off() == ["api", "web"]
    ledger.switch_project("web", off=False)
    assert ledger.switched_off() == ["api"]


def test_a_row_of_failures_ends_with_a_run_that_did_not_fail(ledger: Ledger) -> None:
    def end(name: str, state: RunState, at: float, failure: str = "") -> None:
        ledger.put_run(ledgers.run(name, state="fork"))
        ledger.put_run(ledgers.run(name, state=state, ended_at=at, failure=failure))

    assert ledger.failures("api") == (0, 0.0, "")
    end("r1", "failed", 10.0, "529 (overloaded)")
    end("r2", "skipped", 20.0)
    # the clock went back
    end("r3", "failed", 5.0, "no response")
    ledger.put_run(ledgers.run("r1", state="failed", ended_at=10.0, failure="529 (overloaded)"))
    ledger.put_run(ledgers.run("x", project="web", state="done"))
    ledger.put_run(ledgers.run("r4", state="fork"))
    assert ledger.failures("api") == (2, 10.0, "no response")
    for state in ("done", "no_change", "held"):
        end(f"r-{state}", state, 6.0)
        assert ledger.failures("api") == (0, 0.0, "")
        end(f"f-{state}", "failed", 7.0, "again")
        assert ledger.failures("api") == (1, 7.0, "again")
    # a person's own wish is no failure, and no success either
    end("r5", "failed", 7.5, CANCELLED)
    assert ledger.failures("api") == (1, 7.0, "again")
    # a run that failed and was then taken up again
    end("f-held", "done", 8.0)
    assert ledger.failures("api") == (0, 0.0, "")


def test_counts_since_a_time(ledger: Ledger) -> None:
    for number, project in enumerate(("api", "api", "web")):
        usage = Usage(input=1, cache_read=10, cache_write=100, output=1000 * number)
        ledger.put_run(
            ledgers.run(
                str(number),
                project=project,
                started_at=float(number),
                usage=usage,
                backend="claude",
            )
        )
        ledger.count_start(project, float(number))
    assert ledger.usage_since("api", 1.0) == Usage(
        input=1, cache_read=10, cache_write=100, output=1000
    )
    assert ledger.usage_since("", 0.0).output == 3000
    assert ledger.usage_since("none", 0.0) == Usage()
    assert [ledger.starts_since("api", at) for at in (0.0, 1.0, 2.0)] == [2, 1, 0]
    assert [ledger.forks_since("claude", at) for at in (0.0, 2.0, 3.0)] == [3, 1, 0]
    assert ledger.forks_since("digest", 0.0) == 0


def test_a_lone_surrogate_does_not_lose_a_turn(ledger: Ledger) -> None:
    ledger.put_owed(ledgers.owed(last_answer="a\ud800b"))
    ledger.put_run(ledgers.run(failure="\udc80", topics=["\ud800.md"]))
    ledger.put_reply("r1", "x\udfff")
    ledger.add_event("api", "r1", 1.0, "y\udfff")
    kept = ledger.owed_by("s1")
    assert kept is not None
    assert kept.last_answer == "a?b"
    assert ledger.reply("r1") == "x?"


def test_what_belongs_to_no_run_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="FOREIGN KEY"):
        ledger.put_reply("none", "{}")
    with pytest.raises(LedgerError, match="FOREIGN KEY"):
        ledger.put_intent(ledgers.intent(ledgers.run("none")))


def test_a_row_of_another_shape_is_an_error_of_the_ledger(ledger: Ledger) -> None:
    ledger.put_owed(ledgers.owed())
    ledger._execute("""UPDATE owed SET body = '{"asked":"many"}'""")
    with pytest.raises(LedgerError, match="a Owed can't be read"):
        ledger.owed()


def test_deleted_text_is_overwritten(ledger: Ledger, path: Path) -> None:
    ledger.put_owed(ledgers.owed(last_answer="ANSWER" * 2000))
    ledger.settle("s1", 1)
    ledger.close()
    assert b"ANSWER" not in path.read_bytes()


# ── transactions ───────────────────────────────────────────────────────────────────────────────────


def interrupted(ledger: Ledger, *works: Callable[[], object]) -> None:
    with ledger.transaction():
        for work in works:
            work()
        raise ZeroDivisionError


def test_a_transaction_keeps_all_or_nothing(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError):
        interrupted(ledger, lambda: ledger.put_owed(ledgers.owed()))
    assert ledger.owed() == []
    with ledger.transaction():
        ledger.put_owed(ledgers.owed())
    assert len(ledger.owed()) == 1


def test_a_work_that_fails_takes_back_its_own_changes_only(ledger: Ledger) -> None:
    def fails(inner: Ledger) -> None:
        inner.put_owed(ledgers.owed("s2"))
        raise ZeroDivisionError

    with ledger.transaction():
        ledger.isolated(lambda inner: inner.put_owed(ledgers.owed("s1")))
        with pytest.raises(ZeroDivisionError):
            ledger.isolated(fails)
        assert ledger.isolated(lambda inner: len(inner.owed())) == 1
    assert [owed.session for owed in ledger.owed()] == ["s1"]


def test_a_full_disk_is_a_storage_error_and_loses_nothing(ledger: Ledger) -> None:
    ledger.put_owed(ledgers.owed())
    (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill(inner: Ledger) -> None:
        inner.put_version(os.urandom(100_000))

    with pytest.raises(StorageError, match=r"cannot write .*full"):
        interrupted(ledger, lambda: ledger.isolated(fill))
    ledger._connection.execute("PRAGMA max_page_count = 100000")
    with ledger.transaction():
        ledger.isolated(fill)
    assert len(ledger.owed()) == 1


def test_a_transaction_that_is_lost_as_a_whole_says_so(ledger: Ledger) -> None:
    def lose(inner: Ledger) -> None:
        inner._connection.execute("ROLLBACK")
        raise StorageError("x", "write", "disk I/O error")

    with ledger.transaction():
        ledger.isolated(lambda inner: inner.put_owed(ledgers.owed("s0")))
    works = (lambda: ledger.put_owed(ledgers.owed()), lambda: ledger.isolated(lose))
    with pytest.raises(TransactionLostError):
        interrupted(ledger, *works)
    assert [owed.session for owed in ledger.owed()] == ["s0"]


def test_the_log_is_moved_into_the_database(ledger: Ledger, path: Path) -> None:
    log = ledger_file.companion(path, "-wal")
    ledger.put_owed(ledgers.owed())
    ledger.tidy()
    assert log.stat().st_size > 0
    for _ in range(30):
        ledger.put_version(os.urandom(100_000))
    assert log.stat().st_size > 2 * 1024 * 1024
    ledger.tidy()
    assert log.stat().st_size == 0
    assert used(ledger._connection) > 3_000_000


# ── the file ───────────────────────────────────────────────────────────────────────────────────────


def test_the_files_are_for_their_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        with Ledger.open(path).ledger as ledger:
            ledger.put_owed(ledgers.owed())
            files = sorted(path.parent.iterdir())
            assert [file.name for file in files] == [
                "ledger.sqlite3", "ledger.sqlite3-shm", "ledger.sqlite3-wal",
            ]  # fmt: skip
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_modes_that_were_widened_are_mended(path: Path) -> None:
    with Ledger.open(path).ledger as ledger:
        ledger.put_owed(ledgers.owed())
        copy = ledgers.killed(ledger.path, path.parent.parent / "copy")
    for file in copy.parent.iterdir():
        file.chmod(0o644)
    with Ledger.open(copy).ledger:
        assert {stat.S_IMODE(file.stat().st_mode) for file in copy.parent.iterdir()} == {0o600}


def test_an_open_directory_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o755)  # whatever the umask of the tests is
    with pytest.raises(UnsafePathError):
        Ledger.open(path)


def test_a_link_and_a_directory_in_its_place_are_refused(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot open"):
        Ledger.open(path)
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match="cannot open"):
        Ledger.open(path)


def test_it_is_durable_and_clean_after_a_close(path: Path) -> None:
    with Ledger.open(path).ledger as ledger:
        settings = {
            name: ledger._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }
        assert settings == {
            "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1,
        }  # fmt: skip
        ledger.put_owed(ledgers.owed())
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    opened = Ledger.open(path)
    with opened.ledger as ledger:
        assert (len(ledger.owed()), opened.moved_aside) == (1, None)


def test_what_was_committed_survives_a_kill(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    ledger.put_owed(ledgers.owed())
    with pytest.raises(ZeroDivisionError):
        interrupted(
            ledger,
            lambda: ledger.put_owed(ledgers.owed("s2")),
            lambda: ledgers.killed(path, tmp_path / "copy"),
        )
    opened = Ledger.open(tmp_path / "copy" / path.name)
    with opened.ledger as found:
        assert ([owed.session for owed in found.owed()], opened.moved_aside) == (["s1"], None)


# ── versions of the schema ─────────────────────────────────────────────────────────────────────────


def contents(directory: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in directory.iterdir()
        if not file.name.endswith("-shm")
    }


def make_newer(ledger: Ledger) -> None:
    ledger._connection.execute("CREATE TABLE future (x)")
    ledger._connection.execute("PRAGMA user_version = 99")


def test_a_newer_ledger_is_refused_untouched(path: Path) -> None:
    with Ledger.open(path).ledger as ledger:
        make_newer(ledger)
    before = contents(path.parent)
    with pytest.raises(NewerLedgerError) as caught:
        Ledger.open(path)
    assert (caught.value.found, caught.value.known) == (99, len(ledger_schema.MIGRATIONS))
    assert contents(path.parent) == before


def test_a_newer_ledger_is_known_by_its_log_too(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    make_newer(ledger)
    copy = ledgers.killed(path, tmp_path / "copy")
    assert copy.read_bytes()[ledger_file.VERSION_FIELD] != (99).to_bytes(4, "big")
    before = contents(copy.parent)
    with pytest.raises(NewerLedgerError):
        Ledger.open(copy)
    assert contents(copy.parent) == before


def test_the_header_says_the_version_once_the_ledger_is_made(ledger: Ledger, path: Path) -> None:
    version = len(ledger_schema.MIGRATIONS).to_bytes(4, "big")
    assert path.read_bytes()[ledger_file.VERSION_FIELD] == version
    assert of_port(ledger).owed() == []


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_every_released_ledger_loads(dump: Path, path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    opened = Ledger.open(path)
    with opened.ledger as ledger:
        assert opened.moved_aside is None
        assert ledger.first_seen("e1", 1.0) is False
        assert [identity.name for identity in ledger.identities()] == ["api", "api"]
        assert [row.id for row in ledger.sessions(ended=False)] == ["s1"]
        assert [(owed.session, owed.asked) for owed in ledger.owed()] == [("s1", 3)]
        done, waiting = ledger.run("r1"), ledger.run("r2")
        assert done is not None
        assert waiting is not None
        assert (done.state, [op.text for op in done.ops], done.usage.output) == (
            "done", ["- tabs"], 4,
        )  # fmt: skip
        (version,) = ledger.file_versions("r1")
        assert ledger.version(version.after) == b"# api\n- tabs\n"
        assert ledger.reply("r2") == '{"ops":[]}'
        assert [intent.run for intent in ledger.intents()] == ["r2"]
        assert ledger.notices("api") == Notices(skipped=["- x"], refused=["y"])
        assert ledger.last_event("api") == (2.0, "MEMORY.md: created, 1 added")
        assert (ledger.pauses(), ledger.switched_off()) == ({"api": 5.0}, ["web"])
        assert ledger.starts_since("api", 0.0) == 1


def test_there_is_a_released_ledger_of_each_version() -> None:
    assert [dump.stem for dump in RELEASED] == [
        f"v{number}" for number in range(1, len(ledger_schema.MIGRATIONS) + 1)
    ]


def test_a_released_migration_is_never_changed(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    for number, dump in enumerate(RELEASED, 1):
        old, new = (sqlite3.connect(":memory:", isolation_level=None) for _ in range(2))
        old.executescript(dump.read_text())
        ledger_schema.migrate(new, ledger_schema.MIGRATIONS[:number])
        query = (
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 2"
        )
        assert old.execute(query).fetchall() == new.execute(query).fetchall()
        old.close()
        new.close()


def test_migrations_run_in_order_and_each_as_a_whole() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    first, second = ("CREATE TABLE a (x)",), ("ALTER TABLE a ADD y", "INSERT INTO a VALUES (1, 2)")
    assert ledger_schema.migrate(connection, (first,))
    with pytest.raises(sqlite3.OperationalError):
        ledger_schema.migrate(connection, (first, (*second, "nonsense")))
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM a").fetchone() == (0,)
    assert ledger_schema.migrate(connection, (first, second))
    assert not ledger_schema.migrate(connection, (first, second))
    assert connection.execute("SELECT * FROM a").fetchall() == [(1, 2)]
    connection.close()


# ── damage ─────────────────────────────────────────────────────────────────────────────────────────


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def a_few_bytes(path: Path) -> None:
    path.write_bytes(b"SQLite")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_to_nothing_beside_its_log(path: Path) -> None:
    path.write_bytes(b"")
    ledger_file.companion(path, "-wal").write_bytes(b"log")


def zeroed_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(8 * 4096))


def garbage_after_the_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(20 * 4096))


def another_programs(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (x)")
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        a_few_bytes,
        cut,
        cut_to_nothing_beside_its_log,
        zeroed_pages,
        garbage_after_the_header,
        another_programs,
    ],
)
def test_a_damaged_ledger_is_moved_aside_whole(damage: Callable[[Path], None], path: Path) -> None:
    with Ledger.open(path).ledger as ledger:
        ledger.put_owed(ledgers.owed())
        for number in range(30):
            ledger.put_version(str(number).encode() * 4000)
    damage(path)
    before = contents(path.parent)
    opened = Ledger.open(path)
    with opened.ledger as ledger:
        assert ledger.owed() == []
        ledger.put_owed(ledgers.owed("s2"))
    aside = opened.moved_aside
    assert aside is not None
    assert aside.name.startswith("ledger.sqlite3.damaged-2")
    for name, data in before.items():
        assert path.with_name(aside.name + name.removeprefix(path.name)).read_bytes() == data
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    garbage(path)
    second = Ledger.open(path)
    second.ledger.close()
    assert second.moved_aside not in (None, aside)


def test_damage_that_shows_later_is_an_error_of_the_ledger(path: Path) -> None:
    with Ledger.open(path).ledger as ledger:
        for number in range(30):
            ledger.put_run(ledgers.run(str(number), failure="x" * 3000))
        ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        ledger._connection.execute("PRAGMA cache_size = 1")
        ledger._connection.execute("PRAGMA shrink_memory")
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(bytes(path.stat().st_size - 4096))
        with pytest.raises(LedgerError, match="a restart moves it aside"):
            ledger.runs("api", limit=99, skipped=True)


# ── retention ──────────────────────────────────────────────────────────────────────────────────────


def save(
    ledger: Ledger, number: int, *, size: int = 100, project: str = "api", retired: int = 0
) -> str:
    """A finished run that wrote MEMORY.md; it ended at `number`."""
    name = f"{project}{number}"
    before = ledger.put_version(f"{project} {number - 1}".encode())
    after = ledger.put_version(f"{project} {number}".encode())
    bulk = ledger.put_version(os.urandom(size))
    ledger.put_run(
        ledgers.run(name, project=project, state="done", ended_at=float(number), retired=retired)
    )
    ledger.put_ops(name, [OpRecord(kind="add")])
    ledger.put_file_version(name, "MEMORY.md", before, after)
    ledger.put_file_version(name, "history.md", "", bulk)
    return name


def kept(ledger: Ledger) -> list[str]:
    return [record.id for record in reversed(ledger.runs("", limit=999, skipped=True))]


def test_old_runs_go_with_their_texts(ledger: Ledger) -> None:
    for number in range(1, 7):
        save(ledger, number)
    ledger.put_run(ledgers.run("waiting", state="fork", ended_at=0.0))
    with ledger.transaction():
        assert ledger.prune(older_than=4.0, max_bytes=10**9) == 3
    assert kept(ledger) == ["api4", "api5", "api6", "waiting"]
    assert ledger.version(sha256(b"api 2").hexdigest()) is None
    assert ledger.version(sha256(b"api 3").hexdigest()) == b"api 3"
    (rows,) = ledger._all("SELECT count(*) FROM ops UNION ALL SELECT 0 LIMIT 1")
    assert rows == (3,)
    assert ledger.file_versions("api1") == []


def test_some_are_never_taken(ledger: Ledger) -> None:
    for number in range(1, 9):
        save(ledger, number, retired=int(number == 2))
    save(ledger, 1, project="web")
    ledger.put_intent(ledgers.intent(ledgers.run("api3")))
    ledger.put_owed(ledgers.owed(run="api4"))
    ledger.put_session(ledgers.session("s1"))
    assert ledger.prune(older_than=1e12, max_bytes=0) == 4
    # retired a rule, has an open intent, is owed, the last that can be undone
    assert kept(ledger) == ["api2", "api3", "api4", "api8", "web1"]
    assert ledger.version(sha256(b"api 1").hexdigest()) == b"api 1"
    assert len(ledger.owed()) == 1
    assert ledger.session("s1") is not None


def test_the_oldest_go_where_there_is_too_little_room(ledger: Ledger, path: Path) -> None:
    with ledger.transaction():
        for number in range(1, 101):
            save(ledger, number, size=20_000)
    limit = 1024 * 1024
    with ledger.transaction():
        assert ledger.prune(older_than=0.0, max_bytes=limit) > 0
    left = kept(ledger)
    assert left == [f"api{number}" for number in range(101 - len(left), 101)]
    assert 15 <= len(left) <= 55
    assert used(ledger._connection) <= limit
    ledger.tidy()
    assert path.stat().st_size <= limit


def test_old_sessions_events_starts_and_ids_go(ledger: Ledger) -> None:
    for number in range(4):
        at = float(number)
        ledger.first_seen(f"e{number}", at)
        ledger.put_session(ledgers.session(f"s{number}", seen_at=at))
        ledger.add_event("api" if number else "web", "", at, str(number))
        ledger.count_start("api", at)
    ledger.put_owed(ledgers.owed("s0"))
    ledger.prune(older_than=2.0, max_bytes=10**9)
    assert [row.id for row in ledger.sessions(ended=False)] == ["s0", "s2", "s3"]
    assert ledger.last_event("web") == (0.0, "0")
    assert ledger.starts_since("api", 0.0) == 2
    assert [ledger.first_seen(f"e{number}", 9.0) for number in (1, 2)] == [True, False]


# ── a machine of turns, saves and kills ────────────────────────────────────────────────────────────


class Turns(RuleBasedStateMachine):
    """Nothing that was committed is lost by a kill or a restart, nothing settled comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(mkdtemp())
        self.lives = 0
        self.ledger = Ledger.open(self.home / "0" / "ledger").ledger
        self.asked: dict[str, int] = {}
        self.ever: dict[str, int] = {}
        self.states: dict[str, RunState] = {}
        self.failed: list[str] = []

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.home)

    @rule(session=st.sampled_from("abc"))
    def turn_ends(self, session: str) -> None:
        number = self.ever.get(session, 0) + 1
        self.asked[session] = self.ever[session] = number
        with self.ledger.transaction():
            assert self.ledger.first_seen(f"{session}{number}", 0.0)
            self.ledger.put_owed(ledgers.owed(session, asked=number))

    @rule(session=st.sampled_from("abc"), behind=st.integers(0, 2))
    def save_ends(self, session: str, behind: int) -> None:
        taken = self.ever.get(session, 0) - behind
        gone = self.asked.get(session) == taken
        assert self.ledger.settle(session, taken) == gone
        if gone:
            del self.asked[session]

    @rule(
        state=st.sampled_from(["fork", "done", "failed", "no_change", "skipped"]),
        back=st.integers(0, 2),
    )
    def run_enters(self, state: RunState, back: int) -> None:
        names = list(self.states)
        name = names[-back] if 0 < back <= len(names) else f"r{len(names)}"
        if self.states.get(name) in ("done", "no_change", "skipped"):
            return
        with self.ledger.transaction():
            self.ledger.put_run(ledgers.run(name, state=state, failure=name))
        if self.states.get(name) != state and name in self.failed:
            self.failed.remove(name)
        if state == "failed" and self.states.get(name) != "failed":
            self.failed.append(name)
        if state in ("done", "no_change"):
            self.failed.clear()
        self.states[name] = state

    @rule()
    def killed(self) -> None:
        self.lives += 1
        to = self.home / str(self.lives)
        with pytest.raises(ZeroDivisionError):
            interrupted(
                self.ledger,
                lambda: self.ledger.put_owed(ledgers.owed("lost")),
                lambda: ledgers.killed(self.ledger.path, to),
            )
        self.ledger.close()
        self.open(to / self.ledger.path.name)

    @rule()
    def restarted(self) -> None:
        self.ledger.close()
        self.open(self.ledger.path)

    @rule()
    def pruned(self) -> None:
        self.ledger.prune(older_than=0.0, max_bytes=10**9)

    def open(self, path: Path) -> None:
        opened = Ledger.open(path)
        assert opened.moved_aside is None
        self.ledger = opened.ledger

    @invariant()
    def all_is_there(self) -> None:
        assert {owed.session: owed.asked for owed in self.ledger.owed()} == self.asked
        runs = self.ledger.runs("api", limit=999, skipped=True)
        assert [run.id for run in reversed(runs)] == list(self.states)
        assert {run.id: run.state for run in runs} == self.states
        count, _, cause = self.ledger.failures("api")
        assert (count, cause) == (len(self.failed), self.failed[-1] if self.failed else "")
        seen = [f"{session}{number}" for session, number in self.ever.items()]
        assert not any(self.ledger.first_seen(event, 0.0) for event in seen)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)
