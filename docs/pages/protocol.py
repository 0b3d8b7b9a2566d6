"""The page of the protocol: every message with its route, its fields and what answers it."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from docs.pages import source
from docs.pages.markdown import block, code, paragraph, table
from docs.pages.markdown import page as whole
from memoryd import protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE = "memoryd/protocol.py"
HANDLERS = ("memory", "turns", "admin")

OPENING = """\
The daemon speaks HTTP/1.1 with JSON bodies on a Unix socket and opens no port. `memoryctl status
-v` names the socket. `memoryctl raw` sends one request as it is, and so does anything else that can
reach it:"""

EXAMPLE = """\
memoryctl raw GET status
curl --unix-socket ~/.local/state/memoryd/memoryd.sock http://memoryd/v1/version"""

RULES = """\
- A `POST` carries its message as the body, a `GET` as the query. Unknown fields are ignored; a
  field with its default may be left out, and the daemon leaves it out too.
- Every answer has the status 200 and a message, or nothing where there is nothing to say. From
  status 400 on it is a [Problem](#problem); [errors.md](errors.md) lists the codes.
- Within a generation fields are added with defaults, and nothing is renamed or removed. A request
  for another generation is answered with which side to update.
- The process on the other side has to belong to the same user; others are not answered.
- A connection that sends nothing for 10 seconds is closed, and a request has 10 seconds to be
  complete. A stream, and a connection whose answer is awaited, are left alone."""

REPLIES = {
    "RawAnswer": "the text that the caller prints, or nothing",
    "Stream": "[RunChanged](#runchanged) and [EventShown](#eventshown), a JSON line each",
    "None": "nothing",
}

SHIM = """\
A shim sends the host's event as it came and says the rest in three headers; each further one would cost
the daemon as much as the whole body. Only what is there is sent. Values of the environment are the hex of
their bytes, so that none can end a header."""


def page() -> str:
    """The page as Markdown."""
    return whole("Protocol", code(FILE), _parts())


def _parts() -> Iterator[str]:
    yield paragraph(protocol.__doc__)
    yield OPENING
    yield block(EXAMPLE, "sh")
    yield RULES
    yield "## Numbers"
    yield _constants()
    yield "## Choices"
    yield _choices()
    yield "## Routes"
    yield _routes()
    yield from _section("Hook events", _routed("POST", hook=True))
    yield from _section("Commands", _routed("POST", hook=False))
    yield from _section("Reads", _routed("GET", hook=False))
    yield from _section("Replies and parts", _rest())
    yield "## Headers of a shim"
    yield SHIM
    yield "### ShimHeaders"
    yield from _message(protocol.ShimHeaders)


def _constants() -> str:
    notes = source.notes(source.tree(FILE).body)
    names = [name for name in vars(protocol) if name.isupper() and name != "ROUTES"]
    values = ((name, getattr(protocol, name)) for name in names)
    return table(
        ("Name", "Value", "What"),
        ((code(name), code(_number(value)), notes.get(name, "")) for name, value in values),
    )


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _choices() -> str:
    notes = source.notes(source.tree(FILE).body)
    rows = [
        (code(name), ", ".join(code(choice) for choice in get_args(value)), notes.get(name, ""))
        for name, value in vars(protocol).items()
        if _is_choice(value)
    ]
    return table(("Name", "One of", "What"), rows)


def _is_choice(value: object) -> bool:
    arguments = get_args(value)
    return bool(arguments) and all(isinstance(each, str) for each in arguments)


def _routes() -> str:
    answers = _answers()
    rows = [
        (
            code(f"{method} /v{protocol.GENERATION}/{name}"),
            _link(kind.__name__),
            _reply(kind, answers),
        )
        for (method, name), kind in protocol.ROUTES.items()
    ]
    return table(("Route", "Message", "Answer"), rows)


def _answers() -> dict[str, str]:
    """What each handler says that it returns, by the type that it takes."""
    found: dict[str, str] = {}
    for room in HANDLERS:
        for defined in source.classes(f"memoryd/daemon/handlers/{room}.py").values():
            for node in defined.body:
                public = isinstance(node, ast.AsyncFunctionDef) and node.name[0] != "_"
                if isinstance(node, ast.AsyncFunctionDef) and public and node.returns:
                    taken = node.args.args[1].annotation
                    assert taken is not None
                    found[ast.unparse(taken)] = ast.unparse(node.returns)
    return found


def _reply(kind: type[protocol.Message], answers: dict[str, str]) -> str:
    named = answers[kind.__name__].removesuffix(" | None")
    return REPLIES.get(named) or _link(named)


def _routed(method: str, *, hook: bool) -> list[type[Any]]:
    hosts = (protocol.HookEvent, protocol.StatuslineAsked)
    return [
        kind
        for (found, _), kind in protocol.ROUTES.items()
        if found == method and issubclass(kind, hosts) == hook
    ]


def _rest() -> list[type[Any]]:
    routed = set(protocol.ROUTES.values())
    found = [getattr(protocol, name) for name in source.classes(FILE)]
    base = (protocol.Message, protocol.ShimHeaders)
    return [kind for kind in found if kind not in routed and kind not in base]


def _section(title: str, kinds: Iterable[type[Any]]) -> Iterator[str]:
    yield f"## {title}"
    for kind in kinds:
        yield f"### {kind.__name__}"
        yield from _message(kind)


def _message(kind: type[Any]) -> Iterator[str]:
    route = next((key for key, found in protocol.ROUTES.items() if found is kind), None)
    if route:
        yield code(f"{route[0]} /v{protocol.GENERATION}/{route[1]}")
    yield paragraph(vars(kind).get("__doc__"))
    if tag := kind.__struct_config__.tag:
        yield f'On the wire it begins with `"type": "{tag}"`.'
    base = kind.__bases__[0]
    shared = (protocol.HookEvent, protocol.Placed)
    inherited = base.__struct_fields__ if issubclass(base, shared) else ()
    if inherited:
        yield f"Has all fields of {_link(base.__name__)}."
    yield _fields(kind, frozenset(inherited))


def _fields(kind: type[Any], left_out: frozenset[str]) -> str:
    notes = source.notes(source.classes(FILE)[kind.__name__].body)
    rows = [
        (
            code(field.encode_name),
            _type(kind.__annotations__[field.name]),
            _default(field),
            paragraph(notes.get(field.name)),
        )
        for field in msgspec.structs.fields(kind)
        if field.name not in left_out
    ]
    return table(("Field", "Type", "Default", "What"), rows)


def _type(annotation: str) -> str:
    """A type as it is written, with a link where it is a message."""
    named = annotation.removeprefix("list[").removesuffix("]").removesuffix(" | None")
    if named in source.classes(FILE):
        before, after = annotation.split(named)
        return f"{before}[{named}](#{named.lower()}){after}".replace("[[", "\\[[")
    return code(annotation)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is not msgspec.NODEFAULT:
        return code(json.dumps(field.default))
    made = field.default_factory()
    return code("{}" if isinstance(made, msgspec.Struct) else json.dumps(made))


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
