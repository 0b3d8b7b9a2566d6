"""What memoryctl shows of the daemon's answers: status, log, a run.

Owns which facts are shown and what is worth a warning. Knows neither a terminal nor a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memoryd.core.memory.document import HARD_CHARACTERS, HARD_LINES, SOFT_CHARACTERS, SOFT_LINES
from memoryd.core.memory.report import FRONT
from memoryd.core.text import plural
from memoryd.ctl.render import Column, Fields, Gap, Say, Span, Table, line, status_line
from memoryd.ctl.troubles import Trouble, troubles
from memoryd.ctl.words import age, clock, number, short, tilde, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memoryd.ctl.render import Element, Line, Tone
    from memoryd.protocol import BackendStatus, OpRecord, ProjectStatus, RunRecord, Status, Usage

COMPACT_FROM = 6
"""Projects from which on those with nothing to say get one row each."""

SHORT_SESSION, SHORT_RUN = 8, 6
"""Characters of an id, as the log shows them; `show` takes the start of a run's id."""


class View(NamedTuple):
    """From where it is looked at: Unix seconds now, the person's home, and how closely."""

    now: float
    home: str
    verbose: bool = False
    compact: bool = False
    """Many projects may be shortened: somebody has to read it."""
    seen: tuple[Trouble, ...] = ()
    """What memoryctl found wrong itself."""


# ── status ─────────────────────────────────────────────────────────────────────────────────────────


def status(found: Status, view: View) -> list[Element]:
    """The daemon at a glance, what is wrong first."""
    elements: list[Element] = [*_opening(found, view), Gap(), *_daemon(found, view)]
    quiet = [each for each in found.projects[1:] if view.compact and _is_quiet(each)]
    if len(found.projects) < COMPACT_FROM or view.verbose:
        quiet = []
    for project in found.projects:
        if project not in quiet:
            elements += [Gap(), *_project(project, view)]
    if quiet:
        elements += [Gap(), _quiet(quiet, view)]
    return elements


def _opening(found: Status, view: View) -> Iterator[Element]:
    wrong = [*view.seen, *troubles(found, view.now)]
    for trouble in wrong:
        yield Say(line(trouble.sentence, trouble.tone))
        if trouble.hint:
            yield Say((Span("try: ", "faint"), Span(trouble.hint, "strong")), indent=1)
    if not wrong:
        yield Say((Span("memoryd works", "good"), Span(f"; {_work(found)}")))


def _work(found: Status) -> str:
    running = sum(project.running is not None for project in found.projects)
    owed = sum(project.owed for project in found.projects)
    if running:
        behind = f", {plural(owed, 'turn')} owed behind" if owed else ""
        return f"{plural(running, 'save')} running{behind}"
    return f"{plural(owed, 'turn')} owed" if owed else "nothing is owed"


def _daemon(found: Status, view: View) -> Iterator[Element]:
    up = age(view.now - found.started_at)
    facts = f"up {up}, pid {found.pid}, {plural(found.sessions, 'session')}"
    yield Say((Span(f"memoryd {found.version}", "strong"), Span(f"  {facts}")))
    rows = [("memory", line(tilde(found.memory_root, view.home)))]
    if view.verbose:
        rows.append(("socket", line(tilde(found.socket, view.home))))
        rows.append(("protocol", line(f"generation {found.generation}")))
    if found.spooled:
        rows.append(("spool", line(f"{plural(found.spooled, 'event')} to be read", "warn")))
    rows += ((each.name, _backend(each, view.now)) for each in found.backends)
    yield Fields(tuple(rows))


def _backend(backend: BackendStatus, now: float) -> Line:
    if not backend.works:
        return (Span("can't work: ", "warn"), Span(backend.reason))
    if backend.waits_until > now:
        return line(f"asked to wait {until(backend.waits_until, now)}", "warn")
    return line("works", "good")


