"""Every message on the socket: the whole contract between daemon and clients.

HTTP/1.1 with JSON bodies over a Unix socket. One route per type: `POST /v1/<type>` for a fact or a
command, `GET /v1/<type>` for a read. A hook event is a fact (past tense), a command an imperative, a
reply a noun. Within a generation fields are added with defaults, unknown fields are ignored, nothing is
renamed. Structs of hook events carry the host's own field names, because their body is the host's.
"""

from __future__ import annotations

from typing import Literal

import msgspec

GENERATION = 1
"""The `/v1/` of every route."""

VERSION_HEADER = "memoryd-version"
GENERATION_HEADER = "memoryd-generation"

BODY_LIMIT = 4 * 1024 * 1024
"""Bytes of a request's body."""

HEADER_LIMIT = 16 * 1024
"""Bytes of a request's head."""

EVENT_BODY_LIMIT = 256 * 1024
"""Bytes of a hook's stdin that a shim sends; the rest is drained."""

LOAD_PARTS = 6
"""SessionStart hooks of one registration: each delivers one part of the memory block."""

PART_LIMIT = 9_000
"""UTF-16 units of one part: the host cuts a hook value at 10,000."""

RunState = Literal[
    "owed",
    "gate",
    "fork",
    "read",
    "apply",
    "commit",
    "done",
    "no_change",
    "skipped",
    "held",
    "failed",
]
"""A save's life, in order, and then one of the outcomes."""

OwedReason = Literal["answer", "interrupted", "session_end", "process_gone", "idle", "asked"]
"""Why a turn waits for its save."""

RunReason = Literal[
    "answer",
    "interrupted",
    "session_end",
    "process_gone",
    "idle",
    "asked",
    "rearranged",
    "joined",
]
"""Why a run was made.

The last two are no saves: the file was put into its shape; a clone began to share a memory.
"""

OpKind = Literal["add", "remove", "replace"]


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of all messages: a default is left out on the wire, an unknown field is ignored."""


# ── facts: hook events ─────────────────────────────────────────────────────────────────────────────


class Effort(Message, kw_only=True):
    """Part of HookEvent, inside a turn."""

    level: str = ""


class HookEvent(Message, kw_only=True):
    """What every hook gets on stdin; `agent_id` stands only in a subagent."""

    session_id: str
    hook_event_name: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str = ""
    agent_id: str = ""
    effort: Effort | None = None


class SessionStarted(HookEvent, kw_only=True):
    """SessionStart; answered with one part of the memory block, or nothing."""

    source: str = ""
    model: str = ""


class PromptSubmitted(HookEvent, kw_only=True):
    """UserPromptSubmit; answered with nothing. A prompt is looked at, never stored."""

    prompt: str = ""
    source: str = ""

    def __repr__(self) -> str:
        return f"PromptSubmitted({self.session_id!r}, prompt of {len(self.prompt)} characters)"


class ToolsRan(HookEvent, kw_only=True):
    """PostToolBatch; the shim waits for no answer."""


class TurnEnded(HookEvent, kw_only=True):
    """Stop; answered with nothing, after the owed turn is in the ledger."""

    stop_hook_active: bool = False
    last_assistant_message: str = ""

    def __repr__(self) -> str:
        size = len(self.last_assistant_message)
        return f"TurnEnded({self.session_id!r}, answer of {size} characters)"


class TurnFailed(HookEvent, kw_only=True):
    """StopFailure: an API error or a refusal ended the turn."""

    error: str = ""


class SessionEnded(HookEvent, kw_only=True):
    """SessionEnd; `reason` is clear, resume, logout, prompt_input_exit or other."""

    reason: str = ""


class StatuslineAsked(Message, kw_only=True):
    """What the host gives a status-line command on stdin; answered with one plain or coloured line."""

    session_id: str = ""
    cwd: str = ""
    workspace: Workspace | None = None


class Workspace(Message, kw_only=True):
    """Part of StatuslineAsked."""

    current_dir: str = ""
    project_dir: str = ""


# ── commands ───────────────────────────────────────────────────────────────────────────────────────


class Placed(Message, kw_only=True):
    """Base of what is asked about a project: by its name, else by where it was typed.

    In a coding session (`inside`, its id) that is where the session started: `cd` does not change it.
    """

    project: str = ""
    inside: str = ""
    cwd: str = ""


class Save(Placed, kw_only=True):
    """Save the owed turns of a project (or of one session) now."""

    session: str = ""


class Cancel(Placed, kw_only=True):
    """Cancel the save that runs for a project; its turn stays owed."""


class Pause(Placed, kw_only=True):
    """Start no save, for one project or all (`project` empty); 0 seconds: until resume."""

    seconds: float = 0.0


class Resume(Placed, kw_only=True):
    """End a pause; turns owed meanwhile are saved."""


class SwitchOff(Placed, kw_only=True):
    """From the next event on: no load and no save for this session or project."""

    session: str = ""


class SwitchOn(Placed, kw_only=True):
    """Take a SwitchOff back."""

    session: str = ""


class Shutdown(Message, kw_only=True):
    """End the daemon: a running fork is cancelled, a commit in progress ends."""


# ── reads (their fields are the query) ─────────────────────────────────────────────────────────────


class GetVersion(Message, kw_only=True):
    """Who answers."""


class GetStatus(Placed, kw_only=True):
    """All projects, the one of the place first."""


class GetLog(Placed, kw_only=True):
    """Runs, newest first; of all projects where no place is given."""

    limit: int = 20
    skipped: bool = False


class GetRun(Placed, kw_only=True):
    """One run by its id or an unambiguous start of it; empty: the project's last."""

    run: str = ""


