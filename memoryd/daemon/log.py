"""The daemon's log: structlog to stderr, JSON under a supervisor, readable on a terminal.

Owns the form of every line, and that none can hurt the daemon or give away what a person wrote: a
foreign exception is told by its type and place, never by its words. Knows no file and no message
but the record of a save.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TextIO

from memoryd import paths
from memoryd.core.text import printable
from memoryd.errors import MemorydError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from memoryd.daemon.http import Request
    from memoryd.protocol import RunRecord

Value = str | int | float | bool | list[str]
"""What a line holds: lengths, digests, ids, paths, words of our own."""

Facts = MutableMapping[str, Any]
"""structlog's shape of a line on its way through the processors."""

NAME: Final = "memoryd"
FRAMES = 20
"""Innermost frames of a traceback."""

STANDARD_STREAMS = 3

FILE_LIMIT = 2_000_000
OLD_FILES = 2


def start(
    stream: TextIO | None = None, *, file: Path | None = None, level: int = logging.INFO
) -> None:
    """Write every line from `level` on to `stream` (stderr), foreign warnings of this process too.

    With `file` they go there, at most `FILE_LIMIT` bytes in it and each of `OLD_FILES` older ones.

    structlog itself is loaded with the first line, not before the daemon is ready.
    """
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _QuietHandler):
            root.removeHandler(handler)
    if file is None:
        root.addHandler(_QuietHandler(sys.stderr if stream is None else stream))
    else:
        root.addHandler(_quiet_file(file))
    logging.getLogger(NAME).setLevel(level)


def debug(event: str, **facts: Value) -> None:
    _lines().debug(event, **facts)


def info(event: str, **facts: Value) -> None:
    _lines().info(event, **facts)


def warning(event: str, **facts: Value) -> None:
    _lines().warning(event, **facts)


def failure(event: str, error: BaseException, *, request: Request | None = None) -> None:
    """An error that reached a boundary: type, place, and its words where they are ours."""
    facts: dict[str, Value] = {"error": list(_types(error)), "at": _places(error)}
    if isinstance(error, MemorydError):
        facts["fact"] = str(error)
    elif isinstance(error, OSError):
        facts["fact"] = f"{error.strerror}: {error.filename}"
    if request is not None:
        facts["route"] = f"{request.method} {request.target.partition('?')[0]}"
    expected = isinstance(error, MemorydError)
    (_lines().warning if expected else _lines().error)(event, **facts)


def save_ended(run: RunRecord) -> None:
    """The one line of a save."""
    outcomes = Counter(op.outcome for op in run.ops)
    info(
        "save",
        run=run.id,
        project=run.project,
        session=run.session,
        outcome=run.state,
        reason=run.reason,
        backend=run.backend,
        model=run.model,
        attempts=run.attempts,
        waited=round(max(0.0, run.started_at - run.owed_at), 3),
        took=round(max(0.0, run.ended_at - run.started_at), 3),
        input=run.usage.input,
        cache_read=run.usage.cache_read,
        cache_write=run.usage.cache_write,
        output=run.usage.output,
        ops=[f"{count} {outcome}" for outcome, count in sorted(outcomes.items())],
        topics=len(run.topics),
        merged=run.merged,
        before=run.before[:8],
        after=run.after[:8],
        failure=run.failure,
    )


def fill_standard_streams() -> None:
    """Open /dev/null for each closed standard stream, before anything else opens a file.

    Else a database gets number 2, and a library's cry on stderr lands in it.
    """
    for number in range(STANDARD_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _quiet_file(path: Path) -> logging.Handler:
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415  only a daemon without supervisor

    class QuietFile(_QuietHandler, RotatingFileHandler):
        """A file that stays small."""

    paths.make_dir(path.parent)
    return QuietFile(path, maxBytes=FILE_LIMIT, backupCount=OLD_FILES, encoding="utf-8")


class _QuietHandler(logging.StreamHandler[TextIO]):
    """Drops what it can't write: a full disk and a closed stderr are no fault of the work."""

    def format(self, record: logging.LogRecord) -> str:
        return _formatter(readable=self.stream.isatty()).format(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the library's name
        del record


def _types(error: BaseException) -> Iterator[str]:
    """The error's type, then those inside a group and those behind it."""
    yield type(error).__name__
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inner, error.__cause__):
        if each is not None:
            yield from _types(each)


def _places(error: BaseException) -> list[str]:
    """`file:line function` of the innermost frames, the last one where it was raised."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__", code.co_filename)
        places.append(f"{module}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [*places[-FRAMES:], *(place for each in inner for place in _places(each))][-FRAMES:]


def _structlog() -> ModuleType:
    """Load structlog without rich, which it would load for tracebacks that are never printed.

    The import then takes 15 ms and 1 MB instead of 150 ms and 6 MB.
    """
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]  # how the import system says no
        try:
            import structlog  # noqa: PLC0415
        finally:
            del sys.modules["rich"]
    import structlog.stdlib  # noqa: PLC0415

    return structlog


@cache
def _lines() -> Any:  # noqa: ANN401  structlog's bound loggers are made at run time
    structlog = _structlog()
    stdlib = structlog.stdlib
    return structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[
            stdlib.filter_by_level,
            *_stamps(),
            stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=stdlib.BoundLogger,
    )


@cache
def _formatter(*, readable: bool) -> logging.Formatter:
    structlog = _structlog()
    form = (
        structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
        if readable
        else structlog.processors.JSONRenderer()
    )
    formatter: logging.Formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, form],
        foreign_pre_chain=[_foreign, *_stamps()],
    )
    return formatter


def _stamps() -> list[Any]:
    structlog = _structlog()
    return [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _made_printable,
    ]


def _made_printable(_logger: object, _method: str, line: Facts) -> Facts:
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = printable(value)
        elif isinstance(value, list):
            line[name] = [printable(str(each)) for each in value]
    return line


def _foreign(_logger: object, _method: str, line: Facts) -> Facts:
    """A library's own line: its first words only, and an exception by type and place."""
    line["event"] = str(line["event"]).split("\n", 1)[0]
    trouble = line.pop("exc_info", None)
    if isinstance(trouble, tuple) and isinstance(trouble[1], BaseException):
        line["error"] = list(_types(trouble[1]))
        line["at"] = _places(trouble[1])
    return line
