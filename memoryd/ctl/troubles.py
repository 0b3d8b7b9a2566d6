"""What is wrong with a daemon that answers, the worst first, each with the command that mends it.

Owns what counts as wrong, and the words for it. Knows neither a screen nor a socket.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from memoryd import __version__
from memoryd.core.failure import remedy
from memoryd.core.text import plural
from memoryd.ctl.words import clock, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memoryd.ctl.render import Tone
    from memoryd.protocol import ProjectStatus, Status


LOGIN = remedy("credentials", "claude")
"""How a backend's fault ends that a login mends."""


class Trouble(NamedTuple):
    """What is wrong, and the command that mends it (or empty)."""

    sentence: str
    hint: str = ""
    tone: Tone = "bad"


def troubles(found: Status, now: float) -> list[Trouble]:
    """All that is wrong, the worst first."""
    return [
        *(Trouble(each.sentence, each.hint) for each in found.warnings),
        *_backend_troubles(found),
        *_pause_of_all(found, now),
        *(
            trouble
            for project in found.projects
            for trouble in _project_troubles(project, max(now, found.paused_until), now)
        ),
        *_version_trouble(found.version),
    ]


def _backend_troubles(found: Status) -> Iterator[Trouble]:
    if found.backends and not any(backend.works for backend in found.backends):
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in found.backends)
        refused = any(each.reason.endswith(LOGIN) for each in found.backends)
        hint = "claude" if refused else "memoryctl config path"
        yield Trouble(f"no save can run, turns stay owed: {reasons}", hint)


def _pause_of_all(found: Status, now: float) -> Iterator[Trouble]:
    if found.paused_until > now:
        when = until(found.paused_until, now)
        yield Trouble(f"all projects: paused {when}", "memoryctl resume", "warn")


def _project_troubles(project: ProjectStatus, said: float, now: float) -> Iterator[Trouble]:
    """`said`: a pause until then was told already."""
    name = project.name
    if project.fault:
        yield Trouble(f"{name}: {project.fault}", project.fault_hint)
    if project.failures:
        count = f"{plural(project.failures, 'save')} failed in a row"
        since = clock(project.failing_since, now)
        sentence = f"{name}: {count} since {since}: {project.failure}"
        yield Trouble(sentence, "" if project.running else _typed("save", name))
    if project.loaded_lines < project.load_lines:
        what = f"{project.loaded_lines} of {plural(project.load_lines, 'line')}"
        yield Trouble(f"{name}: only {what} of the memory reached the last session", "", "warn")
    if project.paused_until > said:
        when = until(project.paused_until, now)
        yield Trouble(f"{name}: paused {when}", _typed("resume", name), "warn")
    if project.excluded:
        yield Trouble(f"{name}: excluded by config.toml", "memoryctl config show", "warn")
    elif project.off:
        yield Trouble(f"{name}: memory is off", _typed("on", name), "warn")


def _typed(command: str, project: str) -> str:
    """The command for a project, as a shell takes it; a name that begins with `-` is no option."""
    joint = "=" if project.startswith("-") else " "
    return f"memoryctl {command} --project{joint}{shlex.quote(project)}"


def _version_trouble(theirs: str) -> Iterator[Trouble]:
    if theirs != __version__:
        sentence = f"the daemon is version {theirs}, this memoryctl {__version__}"
        yield Trouble(sentence, "memoryctl restart", "warn")
