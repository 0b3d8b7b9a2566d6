"""The ledger's tables, and the way from each older version to this one.

Owns SQL that makes or changes a table, and the version in `PRAGMA user_version`. A migration that was
released is never changed: the next one is added below it, with a ledger of the version before it under
tests/fixtures/ledgers. What is stored as JSON (a column `body`) only gains fields with defaults, as the
messages do; anything else is a migration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

APPLICATION_ID = 0x6D656D64
"""`memd`: tells our file from another program's database."""

_FIRST = (
    "CREATE TABLE seen (event TEXT PRIMARY KEY, at REAL NOT NULL)",
    "CREATE TABLE identities (id TEXT PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL)",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY, ended INTEGER NOT NULL, seen_at REAL NOT NULL, body TEXT NOT NULL
    )""",
    """CREATE TABLE owed (
        session TEXT PRIMARY KEY, project TEXT NOT NULL, asked INTEGER NOT NULL, run TEXT NOT NULL,
        body TEXT NOT NULL
    )""",
    # `finished` counts the runs in the order in which they ended: a clock can go back.
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, project TEXT NOT NULL, session TEXT NOT NULL, state TEXT NOT NULL,
        finished INTEGER, started_at REAL NOT NULL, ended_at REAL NOT NULL, backend TEXT NOT NULL,
        failure TEXT NOT NULL, retired INTEGER NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,
        input INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
        output INTEGER NOT NULL, body TEXT NOT NULL
    )""",
    "CREATE INDEX runs_by_project ON runs (project, finished)",
    "CREATE INDEX runs_by_finish ON runs (finished)",
    "CREATE INDEX runs_by_start ON runs (started_at)",
    """CREATE TABLE ops (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, position INTEGER NOT NULL,
        outcome TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, position)
    ) WITHOUT ROWID""",
    """CREATE TABLE replies (
        run TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, text TEXT NOT NULL
    )""",
    "CREATE TABLE versions (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL)",
    """CREATE TABLE file_versions (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, name TEXT NOT NULL,
        before TEXT NOT NULL, after TEXT NOT NULL, PRIMARY KEY (run, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE intents (
        run TEXT PRIMARY KEY REFERENCES runs, project TEXT NOT NULL, body TEXT NOT NULL
    )""",
    "CREATE TABLE notices (project TEXT PRIMARY KEY, body TEXT NOT NULL)",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY, project TEXT NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
        text TEXT NOT NULL
    )""",
    "CREATE INDEX events_by_project ON events (project, id)",
    "CREATE TABLE pauses (project TEXT PRIMARY KEY, until REAL NOT NULL)",
    "CREATE TABLE switched_off (project TEXT PRIMARY KEY)",
    "CREATE TABLE starts (project TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE INDEX starts_by_project ON starts (project, at)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST,)
"""The statements that lead from version n to n + 1, n being the place in the tuple."""


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> bool:
    """Bring an opened ledger to the last version, each step in one transaction; whether any ran."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    for version, statements in enumerate(migrations[found:], found + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return found < len(migrations)
