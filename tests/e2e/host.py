"""Drives the real client: print mode, and an interactive session in tmux.

Everything it starts is isolated: its own home, config folder and terminal server, a made-up key, and a
local Messages API. Waiting is done on what shows on the screen, with a limit.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from e2e.install_host import CLIENT_VERSION, installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

API_KEY = "sk-made-up-for-tests"

PRINT_LIMIT = 60.0
SCREEN_LIMIT = 30.0
"""Seconds until a test gives up."""

POLL = 0.05
"""Seconds between two looks at the screen: a terminal tells nobody that it changed."""

INPUT_BOX = re.compile(r"─{20,}[^\n]*\n❯\s*(?P<text>[^─]*?)\s*\n[^\n]*─{20,}")  # noqa: RUF001


def find_client() -> Path:
    """The client's program: MEMORYD_TEST_CLAUDE, else what `make test` installed."""
    named = os.environ.get("MEMORYD_TEST_CLAUDE", "")
    found = Path(named) if named else installed()
    if found is None:
        raise FileNotFoundError("the real client is missing: python tests/e2e/install_host.py")
    return found


@dataclass(frozen=True, slots=True)
class Host:
    """One isolated person with one project folder; `folder` holds everything."""

    folder: Path
    api_url: str
    plugin: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    """Environment beside the isolated one."""
    program: Path = field(default_factory=find_client)

    @classmethod
    def make(cls, folder: Path, api_url: str, **more: Any) -> Self:
        """A home in which the first-run questions were answered for the project."""
        host = cls(folder, api_url, **more)
        host.project.mkdir(parents=True)
        host.config.mkdir(parents=True)
        host.trust(host.project)
        return host

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def config(self) -> Path:
        return self.home / ".claude"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the client: nothing of the tests' own but the search path."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": self.api_url,
            "ANTHROPIC_API_KEY": API_KEY,
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **self.extra,
        }

    def trust(self, *directories: Path) -> None:
        """Answer beforehand what an interactive session would ask when it starts there."""
        answered = {
            "numStartups": 3,
            "hasCompletedOnboarding": True,
            "lastOnboardingVersion": CLIENT_VERSION,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
            "projects": {
                str(directory): {
                    "hasTrustDialogAccepted": True,
                    "hasCompletedProjectOnboarding": True,
                    "projectOnboardingSeenCount": 4,
                }
                for directory in directories
            },
        }
        (self.config / ".claude.json").write_text(json.dumps(answered))
        # Else it asks now and then, in the midst of a session, for another mode as the default.
        settings = {"permissions": {"defaultMode": "default", "disableAutoMode": "disable"}}
        (self.config / "settings.json").write_text(json.dumps(settings))

    def command(self, *arguments: str) -> list[str]:
        loaded = ["--plugin-dir", str(self.plugin)] if self.plugin else []
        return [str(self.program), *loaded, *arguments]

    def print_mode(
        self, prompt: str, *arguments: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`claude -p PROMPT`, to its end."""
        return subprocess.run(
            self.command("-p", prompt, *arguments),
            cwd=cwd or self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PRINT_LIMIT,
            check=False,
        )

    @contextmanager
    def interactive(self, *arguments: str, cwd: Path | None = None) -> Iterator[Terminal]:
        """An interactive session in a terminal of its own, ready for a prompt; killed at the end."""
        with TemporaryDirectory() as folder:
            terminal = Terminal(Path(folder) / "tmux")
            command = shlex.join(self.command(*arguments))
            try:
                terminal.start(command, cwd or self.project, self.environment)
                terminal.wait_ready()
                yield terminal
            finally:
                terminal.kill()

    def transcripts(self) -> list[Path]:
        """The main transcripts of all sessions so far, oldest first."""
        found = (self.config / "projects").glob("*/*.jsonl")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A tmux server of its own with one window; `socket` is its private socket."""

    socket: Path

    def start(self, command: str, cwd: Path, environment: Mapping[str, str]) -> None:
        """Run a shell command in a window of 160 by 50."""
        where = ["-x", "160", "-y", "50", "-c", str(cwd)]
        starting = ["-f", "/dev/null", "new-session", "-d", *where, f"exec {command}"]
        self._tmux(*starting, environment=environment)

    def screen(self) -> str:
        """What shows, with what has scrolled out; empty when the program is gone."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-500", check=False).stdout

    def input(self) -> str | None:
        """What stands in the box for the prompt, wrapped as it shows; None where no box shows."""
        found = list(INPUT_BOX.finditer(self.screen()))
        return found[-1]["text"] if found else None

    def wait_for(self, wanted: str | Callable[[str], bool], seconds: float = SCREEN_LIMIT) -> str:
        """The screen, as soon as it contains `wanted` (or fits it); raises TimeoutError with it."""
        fits = wanted if callable(wanted) else lambda screen: wanted in screen
        self._poll(lambda: fits(self.screen()), f"{wanted!r} does not show", seconds)
        return self.screen()

    def wait_ready(self, seconds: float = SCREEN_LIMIT) -> None:
        """Wait until there is an empty box for a prompt."""
        self._poll(lambda: self.input() is not None, "no box for a prompt", seconds)

    def wait_gone(self, seconds: float = SCREEN_LIMIT) -> None:
        """Wait until the program has ended."""
        self._poll(lambda: not self.alive(), "it does not end", seconds)

    def alive(self) -> bool:
        return self._tmux("has-session", check=False).returncode == 0

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: Enter, Escape, C-c, Up."""
        self._tmux("send-keys", *keys)

    def submit(self, line: str) -> None:
        """Type a prompt or a slash command, and Enter once it stands in the box."""
        self.type(line)
        begin = line[:60]
        self._poll(lambda: (self.input() or "").startswith(begin), f"{begin!r} not typed")
        self.press("Enter")

    def exit(self) -> None:
        """Leave by /exit and wait until the program is gone."""
        self.submit("/exit")
        self.wait_gone()

    def kill(self) -> None:
        """End the terminal, and the program in it by SIGHUP."""
        self._tmux("kill-server", check=False)

    def _poll(
        self, fits: Callable[[], bool], complaint: str, seconds: float = SCREEN_LIMIT
    ) -> None:
        limit = time.monotonic() + seconds
        while not fits():
            if time.monotonic() > limit:
                raise TimeoutError(f"{complaint}:\n{self.screen()}")
            time.sleep(POLL)

    def _tmux(
        self, *arguments: str, environment: Mapping[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["tmux", "-S", str(self.socket), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10.0,
            check=check,
        )
