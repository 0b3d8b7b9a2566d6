"""MEMORY.md as text: its shape, the message to the fork, the reply, and applying it (pure)."""
