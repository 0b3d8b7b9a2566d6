"""Where things lie: socket, state, config, memory.

Owns the rules of which path is taken; `daemon`, `memoryctl` and the rendered plugin all ask here, so
that they can't disagree. Knows environment variables and directory modes, opens no file.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from memoryd.errors import UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_PATH_LIMIT = 103
"""Bytes of a socket's path that every system takes (macOS: 104 with the final NUL)."""

ANY_ACCESS_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def home(env: Mapping[str, str]) -> Path:
    """The person's home: `HOME` where it is absolute, else the account's."""
    value = env.get("HOME", "")
    return Path(value) if value.startswith("/") else Path("~").expanduser()


def state_dir(env: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/memoryd`, else `~/.local/state/memoryd`; a relative value counts as unset."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state") / "memoryd"


def config_file(env: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/memoryd/config.toml`, else below `~/.config`."""
    return _xdg(env, "XDG_CONFIG_HOME", ".config") / "memoryd" / "config.toml"


def default_memory_root(env: Mapping[str, str]) -> Path:
    """The place that existing users already have: `~/.cli-tweaks/memory`."""
    return home(env) / ".cli-tweaks" / "memory"


def expand(value: str, env: Mapping[str, str]) -> Path:
    """A path or glob from the config: `~` and `$NAME` replaced; a relative one counts from the home."""
    value = Template(value).safe_substitute(env)
    if value == "~" or value.startswith("~/"):
        value = f"{home(env)}{value[1:]}"
    return home(env) / value


def socket_path(env: Mapping[str, str]) -> Path:
    """The daemon's socket, at most `SOCKET_PATH_LIMIT` bytes long.

    `MEMORYD_SOCKET`, else `$XDG_RUNTIME_DIR/memoryd.sock` where that directory is private and ours,
    else `<state dir>/memoryd.sock`; where that is too long, a short private directory below /tmp whose
    name follows from the uid and the long path.

    Raises UnsafePathError where `MEMORYD_SOCKET` is not absolute.
    """
    named = env.get("MEMORYD_SOCKET", "")
    if named and not named.startswith("/"):
        raise UnsafePathError(Path(named), "MEMORYD_SOCKET must be an absolute path")
    return _fitting(Path(named) if named else _runtime_or_state(env))


def control_path(state: Path) -> Path:
    """The second socket, in the state directory: it is found when the first was deleted.

    Another daemon asks there for a hand-over, and memoryctl falls back to it.
    """
    return _fitting(state / "control.sock")


def spool_dir(state: Path) -> Path:
    """Where shims leave requests that they could not deliver."""
    return state / "spool"


def private_dir_fault(path: Path) -> str:
    """Why `path` is no private directory of ours, or an empty string when it is one."""
    try:
        found = path.lstat()
    except OSError as error:
        return error.strerror or "not readable"
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is no directory"
    if found.st_uid != os.geteuid():
        return f"belongs to uid {found.st_uid}"
    if found.st_mode & ANY_ACCESS_OF_OTHERS:
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def make_dir(path: Path) -> None:
    """Make `path` and what is missing above it, all with mode 0700; raises OSError."""
    # `parents` of `mkdir` takes the umask's word: 000 left a parent that everybody can write to.
    if not path.parent.exists():
        make_dir(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def require_private_dir(path: Path) -> None:
    """Make `path` (mode 0700) where it is missing; raises UnsafePathError where it isn't private."""
    try:
        make_dir(path)
    except OSError as error:
        raise UnsafePathError(path, error.strerror or "cannot be made") from error
    if fault := private_dir_fault(path):
        raise UnsafePathError(path, fault, hint=f"chmod 700 '{path}'")


def require_safe_parents(path: Path) -> None:
    """Raises UnsafePathError where somebody else could swap a parent of `path`.

    A sticky directory that root or we own (such as /tmp) is safe: others can't rename in it.
    """
    for parent in path.parents:
        try:
            found = parent.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnsafePathError(parent, error.strerror or "not readable") from error
        if found.st_uid not in (0, os.geteuid()):
            raise UnsafePathError(parent, f"belongs to uid {found.st_uid}")
        # group write stays allowed: private groups (umask 002) make every directory so
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise UnsafePathError(parent, "is writable by everybody", hint=f"chmod o-w '{parent}'")


def _xdg(env: Mapping[str, str], name: str, default: str) -> Path:
    value = env.get(name, "")
    return Path(value) if value.startswith("/") else home(env) / default


def _runtime_or_state(env: Mapping[str, str]) -> Path:
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and not private_dir_fault(Path(runtime)):
        return Path(runtime) / "memoryd.sock"
    return state_dir(env) / "memoryd.sock"


def _fitting(path: Path) -> Path:
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
        return path
    digest = sha256(os.fsencode(path)).hexdigest()[:12]
    return Path(f"/tmp/memoryd-{os.geteuid()}") / f"{digest}.sock"  # noqa: S108  checked private
