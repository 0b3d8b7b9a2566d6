"""The backend `claude`: a child of the person's own client resumes a fork of the session and answers.

Owns the command, its environment and what the child may do: nothing. Knows the client's documented flags
and what was measured of them; what it prints is read in `stream`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from memoryd import paths
from memoryd.adapters import supervisor
from memoryd.adapters.forks import program
from memoryd.adapters.forks.network import DEFAULT_BASE_URL, network
from memoryd.adapters.forks.refused import Refused
from memoryd.adapters.forks.sdk import SYSTEM
from memoryd.adapters.forks.sizing import size
from memoryd.adapters.forks.stream import Reading
from memoryd.adapters.secrets import file_stamp
from memoryd.core.text import storable
from memoryd.ports import ForkFailure, ForkReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memoryd.config import Settings
    from memoryd.ports import Clock, ForkRequest, SessionRef

CLOSING = "Answer this with the one JSON object and nothing else."
"""Last block of the prompt. The client looks for files to attach (`@name`) and for slash commands in the
last block alone, so that nothing in a memory file can make it read or run something."""

MAX_OUTPUT_TOKENS = 32_000

MAX_TURNS = 2
"""The second is for an answer after an attempt to use a tool, which was denied."""

FLAGS = (
    "-p",
    "--no-session-persistence",
    "--input-format=stream-json",
    # An interactive session asks for `display: updates` of its thinking as this format does; the others
    # ask for another, which may be another prefix to a prompt cache.
    "--output-format=stream-json",
    "--include-partial-messages",
    "--verbose",
    "--strict-mcp-config",
    "--permission-mode=dontAsk",
    f"--max-turns={MAX_TURNS}",
)

OWN_ENVIRONMENT = {
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(MAX_OUTPUT_TOKENS),
    "CLAUDE_CODE_MAX_RETRIES": "2",
    # A prompt that is too long is shrunk by us, not summarised by the child.
    "DISABLE_COMPACT": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
    # A child that may be killed at any moment is no place to replace the program from.
    "DISABLE_AUTOUPDATER": "1",
    # A belt beside CLOSING: a version that looks at all blocks must attach no file.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}

_PROVIDER_FRONTS = ("ANTHROPIC_", "AWS_", "AZURE_", "CLOUD_ML_", "GOOGLE_", "VERTEX_REGION_")

_PROVIDER = frozenset(
    {
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
        "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
        "CLAUDE_CODE_SKIP_VERTEX_AUTH",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "NO_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)

_SWITCHES = frozenset(
    {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_TELEMETRY",
    }
)
"""What the person switched off for the daemon; none is added, they are part of what the API sees."""

EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class ClaudeBackend:
    """Needs the `claude` program; shares the session's prompt cache and the person's login."""

    name = "claude"

    def __init__(
        self, env: Mapping[str, str], settings: Callable[[], Settings], clock: Clock
    ) -> None:
        self._env = env
        self._settings = settings
        self._clock = clock
        self._refused = Refused(self.name)

    @property
    def on_subscription(self) -> bool:
        """Where the daemon has no key or cloud account of its own, the person's login pays."""
        return not any(self._env.get(name) for name in (*_KEYS, *_CLOUDS))

    def fault(self, session: SessionRef | None) -> str:
        executable = session.executable if session else ""
        if program.find(executable, self._env) is None:
            return "the `claude` program is not on the daemon's PATH nor in its usual places"
        fault = network(self._settings(), self._env).fault()
        if fault:
            return fault
        if session is None:  # what a person is shown: the login that was used last
            return self._refused.last_fault(lambda owner: self._stamp(Path(owner)))
        folder = session.config_dir
        return self._refused.fault(str(folder), lambda: self._stamp(folder))

    def warm(self) -> None:
        """Nothing: the child needs the message to start with."""

    def release(self) -> None:
        """Try refused credentials again."""
        self._refused.forget_all()

    async def fork(self, request: ForkRequest) -> ForkReply | ForkFailure:
        plan = await anyio.to_thread.run_sync(self._plan, request)
        if isinstance(plan, ForkFailure):
            return plan
        reading = Reading(self._clock.now())
        outcome: ForkReply | ForkFailure | None = None
        try:
            async with supervisor.started(plan.command) as child:
                with anyio.move_on_after(request.deadline) as waiting:
                    outcome = await _answer(child, plan.prompt, reading)
        except supervisor.ChildError:
            return ForkFailure("transient", type="no_child")
        if outcome is None and waiting.cancelled_caught:
            outcome = ForkFailure("transient", type="timeout")
        return await self._noted(request.session, outcome or reading.ended())

    def _plan(self, request: ForkRequest) -> _Plan | ForkFailure:
        """What to run and what to say to it. Looks at files."""
        session = request.session
        found = program.find(session.executable, self._env)
        if found is None:
            return ForkFailure("rejected", type="no_program")
        if not any(text.strip() for text in request.conversation):
            return ForkFailure("nothing")
        if request.shrunk or not _can_be_resumed(session):
            return self._fresh(found, request)
        flags = [f"--resume={session.id}", "--fork-session"]
        if session.effort in EFFORTS:
            flags.append(f"--effort={session.effort}")
        if model := self._settings().fork.model:
            flags.append(f"--model={model}")
        return self._with(found, flags, session, (request.message, CLOSING))

    def _fresh(self, found: Path, request: ForkRequest) -> _Plan:
        """Without the session: the conversation as our own rendering, on the digest's model."""
        fork = self._settings().fork
        sized = size(request.conversation, fork.digest_tokens, halved=request.shrunk)
        texts = (SYSTEM, *sized.texts, request.message, CLOSING)
        flags = [f"--model={fork.model or fork.digest_model}"]
        return self._with(found, flags, request.session, texts)

    def _with(
        self, found: Path, flags: list[str], session: SessionRef, texts: tuple[str, ...]
    ) -> _Plan:
        argv = (str(found), *FLAGS, *flags, f"--settings={self._child_settings()}")
        cwd = session.cwd if session.cwd.is_dir() else paths.home(self._env)
        return _Plan(supervisor.Command(argv, self._environment(session), cwd), _prompt(texts))

    def _child_settings(self) -> str:
        """Settings above the person's and the repository's own.

        Every tool has to be asked for, and nobody is there to ask: an allowance anywhere is void. With
        a key of ours the base URL is ours too, since a repository's settings can name another.
        """
        env = {}
        if any(self._env.get(name) for name in _KEYS):
            where = network(self._settings(), self._env).base_url
            env["ANTHROPIC_BASE_URL"] = where or DEFAULT_BASE_URL
        settings = _ChildSettings(disableAllHooks=True, permissions=_Permissions(), env=env)
        return msgspec.json.encode(settings).decode()

    def _environment(self, session: SessionRef) -> dict[str, str]:
        """Nothing of a session but its config folder."""
        kept = _PROVIDER | _SWITCHES
        env = supervisor.scrubbed(self._env)
        env |= {name: text for name, text in self._env.items() if name.upper() in kept}
        env |= {name: text for name, text in self._env.items() if name.startswith(_PROVIDER_FRONTS)}
        where = network(self._settings(), self._env)
        if where.base_url:
            env["ANTHROPIC_BASE_URL"] = where.base_url
        if where.proxy:
            env["HTTPS_PROXY"] = where.proxy
        if self._settings().ca_bundle:
            env["NODE_EXTRA_CA_CERTS"] = where.ca_bundle
        if _is_named(session.config_dir, self._env):
            env["CLAUDE_CONFIG_DIR"] = str(session.config_dir)
        return env | OWN_ENVIRONMENT

    async def _noted(
        self, session: SessionRef, outcome: ForkReply | ForkFailure
    ) -> ForkReply | ForkFailure:
        owner = str(session.config_dir)
        if isinstance(outcome, ForkFailure) and outcome.kind == "credentials":
            stamp = await anyio.to_thread.run_sync(self._stamp, session.config_dir)
            self._refused.note(owner, stamp, outcome)
        elif isinstance(outcome, ForkReply):
            self._refused.forget(owner)
        return outcome

    def _stamp(self, folder: Path) -> str:
        """Changes when the config or the login does that lies in the config folder."""
        files = [file_stamp(folder / name) for name in (".credentials.json", "settings.json")]
        return repr((self._settings(), files, _account(folder, self._env)))


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}\Z")

