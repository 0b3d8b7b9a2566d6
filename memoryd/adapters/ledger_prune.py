"""What the ledger gives up with time.

Owns which rows may go: the oldest runs first, and never what is still owed, in progress, or the only way
back to a retired rule. It must not know how long things are kept; that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

LEAST = 16
"""Runs that go at once when there is too little room; else half of the share that is too much."""

SEEN_KEPT = 50_000
"""Ids of events that are remembered at most, to drop their doubles: about 5 MB."""

# A run that retired a rule has the last text that held it; the last run of a project that wrote
# something can be undone, whatever the clock says of its age.
_FREE = """finished IS NOT NULL AND retired = 0
    AND id NOT IN (SELECT run FROM intents)
    AND id NOT IN (SELECT run FROM owed)
    AND rowid NOT IN (
        SELECT max(rowid) FROM runs
        WHERE id IN (SELECT run FROM file_versions) GROUP BY project
    )"""

_OLD = (
    "DELETE FROM sessions WHERE seen_at < ? AND id NOT IN (SELECT session FROM owed)",
    """DELETE FROM events WHERE at < ?
        AND id NOT IN (SELECT max(id) FROM events GROUP BY project)""",
    "DELETE FROM starts WHERE at < ?",
    "DELETE FROM seen WHERE at < ?",
)

_UNUSED_VERSIONS = """DELETE FROM versions WHERE digest NOT IN (
        SELECT before FROM file_versions UNION SELECT after FROM file_versions
        UNION SELECT before FROM runs UNION SELECT after FROM runs
    )"""


def prune(connection: sqlite3.Connection, older_than: float, max_bytes: int) -> int:
    """Delete what ended before `older_than` (Unix seconds), then the oldest runs above `max_bytes`.

    Returns how many runs went. Inside a transaction of the caller's; the file shrinks afterwards.
    """
    for statement in _OLD:
        connection.execute(statement, (older_than,))
    connection.execute(
        "DELETE FROM seen WHERE rowid <= (SELECT max(rowid) FROM seen) - ?", (SEEN_KEPT,)
    )
    gone = connection.execute(
        f"DELETE FROM runs WHERE ended_at < ? AND {_FREE}",  # noqa: S608  a constant
        (older_than,),
    ).rowcount
    if gone:
        connection.execute(_UNUSED_VERSIONS)
    while (size := used(connection)) > max_bytes:
        if not (taken := _take_oldest(connection, 0.5 * (1 - max_bytes / size))):
            break
        gone += taken
        connection.execute(_UNUSED_VERSIONS)
    return gone


def used(connection: sqlite3.Connection) -> int:
    """Bytes of the pages that hold something."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def _take_oldest(connection: sqlite3.Connection, share: float) -> int:
    (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    oldest = f"SELECT id FROM runs WHERE {_FREE} ORDER BY finished LIMIT ?"  # noqa: S608
    return connection.execute(
        f"DELETE FROM runs WHERE id IN ({oldest})",  # noqa: S608
        (max(LEAST, int(runs * share)),),
    ).rowcount