def _project(project: ProjectStatus, view: View) -> Iterator[Element]:
    shown = status_line(project.status, clock(project.status_at, view.now))
    yield Say((Span(project.name, "strong"), Span("  "), *(shown or line("no save yet", "faint"))))
    if project.event:
        yield Say(line(project.event, "faint"), indent=1)
    yield Fields(tuple(_project_rows(project, view)))


def _project_rows(project: ProjectStatus, view: View) -> Iterator[tuple[str, Line]]:
    yield "file", _size(project)
    if view.verbose:
        yield "folder", line(tilde(project.directory, view.home))
    if project.owed or project.running:
        yield "saves", line(_saves(project), "" if project.running else "warn")
    if project.headless != "full":
        yield "headless", line(_HEADLESS[project.headless], "warn")
    yield "today", line(_today(project))


_HEADLESS = {
    "load": "`-p` and SDK sessions load the memory and save nothing",
    "off": "`-p` and SDK sessions have no memory",
}


def _size(project: ProjectStatus) -> Line:
    if project.fault:
        return line("can't be read", "bad")
    if not project.characters:
        return line("no MEMORY.md yet", "faint")
    lines = _against(project.lines, SOFT_LINES, HARD_LINES)
    characters = _against(project.characters, SOFT_CHARACTERS, HARD_CHARACTERS)
    return (lines, Span(" lines, "), characters, Span(" characters"))


def _against(value: int, soft: int, hard: int) -> Span:
    tone: Tone = "bad" if value >= hard else "warn" if value >= soft else ""
    return Span(f"{number(value)} of {number(hard)}", tone)


def _saves(project: ProjectStatus) -> str:
    owed = f"{plural(project.owed, 'turn')} owed" if project.owed else ""
    running = f"saving now ({project.running})" if project.running else ""
    return ", ".join(part for part in (running, owed) if part)


def _today(project: ProjectStatus) -> str:
    used = project.tokens_today
    if not (project.session_starts_today or _input(used) or used.output):
        return "nothing"
    starts = plural(project.session_starts_today, "session start")
    if project.load_tokens and project.session_starts_today:
        starts += f" of about {short(project.load_tokens)} tokens"
    return f"{starts}; saves: {_tokens(used)}"


def _is_quiet(project: ProjectStatus) -> bool:
    return not (
        project.owed
        or project.running
        or project.failures
        or project.fault
        or project.paused_until
        or project.off
        or project.excluded
        or project.status.startswith("error")
    )


def _quiet(projects: list[ProjectStatus], view: View) -> Table:
    columns = (Column("project"), Column("lines", right=True), Column("last save"))
    rows = tuple(
        (
            line(each.name, "strong"),
            line(number(each.lines)),
            status_line(each.status, clock(each.status_at, view.now)),
        )
        for each in projects
    )
    return Table(columns, rows)


# ── log ────────────────────────────────────────────────────────────────────────────────────────────


def log(runs: list[RunRecord], view: View) -> list[Element]:
    """Runs as a table, in the order in which they come."""
    if not runs:
        return [Say(line("no save yet", "faint"))]
    columns = (
        Column("time"),
        Column("run"),
        Column("project", gives=True),
        Column("session"),
        Column("state"),
        Column("lines"),
        Column("topics", spare=True),
        Column("backend"),
        Column("in", right=True),
        Column("out", right=True),
    )
    rows = tuple(_log_row(run, view) for run in runs)
    return [Table(columns, rows, tuple(map(_log_note, runs)), "event")]


def _log_row(run: RunRecord, view: View) -> tuple[Line, ...]:
    at = clock(run.ended_at or run.started_at or run.owed_at, view.now)
    stems = [topic.removesuffix(".md") for topic in run.topics]
    return (
        line(at, "faint"),
        line(run.id[:SHORT_RUN]),
        line(run.project, "strong"),
        line(run.session[:SHORT_SESSION]),
        _state(run),
        line(_signed(run), "good"),
        line(", ".join(stems)),
        line(run.backend),
        line(short(_input(run.usage)) if run.backend else ""),
        line(short(run.usage.output) if run.backend else ""),
    )


