"""The demo's private folder: a home, a project, a daemon of its own; nothing of it outlives the demo.

Owns what the demo's daemon and hooks may see of the machine: the search path and the language.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd import paths
from memoryd.ctl import process
from memoryd.errors import NotRunningError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROJECT = "tide"

PASSED_ON = ("PATH", "LANG", "TZ", "LC_ALL", "LC_CTYPE")

API_KEY = "made-up-key-of-the-demo"


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything below `folder`."""

    folder: Path
    passed_on: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / PROJECT

    @property
    def env(self) -> dict[str, str]:
        """The environment of the demo's memoryctl, and so of its daemon."""
        return {
            **self.passed_on,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / ".local" / "state"),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "MEMORYD_SOCKET": str(self.folder / "memoryd.sock"),
        }

    @property
    def host_env(self) -> dict[str, str]:
        """What the host's environment is for its hooks, but for the session's id."""
        return {
            **self.passed_on,
            "HOME": str(self.home),
            "CLAUDECODE": "1",
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "CLAUDE_PROJECT_DIR": str(self.project),
            "CLAUDE_PID": str(os.getpid()),
            "CLAUDE_CODE_ENTRYPOINT": "cli",
            "CLAUDE_CODE_SESSION_ATTENDED": "1",
        }

    def configure(self, api_url: str) -> None:
        """A config that asks the scripted model, and a key for it that only its owner can read."""
        file = paths.config_file(self.env)
        file.parent.mkdir(parents=True)
        key = file.with_name("key")
        key.touch(mode=0o600)
        key.write_text(API_KEY)
        file.write_text(
            f'base_url = "{api_url}"\napi_key_file = "{key}"\n\n[fork]\nbackend = "digest"\n'
        )


@contextmanager
def stage(env: Mapping[str, str], *, keep: bool) -> Iterator[Stage]:
    """A stage with its project; at the end the daemon is stopped and, unless `keep`, all removed."""
    folder = Path(tempfile.mkdtemp(prefix="memoryd-demo-")).resolve()
    found = Stage(folder, {name: env[name] for name in PASSED_ON if name in env})
    try:
        found.home.mkdir(mode=0o700)
        _make_repository(found.project)
        yield found
    finally:
        with suppress(NotRunningError):  # it never came up, or ended by itself
            process.stop(found.env)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _make_repository(project: Path) -> None:
    """What makes a folder a git repository, so that the demo needs no git."""
    git = project / ".git"
    for name in ("objects", "refs/heads"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