_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_VERTEX")


class _Block(msgspec.Struct):
    text: str
    type: str = "text"

    def __repr__(self) -> str:
        return f"_Block({len(self.text)} characters)"


class _Message(msgspec.Struct):
    content: tuple[_Block, ...]
    role: str = "user"


class _Line(msgspec.Struct):
    message: _Message
    type: str = "user"


class _Permissions(msgspec.Struct):
    ask: tuple[str, ...] = ("*",)


class _ChildSettings(msgspec.Struct):
    disableAllHooks: bool  # noqa: N815  the client's name
    permissions: _Permissions
    env: dict[str, str]


class _HostState(msgspec.Struct):
    """Of the client's own state file: who is logged in."""

    oauthAccount: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815  the client's name


@dataclass(frozen=True, slots=True, repr=False)
class _Plan:
    command: supervisor.Command
    prompt: bytes
    """The one line of its input."""


def _prompt(texts: tuple[str, ...]) -> bytes:
    blocks = tuple(_Block(text=storable(text)) for text in texts)
    return msgspec.json.encode(_Line(message=_Message(content=blocks))) + b"\n"


def _can_be_resumed(session: SessionRef) -> bool:
    return (
        session.transcript.is_file() and session.cwd.is_dir() and _ID.match(session.id) is not None
    )


async def _answer(
    child: supervisor.Child, prompt: bytes, reading: Reading
) -> ForkReply | ForkFailure | None:
    """The outcome, as soon as a line settles it; None where the child ended without."""
    try:
        await child.send(prompt)
        await child.end_input()
    except supervisor.ChildError:
        pass  # its last line says why it did not want the prompt
    async for line in child.lines():
        if outcome := reading.take(line):
            return outcome
    return None


def _is_named(config_dir: Path, env: Mapping[str, str]) -> bool:
    """Whether the client has to be told its config folder.

    Told or not is no matter of taste: with the variable set the client keeps its state file and, on
    macOS, its login elsewhere than without, also where it names the default folder.
    """
    default = paths.home(env) / ".claude"
    if config_dir != default:
        return True
    return (default / ".claude.json").exists() and not Path(f"{default}.json").exists()


def _account(config_dir: Path, env: Mapping[str, str]) -> bytes:
    named = _is_named(config_dir, env)
    file = config_dir / ".claude.json" if named else Path(f"{config_dir}.json")
    try:
        return bytes(msgspec.json.decode(file.read_bytes(), type=_HostState).oauthAccount)
    except (OSError, msgspec.DecodeError):
        return b""
