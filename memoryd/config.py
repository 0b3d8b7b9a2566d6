"""Settings: `config.toml` read into one frozen value.

Owns every setting's name, type, default and range, and the sentence for a wrong one with its line.
Holds no secret: keys come from the environment, `api_key_file` or `api_key_command`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from memoryd import paths
from memoryd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Headless = Literal["full", "load", "off"]
OnConcurrentEdit = Literal["rebase", "drop"]
ForkBackendName = Literal["auto", "claude", "digest"]
Worktrees = Literal["shared", "separate"]

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)\Z")

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class Duration(float):
    """Seconds; written `10 min` or `90 s` in the config (ms, s, min, h, d)."""

    __slots__ = ()


def duration(text: str) -> Duration:
    """Seconds of `10 min`, `90 s`, `1.5 h`; raises ValueError that says the form."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise ValueError(f"expected a duration such as `10 min` or `90 s`, got `{text}`")
    return Duration(float(found[1]) * _UNITS[found[2]])


class ForkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[fork]`."""

    backend: ForkBackendName = "auto"
    model: str = ""
    """Model of the `claude` backend; empty: the session's own."""
    deadline: Duration = Duration(180)
    worker_idle: Duration = Duration(60)
    digest_model: str = "claude-haiku-5-5"
    digest_tokens: Annotated[int, msgspec.Meta(ge=2000)] = 90_000
    """Most tokens of conversation in one digest (estimated from characters)."""


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[projects."<path>"]`: what holds for sessions at or below that path."""

    name: str = ""
    off: bool = False
    worktrees: Worktrees | None = None
    headless: Headless | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written; every key has its heading in docs/reference/settings.md."""

    memory_root: str = ""
    memory_language: str = "en"
    language_note: bool = True
    headless: Headless = "full"
    gate: Literal["never"] = "never"
    idle_save_after: Duration = Duration(600)
    max_parallel_saves: Positive = 2
    max_saves_per_hour: Positive = 30
    on_concurrent_edit: OnConcurrentEdit = "rebase"
    max_removal: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    critical_rules_need_quote: bool = True
    join_clones: bool = True
    worktrees: Worktrees = "shared"
    exclude: tuple[str, ...] = ()
    retention_days: Positive = 90
    max_state_mb: Positive = 200
    retry_for: Duration = Duration(1800)
    api_key_command: str = ""
    api_key_file: str = ""
    base_url: str = ""
    https_proxy: str = ""
    ca_bundle: str = ""
    fork: ForkSettings = ForkSettings()
    projects: dict[str, ProjectSettings] = {}


@dataclass(frozen=True, slots=True)
class Config:
    """Settings together with the paths that follow from them and the environment."""

    file: Path
    settings: Settings
    memory_root: Path
    home: Path

    def project_settings(self, directory: Path) -> ProjectSettings:
        """The table of the nearest path at or above `directory`; the defaults where there is none."""
        best: tuple[int, ProjectSettings] = (-1, ProjectSettings())
        for pattern, table in self.settings.projects.items():
            path = _expanded(pattern, self.home)
            if directory == path or path in directory.parents:
                best = max(best, (len(path.parts), table), key=lambda pair: pair[0])
        return best[1]

    def excludes(self, directory: Path) -> bool:
        """Whether `directory` or a parent of it matches a glob of `exclude`, or its table says off."""
        if self.project_settings(directory).off:
            return True
        names = [str(directory), *(str(parent) for parent in directory.parents)]
        globs = [str(_expanded(glob, self.home)) for glob in self.settings.exclude]
        return any(fnmatchcase(name, glob) for glob in globs for name in names)


def load(env: Mapping[str, str]) -> Config:
    """The person's config; a missing file gives the defaults. Raises ConfigError with the line."""
    file = paths.config_file(env)
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        text = b""
    except OSError as error:
        raise ConfigError(file, 0, f"cannot be read: {error.strerror}") from error
    return parse(text, file, env)


def parse(data: bytes, file: Path, env: Mapping[str, str]) -> Config:
    """The settings that `data` (TOML, UTF-8) holds; raises ConfigError with the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(file, data.count(b"\n", 0, error.start) + 1, "not UTF-8") from error
    raw = _tables(text, file) if text.strip() else {}
    try:
        settings = msgspec.convert(raw, Settings, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ConfigError(file, *_setting_fault(str(error), text)) from error
    named = env.get("MEMORYD_MEMORY_ROOT", "") or settings.memory_root
    root = paths.expand(named, env) if named else paths.default_memory_root(env)
    return Config(file, settings, Path(os.path.normpath(root)), paths.home(env))


def _tables(text: str, file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  most people have no config file, and each start would pay for it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(file, *_toml_fault(str(error))) from error


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401  the signature msgspec asks for
    if kind is Duration:
        if isinstance(value, str):
            return duration(value)
        raise ValueError("expected a duration such as `10 min` or `90 s`")
    raise NotImplementedError(kind)


def _toml_fault(message: str) -> tuple[int, str]:
    found = re.search(r" \(at line (\d+), column \d+\)\Z", message)
    if found is None:
        return 0, message
    return int(found[1]), message[: found.start()]


def _setting_fault(message: str, text: str) -> tuple[int, str]:
    """The line and fact of a fault that names a path (`$.fork.model`) or an unknown field."""
    unknown = re.search(r"unknown field `([^`]+)`", message)
    path = re.search(r" - at `\$\.?([^`]*)`\Z", message)
    steps = [step for step in re.split(r"[.\[]", path[1]) if step] if path else []
    fact = message[: path.start()] if path else message
    if unknown:
        steps.append(unknown[1])
        fact = f"unknown setting `{'.'.join(steps)}`"
    elif steps:
        fact = f"`{'.'.join(steps)}`: {fact[0].lower()}{fact[1:]}"
    return _line_of(steps, text), fact


def _line_of(steps: list[str], text: str) -> int:
    table = steps[0] if len(steps) > 1 else ""
    current = ""
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[\s*\"?([A-Za-z0-9_-]+)", line)
        current = header[1] if header else current
        names_key = re.match(rf"\s*\"?{re.escape(steps[-1])}\"?\s*=", line) if steps else None
        names_table = header and steps and header[1] == steps[-1]
        if (names_key and current == table) or names_table:
            return number
    return 0


def _expanded(pattern: str, base: Path) -> Path:
    if pattern == "~" or pattern.startswith("~/"):
        pattern = f"{base}{pattern[1:]}"
    return base / pattern
