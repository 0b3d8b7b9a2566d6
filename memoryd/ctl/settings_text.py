"""The settings that hold, as `config show` prints them: valid TOML, defaults marked.

Owns the writing of values; which settings there are, and what they mean, is `config`'s.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from memoryd.config import Duration, ForkSettings, ProjectSettings, Settings
from memoryd.ctl.render import Gap, Say, Span
from memoryd.ctl.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memoryd.config import Config
    from memoryd.ctl.render import Element, Line

Value = str | int | float | bool | tuple[str, ...] | None
"""What one setting may be."""


def as_json(found: Config) -> bytes:
    """The settings as one JSON object; a duration in seconds."""
    return msgspec.json.encode(found.settings, enc_hook=_encode)


def screen(found: Config, env: Mapping[str, str]) -> list[Element]:
    """The file as it could be written to mean the same."""
    settings = found.settings
    where = "" if found.file.exists() else " (not there: the defaults hold)"
    elements: list[Element] = [Say((Span(f"# {found.file}{where}", "faint"),))]
    by = ", as MEMORYD_MEMORY_ROOT says" if env.get("MEMORYD_MEMORY_ROOT") else ""
    elements.append(Say((Span(f"# the memory lies in {found.memory_root}{by}", "faint"),)))
    elements += map(Say, _table(settings, Settings()))
    elements += [Gap(), Say((Span("[fork]"),)), *map(Say, _table(settings.fork, ForkSettings()))]
    for path, table in settings.projects.items():
        elements += [Gap(), Say((Span(f"[projects.{_toml(path)}]"),))]
        elements += map(Say, _table(table, ProjectSettings()))
    return elements


def _table(table: msgspec.Struct, default: msgspec.Struct) -> Iterator[Line]:
    for name in table.__struct_fields__:
        value, usual = getattr(table, name), getattr(default, name)
        if isinstance(value, msgspec.Struct | dict) or value is None:
            continue
        text = f"{name} = {_toml(value)}"
        yield (
            (Span(text, "faint"), Span("  # default", "faint")) if value == usual else (Span(text),)
        )


def _toml(value: Value) -> str:
    match value:
        case Duration():
            return f'"{duration(value)}"'
        case bool():
            return "true" if value else "false"
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            # A JSON string is a TOML string but for DEL, which stands in no path worth showing.
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _encode(value: Any) -> float:  # noqa: ANN401  the signature msgspec asks for
    if isinstance(value, Duration):
        return float(value)
    raise NotImplementedError(type(value))