class GetMemory(Placed, kw_only=True):
    """MEMORY.md of a project as it stands."""


class GetStatusline(Placed, kw_only=True):
    """The status line of a project."""

    colour: bool = False


class Follow(Message, kw_only=True):
    """Runs and events as JSON lines, from now on."""

    project: str = ""


# ── replies ────────────────────────────────────────────────────────────────────────────────────────


class Done(Message, kw_only=True):
    """A command was carried out; `sentence` says what happened."""

    sentence: str


class Problem(Message, kw_only=True):
    """Any answer from status 400 on."""

    code: str
    sentence: str
    hint: str = ""


class Version(Message, kw_only=True):
    """The daemon that answers."""

    version: str
    generation: int
    pid: int
    started_at: float


class MemoryText(Message, kw_only=True):
    """A project's memory; `text` is null where there is no MEMORY.md."""

    project: str
    path: str
    text: str | None
    topics: list[str] = []

    def __repr__(self) -> str:
        return f"MemoryText({self.project!r}, {len(self.text or '')} characters)"


class Usage(Message, kw_only=True):
    """Tokens of a fork, as the API counts them."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class OpRecord(Message, kw_only=True):
    """One op of a reply and what became of it."""

    kind: OpKind
    section: str = ""
    line: str = ""
    text: str = ""
    outcome: Literal["applied", "skipped", "refused", "duplicate", "moved", "dropped", "held"] = (
        "applied"
    )
    """`held`: it would be applied, the run waits for review."""
    reason: str = ""
    because: str = ""

    def __repr__(self) -> str:
        return f"OpRecord({self.kind!r}, {self.outcome!r})"


class RunRecord(Message, kw_only=True):
    """The record of a save; times are Unix seconds, 0 where not reached."""

    id: str
    project: str
    session: str
    state: RunState
    reason: RunReason = "answer"
    asked: int = 0
    """The ask of the session that it took."""
    owed_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    attempts: int = 0
    """Which try at its turn it is, from 1."""
    backend: str = ""
    backend_reason: str = ""
    model: str = ""
    usage: Usage = msgspec.field(default_factory=Usage)
    status: str = ""
    """The status line's text without `memory: ` and the clock."""
    event: str = ""
    """The sentence for the person, or empty."""
    failure: str = ""
    merged: bool = False
    """Merged over a concurrent edit."""
    before: str = ""
    """Digest of MEMORY.md before the save; empty where there was none."""
    after: str = ""
    lines_added: int = 0
    lines_removed: int = 0
    retired: int = 0
    """Lines taken out of CRITICAL RULES and kept in history.md."""
    leaf: str = ""
    """The transcript row up to which the conversation was read."""
    ops: list[OpRecord] = []
    topics: list[str] = []

    def __repr__(self) -> str:
        return f"RunRecord({self.id!r}, {self.state!r}, event of {len(self.event)} characters)"


class RunList(Message, kw_only=True):
    runs: list[RunRecord]


