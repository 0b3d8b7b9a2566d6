"""Opening the ledger's file.

Owns its modes, its settings, and what happens to a file that can't be used: a newer one is refused
untouched, a damaged one is moved aside whole. It must not know what the tables hold.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from memoryd.adapters.ledger_schema import APPLICATION_ID, MIGRATIONS, migrate
from memoryd.errors import (
    LedgerError,
    MemorydError,
    NewerLedgerError,
    StorageError,
    UnwrittenError,
)
from memoryd.paths import require_private_dir

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
VERSION_FIELD = slice(60, 64)
"""Where the header holds `user_version`, big-endian."""

COMPANIONS = ("-wal", "-shm", "-journal")
"""Files beside the database; the log holds commits that the database does not."""

BUSY_SECONDS = 5.0
CACHE_KIB = 512
"""Pages kept in memory; the default is four times that, in a daemon that mostly idles."""

LOG_LIMIT = 4 * 1024 * 1024
"""Bytes that the log keeps on disk after its content went into the database."""

SETTINGS = (
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # macOS: an fsync alone leaves the data in the drive's cache.
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    # What is deleted is overwritten: an owed turn holds the end of an answer.
    "PRAGMA secure_delete = ON",
    f"PRAGMA cache_size = -{CACHE_KIB}",
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA journal_size_limit = {LOG_LIMIT}",
)


class DamagedError(Exception):
    """The file is no ledger, or no whole one."""


def open_file(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    """A connection to the ledger, made where it is missing, at the last schema version.

    The second value is where a damaged file was moved to; None where the ledger was fine. For one
    thread at a time, transactions are the caller's. Raises NewerLedgerError, LedgerError, StorageError,
    UnsafePathError.
    """
    require_private_dir(path.parent)
    try:
        try:
            return _connected(path), None
        except DamagedError:
            aside = _move_aside(path)
            return _connected(path), aside
    except OSError as error:
        raise StorageError(path, "open", error.strerror or str(error)) from error
    except DamagedError as error:
        raise LedgerError(path, str(error)) from error


def translated(error: sqlite3.Error | MemoryError, path: Path, verb: str) -> MemorydError:
    """What a failed statement means: the disk (UnwrittenError), or the ledger itself (LedgerError)."""
    if isinstance(error, MemoryError):
        return UnwrittenError(path, verb, "out of memory")
    if _is_damage(error):
        return LedgerError(path, f"damaged ({error}); a restart moves it aside")
    if isinstance(error, sqlite3.OperationalError):
        return UnwrittenError(path, verb, str(error))
    return LedgerError(path, str(error))


def companion(path: Path, suffix: str) -> Path:
    """The log or the index beside a database."""
    return path.with_name(path.name + suffix)


def _connected(path: Path) -> sqlite3.Connection:
    _make_private(path)
    connection: sqlite3.Connection | None = None
    try:
        _check(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        for setting in SETTINGS:
            connection.execute(setting).fetchall()
        if migrate(connection):
            # The header then says the version to an older memoryd, too.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, sqlite3.Error):
            raise
        if _is_damage(error):
            raise DamagedError(str(error)) from error
        raise translated(error, path, "open") from error
    return connection


def _make_private(path: Path) -> None:
    """SQLite gives the file's mode to those beside it, and makes it with the umask's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise LedgerError(path, "is no regular file")
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    for suffix in COMPANIONS:
        beside = companion(path, suffix)
        if beside.exists():
            beside.chmod(0o600)


def _check(path: Path) -> None:
    """Whether the file can be used, seen without changing a byte of it or of its log.

    Raises NewerLedgerError, DamagedError, sqlite3.Error.
    """
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    log = companion(path, "-wal")
    if not header and not (log.exists() and log.stat().st_size):
        return
    if not header.startswith(MAGIC):
        raise DamagedError("is no database")
    _refuse_newer(path, int.from_bytes(header[VERSION_FIELD], "big"))
    # A connection that may write moves the log into the database when it closes. A journal, which a
    # file system without shared memory has in place of the log, can't be read without writing.
    mode = "rw" if companion(path, "-journal").exists() else "ro"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)
    try:
        # The last migration of a daemon that was killed may stand in the log only.
        _refuse_newer(path, _asked(connection, "PRAGMA user_version"))
        if _asked(connection, "PRAGMA application_id") != APPLICATION_ID:
            raise DamagedError("is another program's database")
        if (verdict := _asked(connection, "PRAGMA quick_check(1)")) != "ok":
            raise DamagedError(str(verdict))
    finally:
        connection.close()


def _asked(connection: sqlite3.Connection, question: str) -> object:
    (answer,) = connection.execute(question).fetchone()
    return answer


def _refuse_newer(path: Path, version: object) -> None:
    if isinstance(version, int) and version > len(MIGRATIONS):
        raise NewerLedgerError(path, version, len(MIGRATIONS))


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _move_aside(path: Path) -> Path:
    """Rename a ledger and the files beside it; a log must not be left to the next database."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (f"{path.name}.damaged-{stamp}{f'-{n}' if n else ''}" for n in count())
    aside = next(one for name in names if not (one := path.with_name(name)).exists())
    for suffix in (*COMPANIONS, ""):
        beside = companion(path, suffix)
        if beside.exists():
            beside.rename(companion(aside, suffix))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return aside
