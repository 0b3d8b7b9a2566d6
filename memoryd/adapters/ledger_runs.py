"""The ledger's runs: their records, ops, replies, and the texts before and after.

Owns what is stored of a save and what is counted over saves. It must not know how a save goes on.
"""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import cast

import msgspec

from memoryd.adapters.ledger_rows import Rows, as_json, storable
from memoryd.errors import LedgerError
from memoryd.ports import CANCELLED, FileVersion
from memoryd.protocol import OpRecord, RunRecord, Usage

FINISHED = frozenset({"done", "no_change", "skipped", "held", "failed"})
"""States that are an outcome."""

REPLY_DONE = frozenset({"done", "no_change", "skipped"})
"""Outcomes after which a finished reply has no use any more."""


class RunRows(Rows):
    """Part of `Ledger`."""

    def put_run(self, run: RunRecord) -> None:
        """Add or replace a run; its ops are `put_ops`'s. A reply that has no use any more goes."""
        body = as_json(msgspec.structs.replace(run, ops=[]))
        usage = run.usage
        finished = self._finished(run)
        self._execute(
            """INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET
            project = excluded.project, session = excluded.session, state = excluded.state,
            finished = excluded.finished, started_at = excluded.started_at,
            ended_at = excluded.ended_at, backend = excluded.backend, failure = excluded.failure,
            retired = excluded.retired, before = excluded.before, after = excluded.after,
            input = excluded.input, cache_read = excluded.cache_read,
            cache_write = excluded.cache_write, output = excluded.output, body = excluded.body""",
            (
                *(run.id, run.project, run.session, run.state, finished),
                *(run.started_at, run.ended_at, run.backend, storable(run.failure), run.retired),
                *(run.before, run.after),
                *(usage.input, usage.cache_read, usage.cache_write, usage.output),
                body,
            ),
        )
        if run.state in REPLY_DONE:
            self._execute("DELETE FROM replies WHERE run = ?", (run.id,))

    def run(self, id: str) -> RunRecord | None:  # noqa: A002  the port's name
        """The run with its ops, by its id or by a start of it that no other run shares."""
        row = self._one("SELECT id, body FROM runs WHERE id = ?", id)
        if row is None and id:
            found = self._all(
                "SELECT id, body FROM runs WHERE substr(id, 1, ?) = ? LIMIT 2", len(id), id
            )
            row = found[0] if len(found) == 1 else None
        if row is None:
            return None
        ops = self._all("SELECT body FROM ops WHERE run = ? ORDER BY position", row[0])
        run = self._read(row[1], RunRecord)
        return msgspec.structs.replace(run, ops=[self._read(body, OpRecord) for (body,) in ops])

    def runs(self, project: str, *, limit: int, skipped: bool) -> list[RunRecord]:
        """Newest first and without their ops; of all projects where `project` is empty."""
        rows = self._all(
            """SELECT body FROM runs WHERE (project = ? OR ? = '') AND (state <> 'skipped' OR ?)
            ORDER BY rowid DESC LIMIT ?""",
            *(project, project, skipped, limit),
        )
        return [self._read(body, RunRecord) for (body,) in rows]

    def unfinished_runs(self) -> list[RunRecord]:
        """Those whose state is no outcome, oldest first."""
        rows = self._all("SELECT body FROM runs WHERE finished IS NULL ORDER BY rowid")
        return [self._read(body, RunRecord) for (body,) in rows]

    def put_ops(self, run: str, ops: list[OpRecord]) -> None:
        """The run's ops, in place of any that were there."""
        self._execute("DELETE FROM ops WHERE run = ?", (run,))
        for position, op in enumerate(ops):
            self._execute(
                "INSERT INTO ops VALUES (?, ?, ?, ?)", (run, position, op.outcome, as_json(op))
            )

    def put_reply(self, run: str, text: str) -> None:
        """A finished reply, secrets masked: after a crash it is not paid for twice."""
        self._execute(
            "INSERT INTO replies VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET text = excluded.text",
            (run, storable(text)),
        )

    def reply(self, run: str) -> str | None:
        row = self._one("SELECT text FROM replies WHERE run = ?", run)
        return cast("str", row[0]) if row else None

    def _finished(self, run: RunRecord) -> int | None:
        if run.state not in FINISHED:
            return None
        old = self._one("SELECT finished FROM runs WHERE id = ? AND state = ?", run.id, run.state)
        if old:
            return cast("int", old[0])
        return self._count("SELECT coalesce(max(finished), 0) + 1 FROM runs")

    # ── texts ──────────────────────────────────────────────────────────────────────────────────────

    def put_version(self, data: bytes) -> str:
        """Keep a file's bytes; returns their sha256 in hex, by which they are found again."""
        digest = sha256(data).hexdigest()
        if self._one("SELECT 1 FROM versions WHERE digest = ?", digest) is None:
            self._execute(
                "INSERT INTO versions VALUES (?, ?, ?)", (digest, len(data), zlib.compress(data))
            )
        return digest

    def version(self, digest: str) -> bytes | None:
        row = self._one("SELECT data FROM versions WHERE digest = ?", digest)
        if row is None:
            return None
        try:
            data = zlib.decompress(cast("bytes", row[0]))
        except zlib.error:
            data = b""
        if sha256(data).hexdigest() != digest:
            raise LedgerError(self.path, f"the text {digest[:12]} is damaged")
        return data

    def put_file_version(self, run: str, name: str, before: str, after: str) -> None:
        """A file that a run wrote, by the digests of its texts; empty where there was no file."""
        self._execute(
            """INSERT INTO file_versions VALUES (?, ?, ?, ?) ON CONFLICT (run, name) DO UPDATE SET
            before = excluded.before, after = excluded.after""",
            (run, name, before, after),
        )

    def file_versions(self, run: str) -> list[FileVersion]:
        """The files that a run wrote, by name."""
        rows = self._all(
            "SELECT name, before, after FROM file_versions WHERE run = ? ORDER BY name", run
        )
        return [
            msgspec.convert({"name": name, "before": before, "after": after}, FileVersion)
            for name, before, after in rows
        ]

    # ── counts ─────────────────────────────────────────────────────────────────────────────────────

    def failures(self, project: str) -> tuple[int, float, str]:
        """Runs that failed since the last that did not: how many, when the first, why the last.

        One that a person cancelled is neither.
        """
        rows = self._all(
            """SELECT ended_at, failure FROM runs WHERE project = ? AND state = 'failed'
            AND failure <> ? AND finished > (
                SELECT coalesce(max(finished), 0) FROM runs
                WHERE project = ? AND state IN ('done', 'no_change', 'held')
            ) ORDER BY finished""",
            *(project, CANCELLED, project),
        )
        if not rows:
            return 0, 0.0, ""
        return len(rows), cast("float", rows[0][0]), cast("str", rows[-1][1])

    def usage_since(self, project: str, at: float) -> Usage:
        """Tokens of the runs that started since `at`; of all projects where `project` is empty."""
        sums = self._one(
            """SELECT coalesce(sum(input), 0), coalesce(sum(cache_read), 0),
            coalesce(sum(cache_write), 0), coalesce(sum(output), 0)
            FROM runs WHERE started_at >= ? AND (project = ? OR ? = '')""",
            *(at, project, project),
        )
        names = ("input", "cache_read", "cache_write", "output")
        return msgspec.convert(dict(zip(names, sums or (), strict=True)), Usage)

    def forks_since(self, backend: str, at: float) -> int:
        """Runs of `backend` that started since `at`."""
        return self._count(
            "SELECT count(*) FROM runs WHERE started_at >= ? AND backend = ?", at, backend
        )
