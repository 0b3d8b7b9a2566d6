"""The page of the settings: a heading for each, with type, default, range and an example."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from docs.pages.markdown import block, code
from docs.pages.markdown import page as whole
from docs.pages.settings_prose import PROJECTS, SETTINGS, Prose
from memoryd.config import Duration, ForkSettings, ProjectSettings, Settings
from memoryd.ctl.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENING = """\
Settings stand in `config.toml`, by default `~/.config/memoryd/config.toml`. `memoryctl config path`
prints where it is, `memoryctl config show` what holds now, `memoryctl config check` names the line
of a fault. No setting is needed, and the file may be missing.

A running daemon takes a changed file without a restart. A file with a fault changes nothing: the
settings from before hold, and `memoryctl status` says what is wrong. At the start such a file is
refused.

A key never stands in this file: name a file or a command that gives it.

A duration is a number and a unit in quotes: `"90 s"`, `"10 min"`, `"1.5 h"`, `"2 d"`, `"500 ms"`."""

EXAMPLE = """\
memory_language = "de"
api_key_file = "~/.config/memoryd/key"

[fork]
backend = "digest"

[projects."~/work/shop"]
name = "shop"
headless = "off\""""

PROJECTS_OPENING = """\
A table for a path holds for every session that starts at or below it; of several tables the one
with the longest path counts. In a linked worktree that no table is for, that of its repository
counts."""

_KINDS: dict[object, str] = {
    bool: "`true` or `false`",
    str: "text",
    int: "whole number",
    float: "number",
    Duration: "duration",
}


def page() -> str:
    """The page as Markdown."""
    return whole("Settings", code("memoryd/config.py"), _parts())


def _parts() -> Iterator[str]:
    yield OPENING
    yield block(EXAMPLE, "toml")
    yield "## Top of the file"
    yield from _table(Settings, "", "", SETTINGS)
    yield "## Table `[fork]`"
    yield from _table(ForkSettings, "fork.", "[fork]", SETTINGS)
    yield '## Tables `[projects."<path>"]`'
    yield PROJECTS_OPENING
    yield from _table(ProjectSettings, "projects.", '[projects."~/work/shop"]', PROJECTS)


def _table(
    table: type[msgspec.Struct], front: str, header: str, prose: dict[str, Prose]
) -> Iterator[str]:
    hints = get_type_hints(table, include_extras=True)
    for field in msgspec.structs.fields(table):
        if field.name in ("fork", "projects"):
            continue
        named = prose[field.name if table is ProjectSettings else f"{front}{field.name}"]
        yield f"### {front}{field.name}"
        yield named.text
        yield _facts(hints[field.name], field.default)
        yield block("\n".join(filter(None, (header, named.example))), "toml")


def _facts(hint: Any, default: object) -> str:  # noqa: ANN401  any annotation
    kind, *limits = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    facts = [f"Type: {_kind(kind)}", *_limits(limits), f"Default: {_value(default)}"]
    return "\n".join(f"- {fact}" for fact in facts)


def _kind(kind: Any) -> str:  # noqa: ANN401  as above
    choices = [each for part in (kind, *get_args(kind)) for each in _choices(part)]
    if choices:
        return " or ".join(code(json.dumps(each)) for each in choices)
    return "list of texts" if get_origin(kind) is tuple else _KINDS[kind]


def _choices(part: Any) -> tuple[str, ...]:  # noqa: ANN401  as above
    return get_args(part) if get_origin(part) is Literal else ()


def _limits(limits: list[Any]) -> Iterator[str]:
    for limit in limits:
        if limit.ge is not None and limit.le is not None:
            yield f"Range: {limit.ge} to {limit.le}"
        elif limit.ge is not None:
            yield f"Range: from {limit.ge:,}"


def _value(value: object) -> str:
    match value:
        case None:
            return "what holds for all"
        case Duration():
            return code(f'"{duration(value)}"')
        case tuple():
            return code(json.dumps(list(value)))
        case _:
            return code(json.dumps(value))
