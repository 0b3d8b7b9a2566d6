"""What a daemon could answer, for tests of what memoryctl shows; the clock stands at NOW."""

from __future__ import annotations

from memoryd import __version__
from memoryd.protocol import (
    GENERATION,
    BackendStatus,
    OpRecord,
    ProjectStatus,
    RunRecord,
    Status,
    Usage,
    Warned,
)

NOW = 1_796_029_200.0
"""2026-11-30 09:00 UTC."""

HOME = "/home/user"
OVERLOADED = "the fork got an API error, 529 (overloaded)"


def quiet_project(name: str = "alpha") -> ProjectStatus:
    return ProjectStatus(
        name=name,
        directory=f"{HOME}/.cli-tweaks/memory/{name}",
        lines=38,
        characters=2100,
        loaded_lines=38,
        load_lines=38,
        last_save=NOW - 60,
        status="+4 -2 topic: history 1 refused",
        status_at=NOW - 60,
        event="4 added, 2 removed; appended to history.md; refused: - Deploy on Fridays.: no quote",
        tokens_today=Usage(input=2300, cache_read=10_000, output=820),
        session_starts_today=4,
        load_tokens=530,
    )


def failing_project() -> ProjectStatus:
    return ProjectStatus(
        name="beta",
        directory=f"{HOME}/.cli-tweaks/memory/beta",
        lines=171,
        characters=50_123,
        loaded_lines=120,
        load_lines=171,
        status=f"error: {OVERLOADED}",
        status_at=NOW - 200,
        owed=3,
        failures=20,
        failing_since=NOW - 80_000,
        failure=OVERLOADED,
        session_starts_today=1,
        load_tokens=12_531,
    )


def saving_project() -> ProjectStatus:
    return ProjectStatus(
        name="gamma",
        directory=f"{HOME}/.cli-tweaks/memory/gamma",
        status="saving…",
        status_at=NOW,
        running="fork",
        owed=1,
    )


def calm(*projects: ProjectStatus) -> Status:
    """A daemon that nothing is wrong with."""
    return Status(
        version=__version__,
        generation=GENERATION,
        pid=4711,
        started_at=NOW - 7500,
        socket=f"{HOME}/.local/state/memoryd/memoryd.sock",
        memory_root=f"{HOME}/.cli-tweaks/memory",
        sessions=3,
        backends=[
            BackendStatus(name="claude", works=False, reason="the `claude` program is not there"),
            BackendStatus(name="digest", works=True),
        ],
        projects=list(projects or (quiet_project(),)),
    )


def busy() -> Status:
    """A daemon with all that can be shown at once."""
    found = calm(
        quiet_project(),
        failing_project(),
        saving_project(),
        ProjectStatus(name="delta", directory=f"{HOME}/memory/delta", off=True),
        ProjectStatus(name="epsilon", directory=f"{HOME}/memory/epsilon", paused_until=NOW + 7200),
    )
    found.spooled = 2
    found.warnings = [
        Warned(
            code="no_locks",
            sentence=f"locks do not work on {HOME}/.local/state/memoryd",
            hint="memoryctl doctor",
        )
    ]
    return found


def runs() -> list[RunRecord]:
    """Newest first: one that is being saved, one of each outcome, one of the day before."""
    return [
        RunRecord(
            id="5c9f0ea1b7",
            project="alpha",
            session="bb10ab22-93",
            state="fork",
            started_at=NOW - 5,
        ),
        full_run(),
        RunRecord(
            id="3c9f0ea1b7",
            project="a-project-with-a-long-name",
            session="cc10ab22-93",
            state="failed",
            started_at=NOW - 4005,
            ended_at=NOW - 4000,
            backend="claude",
            status=f"error: {OVERLOADED}",
            failure=OVERLOADED,
        ),
        RunRecord(
            id="2c9f0ea1b7",
            project="alpha",
            session="bb10ab22-93",
            state="no_change",
            started_at=NOW - 90_005,
            ended_at=NOW - 90_000,
            backend="digest",
            usage=Usage(input=1000, output=20),
            status="no change",
        ),
    ]


def full_run() -> RunRecord:
    return RunRecord(
        id="4c9f0ea1b7",
        project="alpha",
        session="fa100113-d557-4a1e",
        state="done",
        owed_at=NOW - 71,
        started_at=NOW - 70.5,
        ended_at=NOW - 60,
        attempts=2,
        backend="digest",
        backend_reason="claude: the `claude` program is not there",
        model="claude-haiku-5-5",
        usage=Usage(input=2300, cache_read=10_000, output=820),
        status="+1 ~1 topic: history 1 refused",
        event="MEMORY.md: 1 added, 1 replaced; appended to history.md; refused: - Deploy on Fridays.",
        merged=True,
        before="ab" * 32,
        after="cd" * 32,
        topics=["history.md"],
        ops=[
            OpRecord(
                kind="add",
                section="CRITICAL RULES",
                text="- Run the tests with `make check`.",
                because="always run the tests with make check",
            ),
            OpRecord(kind="replace", line="- The port is 80.", text="- The port is 8080."),
            OpRecord(kind="remove", line="- Old.", outcome="skipped", reason="not in the file"),
            OpRecord(
                kind="add",
                section="CRITICAL RULES",
                text="- Deploy on Fridays.",
                outcome="refused",
                reason="no words of the user behind it",
            ),
        ],
    )
