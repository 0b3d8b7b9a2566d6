"""`memoryd`: the daemon in the foreground, as a supervisor or `memoryctl start` runs it.

Ends with 0 after a stop, 75 where another daemon runs, 78 where a configuration is refused. Takes the
locks before anything heavy is imported, so that the losers of a race cost little.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from memoryd import __version__, config, paths
from memoryd.errors import AlreadyRunningError, ConfigError, MemorydError, UnsafePathError

EX_TEMPFAIL = 75
EX_CONFIG = 78
"""Of sysexits.h."""


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Serve until told to stop; the exit code."""
    log_file = _log_file(arguments) if arguments else None
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold the API key
    try:
        return _serve(config.load(os.environ), log_file)
    except AlreadyRunningError as error:
        return _refuse(error, EX_TEMPFAIL)
    except (ConfigError, UnsafePathError) as error:
        return _refuse(error, EX_CONFIG)
    except MemorydError as error:
        return _refuse(error, 1)


def _log_file(arguments: list[str]) -> Path | None:
    import argparse  # noqa: PLC0415  a supervisor gives no arguments, and each start would pay for it

    parser = argparse.ArgumentParser(prog="memoryd", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"memoryd {__version__}")
    parser.add_argument("--log-file", type=Path, help="write the log there instead of to stderr")
    found: Path | None = parser.parse_args(arguments).log_file
    return found


def _serve(settings: config.Config, log_file: Path | None) -> int:
    from memoryd.daemon import instance, log  # noqa: PLC0415  the losers of a race need no more

    log.fill_standard_streams()

    state = paths.state_dir(os.environ)
    with instance.hold(state, settings.memory_root) as held:
        from memoryd.daemon import app  # noqa: PLC0415

        return app.serve(os.environ, settings, held, log_file)


def _refuse(error: MemorydError, code: int) -> int:
    hint = f"\ntry: {error.hint}" if error.hint else ""
    print(f"memoryd: {error}{hint}", file=sys.stderr)  # noqa: T201  the log is not open yet
    return code


if __name__ == "__main__":
    main()
