"""The connection under the ledger: transactions, statements, and rows as values.

Owns how a statement runs, how its errors are told, and when the log is tidied. It must not know a table.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from memoryd.adapters.ledger_file import companion, translated
from memoryd.errors import LedgerError, UnwrittenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

    from memoryd.core.project import Identity

T = TypeVar("T")

CHECKPOINT_BYTES = 2 * 1024 * 1024
"""Size of the log at which its content is moved into the database, between two commits."""

SHRINK_PAGES = 256
"""Free pages that are given back to the file system at once."""

Value = str | int | float | bytes | None
Row = tuple[Value, ...]


class TransactionLostError(UnwrittenError):
    """SQLite gave up the whole transaction, not the one statement: a full disk, a failing one."""


class Rows:
    """A connection that is used by one thread at a time, and closed by whoever opened it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def close(self) -> None:
        """The log goes into the database, and the file alone remains."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """On disk when this ends; nothing of it where it raises. Raises UnwrittenError, LedgerError."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def isolated(self, work: Callable[[Self], T]) -> T:
        """`work`'s result inside of a transaction; where it raises, only its own changes are undone.

        Raises TransactionLostError where SQLite had to give up the whole transaction with it.
        """
        self._execute("SAVEPOINT work")
        try:
            result = work(self)
        except BaseException as error:
            if not self._connection.in_transaction:
                raise TransactionLostError(self.path, "write", str(error)) from error
            self._execute("ROLLBACK TO work")
            raise
        finally:
            if self._connection.in_transaction:
                self._execute("RELEASE work")
        return result

    def tidy(self) -> None:
        """Between two commits: move a long log into the database, give free pages back."""
        log = companion(self.path, "-wal")
        try:
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            if free >= SHRINK_PAGES:
                # execute() would take the first page alone.
                self._connection.executescript("PRAGMA incremental_vacuum")
            if log.stat().st_size > CHECKPOINT_BYTES:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (OSError, sqlite3.Error):
            return  # nothing is lost: the log holds it, and the next time may go better

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _execute(self, statement: str, values: Row = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except (sqlite3.Error, MemoryError) as error:
            raise translated(error, self.path, "write") from error

    def _one(self, statement: str, *values: Value) -> Row | None:
        return cast("Row | None", self._execute(statement, values).fetchone())

    def _count(self, statement: str, *values: Value) -> int:
        row = self._one(statement, *values)
        assert row is not None  # an aggregate always has one
        return cast("int", row[0])

    def _all(self, statement: str, *values: Value) -> list[Row]:
        return self._execute(statement, values).fetchall()

    def _read(self, body: Value, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(cast("str", body), type=kind)
        except msgspec.MsgspecError as error:
            raise LedgerError(self.path, f"a {kind.__name__} can't be read: {error}") from error


def as_json(value: msgspec.Struct | Identity) -> str:
    """A value as JSON; a lone surrogate, which no UTF-8 can hold, becomes `?`."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable(msgspec.to_builtins(value))).decode()


def storable(text: str) -> str:
    """`text` without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _storable(value: object) -> object:
    match value:
        case str():
            return storable(value)
        case dict():
            return {key: _storable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_storable(inner) for inner in value]
        case _:
            return value