def _log_note(run: RunRecord) -> Line:
    if run.state == "failed":
        return line(run.failure or run.event, "bad")
    return line(run.event.removeprefix(FRONT), "faint")


def _state(run: RunRecord) -> Line:
    tones: dict[str, Tone] = {"failed": "bad", "held": "warn", "done": "good", "skipped": "faint"}
    words = "no change" if run.state == "no_change" else run.state
    return line(words, tones.get(run.state, ""))


def _signed(run: RunRecord) -> str:
    """`+4 -2 ~1` of the status line's text."""
    return " ".join(word for word in run.status.split(" ") if word[:1] in ("+", "-", "~"))


# ── one run ────────────────────────────────────────────────────────────────────────────────────────


def run(found: RunRecord, view: View) -> list[Element]:
    """All of a run, then its ops with what became of each."""
    title = (Span(f"run {found.id}", "strong"), Span("  "), *_state(found))
    elements: list[Element] = [Say(title), Fields(tuple(_run_rows(found, view)))]
    if found.event:
        elements += [Gap(), Say(line(found.event))]
    for op in found.ops:
        elements += [Gap(), *_op(op)]
    return elements


def _run_rows(found: RunRecord, view: View) -> Iterator[tuple[str, Line]]:
    yield "project", line(found.project)
    yield "session", line(found.session)
    if found.status:
        at = clock(found.ended_at or found.started_at, view.now)
        yield "status", status_line(found.status, at)
    yield "reason", line(_REASONS.get(found.reason, found.reason))
    yield "times", line(_times(found, view.now))
    if found.attempts:
        yield "attempts", line(str(found.attempts))
    if found.backend:
        why = f", {found.backend_reason}" if found.backend_reason else ""
        yield "backend", line(f"{found.backend}{why}")
    if found.model:
        yield "model", line(found.model)
    yield "tokens", line(_tokens(found.usage))
    if found.failure:
        yield "failure", line(found.failure, "bad")
    if found.merged:
        yield "merged", line("over a concurrent edit", "warn")
    if found.topics:
        yield "topics", line(", ".join(found.topics))
    yield "text", line(f"{found.before[:12] or 'none'} → {found.after[:12] or 'none'}")


_REASONS = {
    "answer": "a turn ended with an answer",
    "interrupted": "a turn was interrupted",
    "session_end": "the session ended",
    "process_gone": "the session's process was gone",
    "idle": "the session was silent",
    "asked": "somebody asked",
    "rearranged": "the file had to be put into its shape",
    "joined": "a clone of the same repository began to share the memory",
}


def _times(found: RunRecord, now: float) -> str:
    steps = (
        ("owed", found.owed_at),
        ("started", found.started_at),
        ("ended", found.ended_at),
    )
    times = [f"{word} {clock(at, now)}" for word, at in steps if at]
    if found.started_at and found.ended_at:
        times.append(f"took {age(found.ended_at - found.started_at)}")
    return ", ".join(times)


_OUTCOMES: dict[str, Tone] = {
    "applied": "good",
    "moved": "good",
    "duplicate": "faint",
}
"""All others were left out, and somebody may want to know."""


def _op(op: OpRecord) -> Iterator[Element]:
    reason = f": {op.reason}" if op.reason else ""
    where = f" under {op.section}" if op.section else ""
    yield Say(
        (Span(op.outcome, _OUTCOMES.get(op.outcome, "warn")), Span(f"  {op.kind}{where}{reason}"))
    )
    texts: tuple[tuple[str, Line], ...] = (
        ("old", line(op.line, "bad")),
        ("new", line(op.text, "good")),
        ("quote", line(op.because, "faint")),
    )
    shown = tuple((label, text) for label, text in texts if text[0].text)
    if shown:
        yield Fields(shown)


def _input(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write


def _tokens(usage: Usage) -> str:
    total = _input(usage)
    if not total and not usage.output:
        return "no tokens"
    cached = f" ({short(usage.cache_read)} from the cache)" if usage.cache_read else ""
    return f"{short(total)} tokens in{cached}, {short(usage.output)} out"
