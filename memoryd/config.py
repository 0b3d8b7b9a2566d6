"""Settings: `config.toml` read into one frozen value.

Owns every setting's name, type, default and range, and the sentence for a wrong one with its line.
Holds no secret: keys come from the environment, `api_key_file` or `api_key_command`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
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
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|h|d)\Z")

_WILD = re.compile(r"[*?\[]")

_PATHS = ("memory_root", "api_key_file", "ca_bundle")

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
    env: Mapping[str, str] = field(repr=False)

    @property
    def home(self) -> Path:
        """The person's."""
        return paths.home(self.env)

    def project_settings(self, *places: Path) -> ProjectSettings:
        """The table of the nearest path at or above the first of `places` that there is one for.

        A directory comes before the repository it is a linked worktree of. The defaults without any.
        """
        for place in places if self.settings.projects else ():
            if (table := self._table(place)) is not None:
                return table
        return ProjectSettings()

    def headless(self, *places: Path) -> Headless:
        """What `-p` and SDK sessions may do there; `places` as in `project_settings`."""
        return self.project_settings(*places).headless or self.settings.headless

    def excludes(self, *places: Path) -> bool:
        """Whether one of `places` or a parent of it matches `exclude`, or their table says off."""
        if self.project_settings(*places).off:
            return True
        if not self.settings.exclude:
            return False
        names = [str(path) for place in places for path in _above(place)]
        globs = [paths.expand(glob, self.env) for glob in self.settings.exclude]
        spelled = [str(path) for glob in globs for path in _spellings(glob)]
        return any(fnmatchcase(name, glob) for glob in spelled for name in names)

    def tells_directories_apart(self) -> bool:
        """Whether anything in it holds for some directories only."""
        return bool(self.settings.exclude or self.settings.projects)

    def _table(self, directory: Path) -> ProjectSettings | None:
        best: tuple[int, ProjectSettings | None] = (-1, None)
        above = _above(directory)
        for pattern, table in self.settings.projects.items():
            for path in _spellings(paths.expand(pattern, self.env)):
                if path in above:
                    best = max(best, (len(path.parts), table), key=lambda pair: pair[0])
        return best[1]


def load(env: Mapping[str, str]) -> Config:
    """The person's config; a missing file gives the defaults. Raises ConfigError with the line."""
    file = paths.config_file(env)
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        text = b""
    except OSError as error:
        fact, hint = f"cannot be read: {error.strerror}", f"ls -ld '{file}'"
        raise ConfigError(file, 0, fact, hint=hint) from error
    return parse(text, file, env)


def parse(data: bytes, file: Path, env: Mapping[str, str]) -> Config:
    """The settings that `data` (TOML, UTF-8) holds; raises ConfigError with the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(file, data.count(b"\n", 0, error.start) + 1, "not UTF-8") from error
    raw = _tables(text, file) if text.strip() else {}
    try:
        settings = _settings(raw)
    except ValueError as error:
        raise _located(text, file) from error
    named = env.get("MEMORYD_MEMORY_ROOT", "") or settings.memory_root
    root = paths.expand(named, env) if named else paths.default_memory_root(env)
    return Config(file, settings, Path(os.path.normpath(root)), env)


def _tables(text: str, file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  most people have no config file, and each start would pay for it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(file, *_toml_fault(str(error), text)) from error


def _settings(raw: dict[str, Any]) -> Settings:
    """Raises ValueError."""
    settings = msgspec.convert(raw, Settings, dec_hook=_decode)
    for name in _PATHS:
        if "\0" in getattr(settings, name):
            raise ValueError(f"no path can hold a NUL - at `$.{name}`")
    return settings


def _decode(kind: type, value: Any) -> Any:  # noqa: ANN401  the signature msgspec asks for
    if kind is Duration:
        if isinstance(value, str):
            return duration(value)
        raise ValueError("expected a duration such as `10 min` or `90 s`")
    raise NotImplementedError(kind)


def _toml_fault(message: str, text: str) -> tuple[int, str]:
    if found := re.search(r" \(at line (\d+), column \d+\)\Z", message):
        return int(found[1]), message[: found.start()]
    end = " (at end of document)"
    return (text.count("\n") + 1 if message.endswith(end) else 0), message.removesuffix(end)


def _located(text: str, file: Path) -> ConfigError:
    """The first wrong setting with its line: that of the shortest beginning in which it is wrong."""
    lines = text.split("\n")
    for number in range(1, len(lines) + 1):
        try:
            raw = _tables("\n".join(lines[:number]), file)
        except ConfigError:
            continue  # in the middle of a value
        try:
            _settings(raw)
        except ValueError as error:
            return ConfigError(file, number, _setting_fault(str(error), raw))
    raise AssertionError("the whole text is wrong, and so its last beginning")


def _setting_fault(message: str, raw: dict[str, Any]) -> str:
    """What is wrong, without the path (`$.fork.model`) by which msgspec names a setting."""
    unknown = re.search(r"unknown field `([^`]+)`", message)
    path = re.search(r" - at `\$\.?([^`]*)`\Z", message)
    name = re.sub(r"\[\d+\]", "", path[1]) if path else ""
    if "[...]" in name:
        name = name.replace("[...]", f'."{_wrong_project(raw)}"')
    if unknown:
        return (
            f"unknown setting `{name}.{unknown[1]}`" if name else f"unknown setting `{unknown[1]}`"
        )
    fact = message[: path.start()] if path else message
    return f"`{name}`: {fact[0].lower()}{fact[1:]}" if name else fact


def _wrong_project(raw: dict[str, Any]) -> str:
    for name, table in raw["projects"].items():
        try:
            msgspec.convert(table, ProjectSettings)
        except msgspec.ValidationError:
            return str(name)
    raise AssertionError("one of them is wrong")


def _above(directory: Path) -> tuple[Path, ...]:
    """The directory and its parents, as it was given and with links followed."""
    return tuple(path for each in _spellings(directory) for path in (each, *each.parents))


def _spellings(path: Path) -> tuple[Path, ...]:
    """A path or glob as it was given, and with the links in front of any wildcard followed."""
    plain = next((at for at, part in enumerate(path.parts) if _WILD.search(part)), len(path.parts))
    real = Path(os.path.realpath(Path(*path.parts[:plain])), *path.parts[plain:])
    return (path,) if real == path else (path, real)
