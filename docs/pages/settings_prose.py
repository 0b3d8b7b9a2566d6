"""What each setting is for, in the words of its heading. The facts beside it come from the code."""

from __future__ import annotations

from typing import NamedTuple


class Prose(NamedTuple):
    """What a setting does, and a line of the file that shows it."""

    text: str
    example: str


SETTINGS: dict[str, Prose] = {
    "memory_root": Prose(
        "The folder of all memory: a project's files lie in `<memory_root>/<project>/`. Empty:"
        " `~/.cli-tweaks/memory`. `~` and `$NAME` are replaced, a relative path counts from the"
        " home directory. The environment variable `MEMORYD_MEMORY_ROOT` comes first. It is read"
        " when the daemon starts: after a change, `memoryctl restart`.",
        'memory_root = "~/notes/memory"',
    ),
    "memory_language": Prose(
        "The language in which memory is written: `en`, `de`, `fr`, `es`, `ja`, or the English"
        " name of any other. It says nothing about the language in which a session answers.",
        'memory_language = "de"',
    ),
    "language_note": Prose(
        "Whether the text that a session gets at its start also says that answers use the"
        " language that the person writes in.",
        "language_note = false",
    ),
    "headless": Prose(
        "What a session gets that nobody sits in front of (`claude -p`, the SDK): `full` memory"
        " and saves, `load` memory but no saves, `off` neither.",
        'headless = "load"',
    ),
    "gate": Prose(
        "Whether a small model is asked first if there is anything to save. In this version there"
        " is no such question, and `never` is the only value.",
        'gate = "never"',
    ),
    "idle_save_after": Prose(
        "How long a session has to be silent before a turn of it that was not read yet is saved,"
        " also where nobody's prompt started that turn.",
        'idle_save_after = "30 min"',
    ),
    "max_parallel_saves": Prose(
        "How many saves run at the same time, over all projects. A project has one at a time"
        " anyway.",
        "max_parallel_saves = 1",
    ),
    "max_saves_per_hour": Prose(
        "How many saves an hour may take from a login's own limit (the backend `claude` without a"
        " key or a cloud account of the daemon's own). Above it a turn waits, and later turns of"
        " its session join it. Saves that a key pays for are not counted.",
        "max_saves_per_hour = 10",
    ),
    "on_concurrent_edit": Prose(
        "What happens where `MEMORY.md` was edited while a save ran. `rebase`: the changes are"
        " applied to the edited text, what no longer fits is skipped, and your edit wins. `drop`:"
        " nothing is written, and the status line shows the error.",
        'on_concurrent_edit = "drop"',
    ),
    "max_removal": Prose(
        "The share of a file's bullets that one save may remove. A reply that would remove more,"
        " and at least five, is held and not written, unless all it removes goes to a topic file"
        " in the same save.",
        "max_removal = 0.3",
    ),
    "critical_rules_need_quote": Prose(
        "Whether a change under CRITICAL RULES has to rest on words that a person typed in the"
        " session. [Privacy and trust](../explanation/privacy-and-trust.md#what-steers-a-save)"
        " says what that is good for.",
        "critical_rules_need_quote = false",
    ),
    "join_clones": Prose(
        "Whether clones of one repository, those with the same `origin`, share a memory.",
        "join_clones = false",
    ),
    "worktrees": Prose(
        "Whether linked worktrees of a repository share its memory, or have one each.",
        'worktrees = "separate"',
    ),
    "exclude": Prose(
        "Directories without memory, as globs. A session that starts in or below one gets none"
        " and is not saved; nothing about it is kept. By whatever link one gets there; the linked"
        " worktrees of a repository in one are excluded with it. `*` matches `/` too.",
        'exclude = ["~/clients/*", "/tmp/*"]',
    ),
    "retention_days": Prose(
        "How long the record of a save and the texts before and after it are kept. What is owed,"
        " what retired a rule, and each project's last save stay.",
        "retention_days = 30",
    ),
    "max_state_mb": Prose(
        "How large the records may get, in MiB; above it the oldest go. Looked at once a day and"
        " at the start.",
        "max_state_mb = 50",
    ),
    "retry_for": Prose(
        "How long a save is tried again after an overload, a limit, a time-out or a missing"
        " network. Then its turn stays owed until the session's next turn, until the network is back,"
        " or until any save gets through.",
        'retry_for = "2 h"',
    ),
    "api_key_command": Prose(
        "A command whose output is the API key. It is split into words as a shell would, but no"
        " shell runs it; it gets 10 seconds. Its key is kept until it is refused or the config"
        " changes; a command that failed is tried again after a minute.",
        'api_key_command = "pass show anthropic/memoryd"',
    ),
    "api_key_file": Prose(
        "A file that holds the API key and nothing else. It has to belong to you or root and be"
        " closed to others (`chmod 600`). It comes before `api_key_command`.",
        'api_key_file = "~/.config/memoryd/key"',
    ),
    "base_url": Prose(
        "Where requests go, for both backends: a gateway, for example. Empty: the daemon's own"
        " `ANTHROPIC_BASE_URL`, else the API itself. Never taken from a session. It may hold no"
        " user name or password.",
        'base_url = "https://gateway.example"',
    ),
    "https_proxy": Prose(
        "The proxy for requests. Empty: the daemon's own `HTTPS_PROXY`.",
        'https_proxy = "http://proxy.example:3128"',
    ),
    "ca_bundle": Prose(
        "A file with certificates to trust besides the system's. Empty: the daemon's own"
        " `SSL_CERT_FILE`.",
        'ca_bundle = "~/certificates/company.pem"',
    ),
    "fork.backend": Prose(
        "How a save asks the model: `digest` sends our own rendering of the conversation with an"
        " API key, `claude` lets the `claude` program answer with your login. `auto` takes"
        " `digest` where a key is at hand, else `claude`; `memoryctl show` says which and why.",
        'backend = "claude"',
    ),
    "fork.model": Prose(
        "The model of the backend `claude`. Empty: the session's own, which is the only one that"
        " can read the session's prompt cache.",
        'model = "claude-sonnet-5-5"',
    ),
    "fork.deadline": Prose(
        "How long one question to the model may take.",
        'deadline = "5 min"',
    ),
    "fork.worker_idle": Prose(
        "How long the process of the backend `digest` stays without work before it ends.",
        'worker_idle = "10 min"',
    ),
    "fork.digest_model": Prose(
        "The model of the backend `digest`. The backend `claude` takes it too where it can't"
        " resume the session and `fork.model` is empty.",
        'digest_model = "claude-sonnet-5-5"',
    ),
    "fork.digest_tokens": Prose(
        "The most tokens of conversation that a digest sends, at three characters a token. A longer"
        " conversation loses its oldest part.",
        "digest_tokens = 40000",
    ),
}

PROJECTS: dict[str, Prose] = {
    "name": Prose(
        "The project's name, in place of the one that follows from its directory. Two paths with"
        " one name share a memory.",
        'name = "shop"',
    ),
    "off": Prose("No memory at or below this path, as `exclude` does.", "off = true"),
    "worktrees": Prose("As [worktrees](#worktrees), for this path.", 'worktrees = "separate"'),
    "headless": Prose("As [headless](#headless), for this path.", 'headless = "off"'),
}
