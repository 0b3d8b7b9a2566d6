"""The main job, with every real part but the client and the model."""

from __future__ import annotations

import pytest
from house import adding, house, saying

from memoryd.demo.script import Script

pytestmark = pytest.mark.e2e

RULE = {
    "op": "add",
    "section": "CRITICAL RULES",
    "text": "Use bun, never npm.",
    "because": "always use bun",
}


def test_a_turns_fact_is_in_memory_and_the_next_session_has_it() -> None:
    with house(Script(saying(RULE, adding("The build needs Node 20.")))) as home:
        repository = home.project()
        session = home.session(repository)
        block = session.start()
        assert "acknowledge" not in block
        assert "[PROJECT MEMORY" not in block
        session.prompt("please always use bun here")
        session.tool("Bash", "ok", command="bun install")
        session.answer("I use bun from now on.")
        (run,) = home.wait_saved()
        assert run.state == "done"
        assert home.memory() == (
            "# api\n\n## CRITICAL RULES\n\n- Use bun, never npm.\n\n"
            "## Architecture & Config Facts\n\n## Active Warnings\n\n- The build needs Node 20.\n\n"
            "## Topic Files\n"
        )
        assert run.event == "MEMORY.md: created, 2 added"
        assert run.status == "+2"
        block = home.session(repository).start()
        assert block.startswith("[PROJECT MEMORY: api]\n")
        assert "- Use bun, never npm." in block
