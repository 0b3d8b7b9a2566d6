"""The options of memoryctl's commands.

Owns their names, their help and how a value is read; which command has which is `parser`'s.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, _MutuallyExclusiveGroup

HERE = "."
"""`--project` without a name: the project of the directory."""

THIS_SESSION = "."
"""`--session` without an id: the session that memoryctl was typed in."""


def json(page: ArgumentParser) -> None:
    page.add_argument("--json", action="store_true", help="print the daemon's message as it is")


def project(page: ArgumentParser) -> None:
    page.add_argument(
        "--project", metavar="NAME", default="", help="this project, not that of the directory"
    )


def project_here(page: ArgumentParser | _MutuallyExclusiveGroup) -> None:
    page.add_argument(
        "--project",
        metavar="NAME",
        nargs="?",
        const=HERE,
        help="only this project; without NAME that of the directory",
    )


def session(page: ArgumentParser | _MutuallyExclusiveGroup) -> None:
    page.add_argument(
        "--session",
        metavar="ID",
        nargs="?",
        const=THIS_SESSION,
        default="",
        help="only this session; without ID the one that memoryctl is typed in",
    )


def asks(page: ArgumentParser) -> None:
    project(page)
    json(page)


def status(page: ArgumentParser) -> None:
    asks(page)
    page.add_argument("-v", "--verbose", action="store_true", help="show paths and all projects")


def log(page: ArgumentParser) -> None:
    project_here(page)
    page.add_argument(
        "-n", dest="limit", metavar="N", type=_count, default=20, help="at most N runs (20)"
    )
    page.add_argument("--skipped", action="store_true", help="also runs that found nothing to read")
    json(page)


def show(page: ArgumentParser) -> None:
    page.add_argument(
        "id", metavar="RUN", nargs="?", default="", help="its id, or how the id starts"
    )
    asks(page)


def save(page: ArgumentParser) -> None:
    session(page)
    asks(page)


def pause(page: ArgumentParser) -> None:
    project_here(page)
    page.add_argument(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=_seconds,
        default=0.0,
        help="how long, such as `2h` or `30 min`; without it until resume",
    )
    json(page)


def resume(page: ArgumentParser) -> None:
    project_here(page)
    json(page)


def switch(page: ArgumentParser) -> None:
    which = page.add_mutually_exclusive_group()
    session(which)
    project_here(which)
    json(page)


def apply(page: ArgumentParser) -> None:
    page.add_argument("memory", metavar="MEMORY", nargs="?", help="MEMORY.md; it may be missing")
    page.add_argument("reply", metavar="REPLY", nargs="?", help="the model's reply; - for stdin")
    page.add_argument(
        "--project", metavar="NAME", default="", help="its name, else that of MEMORY's folder"
    )
    page.add_argument(
        "--typed",
        metavar="FILE",
        action="append",
        help="a message that the person typed: then CRITICAL RULES need a quote of one",
    )
    page.add_argument("--json", action="store_true", help="print the whole account as JSON")
    page.add_argument(
        "--jsonl",
        metavar="FILE",
        nargs="?",
        const="-",
        help="read cases as JSON lines from FILE or stdin, answer each with a JSON line",
    )


def config(page: ArgumentParser) -> None:
    page.add_argument(
        "what",
        choices=("show", "path", "check"),
        nargs="?",
        default="show",
        help="the settings that hold, where the file is, or whether it is right",
    )
    page.add_argument("--json", action="store_true", help="with `show`: the settings as JSON")


def statusline(page: ArgumentParser) -> None:
    page.add_argument(
        "--settings",
        action="store_true",
        help="print the entry for Claude Code's settings.json instead",
    )
    asks(page)


def logs(page: ArgumentParser) -> None:
    page.add_argument("-f", "--follow", action="store_true", help="go on as lines are added")
    page.add_argument(
        "-n", dest="limit", metavar="N", type=_count, default=50, help="the last N lines (50)"
    )


def raw(page: ArgumentParser) -> None:
    page.add_argument("method", metavar="METHOD", choices=("GET", "POST"), help="GET or POST")
    page.add_argument(
        "route", metavar="ROUTE", type=_route, help="such as `status` or `/v1/log?limit=5`"
    )
    page.add_argument("body", metavar="BODY", nargs="?", default="", help="JSON; - for stdin")


def completion(page: ArgumentParser) -> None:
    page.add_argument("shell", choices=("bash", "zsh"), help="which shell")


def demo(page: ArgumentParser) -> None:
    page.add_argument("--keep", action="store_true", help="leave the demo's folder as it is")


def _route(text: str) -> str:
    """Anything else would be another request than the one that was typed."""
    if not text.isascii() or not text.isprintable() or " " in text or not text:
        raise ArgumentTypeError(f"no route: {text!a}")
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ArgumentTypeError(f"expected a number from 1, got `{text}`")
    return int(text)


def _seconds(text: str) -> float:
    from memoryd.config import duration  # noqa: PLC0415  only `pause` has one

    try:
        return float(duration(text))
    except ValueError as fault:
        raise ArgumentTypeError(str(fault)) from fault
