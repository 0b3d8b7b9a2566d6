"""Commands that need no daemon: apply, plugin-dir, config, completion, demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd.ctl.commands import NotTypedError
from memoryd.errors import NotUtf8Error

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import BinaryIO

    from memoryd.ctl.apply import Answer, Case
    from memoryd.ctl.shell import Shell

STDIN = "-"


def apply(typed: Namespace, shell: Shell) -> int:
    """The new text on stdout, the event on stderr; exit 1 where the reply was not taken."""
    if typed.jsonl is not None:
        return _apply_lines(typed, shell)
    if typed.memory is None or typed.reply is None:
        hint = "memoryctl apply MEMORY.md reply.txt"
        raise NotTypedError("a memory file and a reply are needed", hint)
    from memoryd.ctl import apply as rules  # noqa: PLC0415  it imports the whole core of a save

    case = _case(typed, shell)
    found = rules.answer(case)
    if typed.json:
        import msgspec  # noqa: PLC0415  as above

        shell.json(msgspec.json.encode(found))
    else:
        _show_answer(found, case, shell)
    return 1 if found.outcome in ("unreadable", "not_written", "held") else 0


def _show_answer(found: Answer, case: Case, shell: Shell) -> None:
    text = case.memory if found.text is None else found.text
    if text is not None:
        shell.text(text)
    if found.event:
        from memoryd.core.memory.files import FAILED_REPLY_FILE  # noqa: PLC0415  as in `apply`

        # A save keeps the reply; here it stays where it came from.
        shell.note(found.event.removesuffix(f"; kept in {FAILED_REPLY_FILE}"))
    if found.error and (not found.event or found.error not in found.event):
        shell.note(f"error: {found.error}")
    for topic in found.topics:
        shell.note(f"{topic.file}: {len(topic.append)} characters to append (--json shows them)")


def _case(typed: Namespace, shell: Shell) -> Case:
    from memoryd.ctl.apply import Case  # noqa: PLC0415  as in `apply`

    path = Path(typed.memory)
    said = [_text(Path(name)) for name in typed.typed or ()]
    return Case(
        project=typed.project or path.absolute().parent.name or "project",
        memory=_text(path) if path.exists() else None,
        reply=_decoded(shell.stdin.read(), Path("stdin"))
        if typed.reply == STDIN
        else _text(Path(typed.reply)),
        typed=tuple(said) if typed.typed else None,
    )


def _apply_lines(typed: Namespace, shell: Shell) -> int:
    from memoryd.ctl.apply import answers  # noqa: PLC0415  as in `apply`

    for answer in answers(_lines(typed.jsonl, shell)):
        shell.out.write(f"{answer}\n")
        shell.out.flush()
    return 0


def _lines(name: str, shell: Shell) -> Iterator[bytes]:
    if name == STDIN:
        yield from _whole_lines(shell.stdin)
        return
    with Path(name).open("rb") as file:
        yield from _whole_lines(file)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines as they come; binary files end them at `\\n` alone."""
    while line := file.readline():
        yield line


def _text(path: Path) -> str:
    return _decoded(path.read_bytes(), path)


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise NotUtf8Error(path, fault.start) from fault


def plugin_dir(_: Namespace, shell: Shell) -> int:
    """The rendered plugin's folder."""
    from memoryd.ctl import plugin  # noqa: PLC0415  only here

    folder = str(plugin.plugin_dir(shell.env))
    # As bytes: the folder's name goes into a command line, whatever it holds.
    shell.out.flush()
    shell.out.buffer.write(folder.encode(sys.getfilesystemencoding(), "surrogateescape") + b"\n")
    return 0


def config(typed: Namespace, shell: Shell) -> int:
    """The settings that hold, the file's path, or that it is right."""
    from memoryd import config as settings  # noqa: PLC0415  only here
    from memoryd import paths  # noqa: PLC0415
    from memoryd.ctl import settings_text  # noqa: PLC0415

    file = paths.config_file(shell.env)
    if typed.what == "path":
        shell.say(str(file))
        return 0
    found = settings.load(shell.env)
    if typed.what == "check":
        there = "is right" if file.exists() else "is not there: the defaults hold"
        shell.say(f"{file} {there}")
    elif typed.json:
        shell.json(settings_text.as_json(found))
    else:
        shell.show(settings_text.screen(found, shell.env))
    return 0


def completion(typed: Namespace, shell: Shell) -> int:
    """A completion script."""
    from memoryd.ctl import completion as scripts  # noqa: PLC0415  only here

    shell.out.write(scripts.script(typed.shell))
    return 0


def demo(typed: Namespace, shell: Shell) -> int:
    """The demo, step by step."""
    from memoryd.demo.play import play  # noqa: PLC0415  only here

    return play(shell, keep=typed.keep)
