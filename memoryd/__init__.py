"""memoryd: project memory for Claude Code, kept in plain Markdown by a per-user daemon."""

__version__ = "0.1.0"
