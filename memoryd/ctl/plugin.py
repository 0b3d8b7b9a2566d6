"""The plugin folder that the host loads: the template with this machine's paths filled in.

Owns which interpreter the hooks run on and how the folder is kept up to date. Knows nothing of what the
hooks say to the daemon.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from memoryd import __version__, paths
from memoryd.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BOOT = """\
import posix, sys
try:
    sys.path.insert(0, sys.argv.pop(1))
    import shim
finally:
    posix._exit(0)
"""
"""How a hook starts the shim: as an import, which takes the compiled file, and else the source.

`python shim.py` would compile the source each time (a fifth of a hook's time), and exit with 2 where
the folder was deleted: the code by which a hook blocks the prompt.
"""

COMPILE_LIMIT = 30.0
"""Seconds that compiling the shim may take."""

FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Places:
    """What the template's names in braces stand for."""

    python: Path
    folder: Path
    socket: Path
    spool: Path

    def fill(self, value: str) -> str:
        """The value that a string of the template stands for; other strings are their own."""
        filled = {
            "{python}": str(self.python),
            "{folder}": str(self.folder),
            "{socket}": str(self.socket),
            "{spool}": str(self.spool),
            "{boot}": BOOT,
            "{version}": __version__,
        }
        return filled.get(value, value)


def plugin_dir(env: Mapping[str, str]) -> Path:
    """The rendered plugin in the state directory, brought up to date.

    Raises UnsafePathError where the state directory is not private, StorageError where it can't be
    written to.
    """
    places = places_for(env)
    paths.require_private_dir(paths.state_dir(env))
    return render(
        places.folder,
        interpreter=places.python,
        socket=places.socket,
        spool=places.spool,
    )


def places_for(env: Mapping[str, str]) -> Places:
    """Where the person's own plugin lies and what its hooks are told; raises UnsafePathError."""
    state = paths.state_dir(env)
    return Places(
        python=hook_interpreter(),
        folder=state / "plugin" / "claude_code",
        socket=paths.socket_path(env),
        spool=paths.spool_dir(state),
    )


def render(target: Path, *, interpreter: Path, socket: Path, spool: Path) -> Path:
    """Make `target` the plugin for this interpreter, socket and spool (all absolute); returns it.

    Files that are right already are left alone, others are replaced whole: a hook that runs meanwhile
    finds the old file or the new one. Raises StorageError.
    """
    try:
        wanted = dict(_filled(template(), Places(interpreter, target, socket, spool)))
        paths.make_dir(target)
        target.chmod(FOLDER_MODE)
        changed = [_replace(target, name, data) for name, data in wanted.items()]
        _remove_others(target, wanted)
    except OSError as error:
        raise StorageError(error.filename or target, "write", error.strerror or "") from error
    except UnicodeEncodeError as error:
        raise StorageError(target, "write", "one of its paths is not UTF-8") from error
    if any(changed) or not any(target.glob("__pycache__/shim.*.pyc")):
        _compile(interpreter, target / "shim.py")
    return target


def shim_command(places: Places, route: str) -> list[str]:
    """The words that start the shim for a route as the hooks start it: for a status line's entry."""
    return [
        *(str(places.python), "-I", "-S", "-B", "-c", BOOT),
        *(str(places.folder), str(places.socket), str(places.spool)),
        route,
    ]


def template() -> Path:
    """The folder as it ships: in the installed package, or in a checkout beside it."""
    package = Path(__file__).parent.parent
    shipped = package / "data" / "clients" / "claude_code"
    return shipped if shipped.is_dir() else package.parent / "clients" / "claude_code"


def hook_interpreter() -> Path:
    """The program that hooks run on: what this environment was made from.

    Not the environment's own link, which is gone when the environment moves, and never a version
    manager's script: what runs us is a real interpreter. Not resolved further, because package managers
    keep a stable link to a folder that changes with each release.
    """
    base = Path(getattr(sys, "_base_executable", "") or sys.executable)
    return base if os.access(base, os.X_OK) else Path(sys.executable).resolve()


def _filled(source: Path, places: Places) -> Iterator[tuple[str, bytes]]:
    for file in sorted(source.rglob("*")):
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        data = file.read_bytes()
        if file.suffix == ".json":
            filled = _fill(json.loads(data), places)
            data = json.dumps(filled, indent=2, ensure_ascii=False).encode() + b"\n"
        yield str(file.relative_to(source)), data


def _fill(value: Any, places: Places) -> Any:  # noqa: ANN401  any JSON value
    if isinstance(value, str):
        return places.fill(value)
    if isinstance(value, list):
        return [_fill(item, places) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, places) for key, item in value.items()}
    return value


def _replace(target: Path, name: str, data: bytes) -> bool:
    """Whether the file had to be written."""
    path = target / name
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    # Beside the folder: another process that renders it removes what does not belong there.
    with NamedTemporaryFile(dir=target.parent, prefix=f".{path.name}.", delete=False) as temporary:
        temporary.write(data)
    Path(temporary.name).replace(path)
    return True


def _remove_others(target: Path, wanted: Mapping[str, bytes]) -> None:
    """Files of an older version's template would still be loaded by the host."""
    for file in target.rglob("*"):
        name = file.relative_to(target)
        if file.is_file() and name.parts[0] != "__pycache__" and str(name) not in wanted:
            file.unlink(missing_ok=True)


def _compile(interpreter: Path, shim: Path) -> None:
    """Let the hooks' own interpreter compile the shim; where it can't, hooks run from the source."""
    command = [str(interpreter), "-I", "-S", "-m", "py_compile", str(shim)]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603  our own interpreter and file
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMPILE_LIMIT,
        )
