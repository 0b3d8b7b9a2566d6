"""Values for tests of the ledger, and a kill without a process."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from memoryd.ports import Intent, Owed, SessionRow, StagedFile
from memoryd.protocol import RunRecord

if TYPE_CHECKING:
    from pathlib import Path


def session(id_: str = "s1", **fields: Any) -> SessionRow:
    return SessionRow(id=id_, **{"directory": "/w/api", **fields})


def owed(session_: str = "s1", asked: int = 1, **fields: Any) -> Owed:
    defaults = {"project": "api", "directory": "/w/api"}
    return Owed(session=session_, asked=asked, **{**defaults, **fields})


def run(id_: str = "r1", **fields: Any) -> RunRecord:
    return RunRecord(id=id_, **{"project": "api", "session": "s1", "state": "owed", **fields})


def intent(run_: RunRecord) -> Intent:
    staged = StagedFile(name="MEMORY.md", temporary=".x.tmp", before=None, after="d1")
    return Intent(
        run=run_.id, project=run_.project, directory="/m/api", files=[staged], record=run_
    )


def killed(ledger: Path, to: Path) -> Path:
    """What a `kill -9` at this moment leaves of an open ledger, in another place."""
    to.mkdir(mode=0o700)
    for file in ledger.parent.iterdir():
        # The index is shared memory: it is made anew from the log.
        if file.name.startswith(ledger.name) and not file.name.endswith("-shm"):
            shutil.copy(file, to / file.name)
    return to / ledger.name
