"""The ledger: what is owed, what was done, and the texts before and after.

Owns what is stored where in SQLite. It must not know why something is owed or how a save goes on, and
reads no clock: every time comes from the caller. One thread at a time; see `ledger_thread`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from memoryd.adapters.ledger_file import open_file, translated
from memoryd.adapters.ledger_prune import prune
from memoryd.adapters.ledger_rows import as_json, storable
from memoryd.adapters.ledger_runs import RunRows
from memoryd.core.project import Identity
from memoryd.ports import Intent, Notices, Owed, SessionRow

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened ledger, and where a damaged one was moved to."""

    ledger: Ledger
    moved_aside: Path | None


class Ledger(RunRows):
    """Implements `ports.Ledger`. Called outside of `transaction`, each statement commits by itself."""

    @classmethod
    def open(cls, path: Path) -> Opened:
        """The ledger at `path`, made (mode 0600) where it is missing, at the last schema version.

        A damaged file is moved aside under a name with a time stamp. Raises NewerLedgerError (the file
        is left as it is), LedgerError, StorageError, UnsafePathError.
        """
        connection, moved_aside = open_file(path)
        return Opened(cls(connection, path), moved_aside)

    # ── events, sessions, identities ───────────────────────────────────────────────────────────────

    def first_seen(self, event: str, at: float) -> bool:
        """Whether this is the first time that `event` is named; it is remembered."""
        done = self._execute("INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING", (event, at))
        return done.rowcount == 1

    def session(self, id: str) -> SessionRow | None:  # noqa: A002  the port's name
        row = self._one("SELECT body FROM sessions WHERE id = ?", id)
        return self._read(row[0], SessionRow) if row else None

    def sessions(self, *, ended: bool) -> list[SessionRow]:
        """Those that ended or those that did not, in the order in which they were first seen."""
        rows = self._all("SELECT body FROM sessions WHERE ended = ? ORDER BY rowid", ended)
        return [self._read(body, SessionRow) for (body,) in rows]

    def put_session(self, row: SessionRow) -> None:
        self._execute(
            """INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
            ended = excluded.ended, seen_at = excluded.seen_at, body = excluded.body""",
            (row.id, row.ended, row.seen_at, as_json(row)),
        )

    def identities(self) -> list[Identity]:
        """In the order in which they were first seen: the first owns a plain name."""
        rows = self._all("SELECT body FROM identities ORDER BY rowid")
        return [self._read(body, Identity) for (body,) in rows]

    def put_identity(self, identity: Identity) -> None:
        self._execute(
            """INSERT INTO identities VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET
            name = excluded.name, body = excluded.body""",
            (identity.id, identity.name, as_json(identity)),
        )

    # ── owed turns ─────────────────────────────────────────────────────────────────────────────────

    def owed(self) -> list[Owed]:
        """All, the one that has waited longest first."""
        rows = self._all("SELECT body FROM owed ORDER BY rowid")
        return [self._read(body, Owed) for (body,) in rows]

    def owed_by(self, session: str) -> Owed | None:
        row = self._one("SELECT body FROM owed WHERE session = ?", session)
        return self._read(row[0], Owed) if row else None

    def put_owed(self, owed: Owed) -> None:
        """Add or replace the session's one owed turn; it keeps its place among the others."""
        self._execute(
            """INSERT INTO owed VALUES (?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET
            project = excluded.project, asked = excluded.asked, run = excluded.run,
            body = excluded.body""",
            (owed.session, owed.project, owed.asked, owed.run, as_json(owed)),
        )

    def settle(self, session: str, asked: int) -> bool:
        """The turn is owed no more, unless it asked again since; whether it went."""
        done = self._execute("DELETE FROM owed WHERE session = ? AND asked = ?", (session, asked))
        return done.rowcount == 1

    # ── commits in progress ────────────────────────────────────────────────────────────────────────

    def put_intent(self, intent: Intent) -> None:
        self._execute(
            """INSERT INTO intents VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET
            project = excluded.project, body = excluded.body""",
            (intent.run, intent.project, as_json(intent)),
        )

    def close_intent(self, run: str) -> None:
        """Its files are in place, or will never be; one that is closed already is fine."""
        self._execute("DELETE FROM intents WHERE run = ?", (run,))

    def intent(self, run: str) -> Intent | None:
        row = self._one("SELECT body FROM intents WHERE run = ?", run)
        return self._read(row[0], Intent) if row else None

    def intents(self) -> list[Intent]:
        rows = self._all("SELECT body FROM intents ORDER BY rowid")
        return [self._read(body, Intent) for (body,) in rows]

    # ── what is told ───────────────────────────────────────────────────────────────────────────────

    def notices(self, project: str) -> Notices:
        row = self._one("SELECT body FROM notices WHERE project = ?", project)
        return self._read(row[0], Notices) if row else Notices()

    def put_notices(self, project: str, notices: Notices) -> None:
        """What the next fork is told, in place of what it would have been told."""
        self._execute(
            """INSERT INTO notices VALUES (?, ?) ON CONFLICT (project) DO UPDATE SET
            body = excluded.body""",
            (project, as_json(notices)),
        )

    def add_event(self, project: str, run: str, at: float, text: str) -> None:
        self._execute(
            "INSERT INTO events (project, run, at, text) VALUES (?, ?, ?, ?)",
            (project, run, at, storable(text)),
        )

    def last_event(self, project: str) -> tuple[float, str] | None:
        """When it was added (Unix seconds), and its text."""
        row = self._one(
            "SELECT at, text FROM events WHERE project = ? ORDER BY id DESC LIMIT 1", project
        )
        return cast("tuple[float, str] | None", row)

    # ── switches and counts ────────────────────────────────────────────────────────────────────────

    def pauses(self) -> dict[str, float]:
        """Until when (Unix seconds, infinity: until it is resumed) a project starts no save."""
        rows = self._all("SELECT project, until FROM pauses")
        return {cast("str", project): cast("float", until) for project, until in rows}

    def put_pause(self, project: str, until: float) -> None:
        """Pause a project, or all (empty) until a time; 0 ends the pause."""
        if until > 0:
            self._execute(
                """INSERT INTO pauses VALUES (?, ?) ON CONFLICT (project) DO UPDATE SET
                until = excluded.until""",
                (project, until),
            )
        else:
            self._execute("DELETE FROM pauses WHERE project = ?", (project,))

    def switched_off(self) -> list[str]:
        """Names of projects that are off, in order of their names."""
        rows = self._all("SELECT project FROM switched_off ORDER BY project")
        return [cast("str", project) for (project,) in rows]

    def switch_project(self, project: str, *, off: bool) -> None:
        if off:
            self._execute("INSERT INTO switched_off VALUES (?) ON CONFLICT DO NOTHING", (project,))
        else:
            self._execute("DELETE FROM switched_off WHERE project = ?", (project,))

    def count_start(self, project: str, at: float) -> None:
        """A session started in the project."""
        self._execute("INSERT INTO starts VALUES (?, ?)", (project, at))

    def starts_since(self, project: str, at: float) -> int:
        return self._count("SELECT count(*) FROM starts WHERE project = ? AND at >= ?", project, at)

    # ── retention ──────────────────────────────────────────────────────────────────────────────────

    def prune(self, *, older_than: float, max_bytes: int) -> int:
        """Delete runs that ended before `older_than` (Unix seconds), then the oldest above `max_bytes`.

        Returns how many went. Kept in any case: what is owed or in progress, the last text before a
        retired rule, and each project's last change. The file itself shrinks with `tidy`.
        """
        try:
            return prune(self._connection, older_than, max_bytes)
        except sqlite3.Error as error:
            raise translated(error, self.path, "prune") from error