class BackendStatus(Message, kw_only=True):
    """Whether a way to fork can work here."""

    name: str
    works: bool
    reason: str = ""
    waits_until: float = 0.0
    """Unix seconds before which nothing is sent; infinity: until the config or the login changes."""


class ProjectStatus(Message, kw_only=True):
    """One project; limits are those of 1.3."""

    name: str
    directory: str
    fault: str = ""
    """Why MEMORY.md can't be read as it is now."""
    fault_hint: str = ""
    """The command that mends it, or empty."""
    lines: int = 0
    characters: int = 0
    loaded_lines: int = 0
    """Lines of the last load that reached the model; 0 where none was loaded yet."""
    load_lines: int = 0
    """Lines that the last load had to bring."""
    last_save: float = 0.0
    status: str = ""
    status_at: float = 0.0
    event: str = ""
    owed: int = 0
    running: RunState | None = None
    failures: int = 0
    failing_since: float = 0.0
    failure: str = ""
    paused_until: float = 0.0
    off: bool = False
    excluded: bool = False
    """By `exclude` of the config, or by `off` in the table of its path."""
    headless: Literal["full", "load", "off"] = "full"
    """What `-p` and SDK sessions may do there."""
    tokens_today: Usage = msgspec.field(default_factory=Usage)
    session_starts_today: int = 0
    load_tokens: int = 0
    """Estimated tokens of the block that the last session start loaded, or one would load now.

    Characters / 4.
    """

    def __repr__(self) -> str:
        return f"ProjectStatus({self.name!r}, event of {len(self.event)} characters)"


class Warned(Message, kw_only=True):
    """Something that the person should know: a code of docs/reference/errors.md and a sentence."""

    code: str
    sentence: str
    hint: str = ""


class Status(Message, kw_only=True):
    """The daemon at a glance."""

    version: str
    generation: int
    pid: int
    started_at: float
    socket: str
    memory_root: str
    sessions: int = 0
    spooled: int = 0
    paused_until: float = 0.0
    """Of a pause that holds for all projects; 0 where there is none."""
    backends: list[BackendStatus] = []
    projects: list[ProjectStatus] = []
    warnings: list[Warned] = []


class Statusline(Message, kw_only=True):
    text: str

    def __repr__(self) -> str:
        return f"Statusline({len(self.text)} characters)"


class RunChanged(Message, kw_only=True, tag="run"):
    """A line of `follow`: a run entered a state."""

    run: RunRecord


class EventShown(Message, kw_only=True, tag="event"):
    """A line of `follow`: a sentence for the person."""

    project: str
    at: float
    text: str

    def __repr__(self) -> str:
        return f"EventShown({self.project!r}, {len(self.text)} characters)"


ROUTES: dict[tuple[str, str], type[Message]] = {
    ("POST", "session_started"): SessionStarted,
    ("POST", "prompt_submitted"): PromptSubmitted,
    ("POST", "tools_ran"): ToolsRan,
    ("POST", "turn_ended"): TurnEnded,
    ("POST", "turn_failed"): TurnFailed,
    ("POST", "session_ended"): SessionEnded,
    ("POST", "statusline"): StatuslineAsked,
    ("POST", "save"): Save,
    ("POST", "cancel"): Cancel,
    ("POST", "pause"): Pause,
    ("POST", "resume"): Resume,
    ("POST", "off"): SwitchOff,
    ("POST", "on"): SwitchOn,
    ("POST", "shutdown"): Shutdown,
    ("GET", "version"): GetVersion,
    ("GET", "status"): GetStatus,
    ("GET", "log"): GetLog,
    ("GET", "run"): GetRun,
    ("GET", "memory"): GetMemory,
    ("GET", "statusline"): GetStatusline,
    ("GET", "follow"): Follow,
}
"""Method and last part of the path, and the type that comes with it."""


class ShimHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What a shim says beside the host's event, in three headers.

    `memoryd-event` is a plain hex id; `memoryd-part` a plain number (0: the event has no parts);
    `memoryd-env` holds the rest: `field=value` joined by `;`, each value as the hex of its bytes.
    """

    event: str = ""
    part: int = 0
    config_dir: str = ""
    project_dir: str = ""
    pid: int = 0
    executable: str = ""
    entrypoint: str = ""
    attended: str = ""
    no_color: str = ""
    origin: str = ""
    """Which registration speaks: the shim's own path. Two registrations of one hook are doubles."""
