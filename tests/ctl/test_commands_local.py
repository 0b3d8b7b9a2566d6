from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memoryd import config
from memoryd.ctl import parser

if TYPE_CHECKING:
    from shells import Typed


class TestApply:
    MEMORY = "# alpha\n\n## CRITICAL RULES\n\n## Architecture & Config Facts\n\n- One.\n\n"
    MEMORY += "## Active Warnings\n\n## Topic Files\n"
    ADD = '{"ops":[{"op":"add","section":"Architecture & Config Facts","text":"Two."}],"topics":[]}'

    @pytest.fixture
    def memory(self, folder: Path) -> Path:
        file = folder / "alpha" / "MEMORY.md"
        file.parent.mkdir()
        file.write_text(self.MEMORY)
        return file

    def test_the_new_text_and_the_event(self, typed: Typed, memory: Path) -> None:
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 0
        assert typed.out == self.MEMORY.replace("- One.\n", "- One.\n- Two.\n")
        assert typed.err == "MEMORY.md: 1 added\n"
        assert memory.read_text() == self.MEMORY

    def test_a_file_that_is_not_there_yet(self, typed: Typed, memory: Path) -> None:
        memory.unlink()
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 0
        assert typed.out.startswith("# alpha\n")
        assert typed.err == "MEMORY.md: created, 1 added\n"

    def test_a_reply_that_can_t_be_read(self, typed: Typed, memory: Path) -> None:
        typed.stdin = b"no JSON here"
        assert typed("apply", str(memory), "-") == 1
        assert typed.out == self.MEMORY
        assert typed.err.startswith("MEMORY.md: reply not read (")
        assert "kept" not in typed.err  # nothing is written

    def test_a_rule_that_nobody_typed(self, typed: Typed, memory: Path, folder: Path) -> None:
        (folder / "said").write_text("something else altogether")
        typed.stdin = self.ADD.replace("Architecture & Config Facts", "CRITICAL RULES").encode()
        assert typed("apply", str(memory), "-", "--typed", str(folder / "said")) == 0
        assert typed.out == self.MEMORY
        assert "refused" in typed.err

    def test_the_account_as_json(self, typed: Typed, memory: Path) -> None:
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-", "--json") == 0
        assert json.loads(typed.out)["added"] == 1

    def test_lines_in_and_lines_out(self, typed: Typed) -> None:
        case = json.dumps({"project": "alpha", "memory": self.MEMORY, "reply": self.ADD})
        typed.stdin = f"{case}\nrubbish\n{case}\n".encode()
        assert typed("apply", "--jsonl") == 0
        found = [json.loads(line) for line in typed.out.rstrip("\n").split("\n")]
        assert [answer.get("outcome") for answer in found] == ["changed", None, "changed"]
        assert "line 2" in found[1]["error"]

    def test_lines_of_a_file(self, typed: Typed, folder: Path) -> None:
        (folder / "cases").write_text("{}\n")
        assert typed("apply", "--jsonl", str(folder / "cases")) == 0
        assert "error" in json.loads(typed.out)

    def test_nothing_to_apply(self, typed: Typed) -> None:
        assert typed("apply") == 1
        assert typed.err.endswith("\ntry: memoryctl apply MEMORY.md reply.txt\n")

    def test_a_file_that_is_not_utf8(self, typed: Typed, memory: Path) -> None:
        memory.write_bytes(b"# a\xff")
        typed.stdin = self.ADD.encode()
        assert typed("apply", str(memory), "-") == 1
        assert typed.err == f"memoryctl: cannot read {memory}: not UTF-8 at byte 3\n"


class TestConfig:
    TEXT = """\
memory_language = "de"
idle_save_after = "90 s"
exclude = ["~/x", "*/\\"q\\""]
[fork]
deadline = "2.5 min"
[projects."~/work/api"]
name = "api"
off = true
"""

    @pytest.fixture
    def file(self, folder: Path) -> Path:
        file = folder / "home/.config/memoryd/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(self.TEXT)
        return file

    def test_show_is_toml_that_means_the_same(
        self, typed: Typed, file: Path, env: dict[str, str]
    ) -> None:
        assert typed("config") == 0
        assert tomllib.loads(typed.out)["fork"]["deadline"] == "150 s"
        shown = config.parse(typed.out.encode(), file, env)
        assert shown.settings == config.load(env).settings

    def test_show_marks_the_defaults(self, typed: Typed, file: Path) -> None:
        assert file.exists()
        assert typed("config", "show") == 0
        assert 'memory_language = "de"\n' in typed.out
        assert 'headless = "full"  # default\n' in typed.out

    def test_show_as_json(self, typed: Typed, file: Path) -> None:
        assert file.exists()
        assert typed("config", "show", "--json") == 0
        assert json.loads(typed.out)["idle_save_after"] == 90.0

    def test_path(self, typed: Typed, file: Path) -> None:
        assert typed("config", "path") == 0
        assert typed.out == f"{file}\n"

    def test_check(self, typed: Typed, file: Path) -> None:
        assert typed("config", "check") == 0
        assert typed.out == f"{file} is right\n"
        file.unlink()
        assert typed("config", "check") == 0
        assert typed.out == f"{file} is not there: the defaults hold\n"


class TestPluginDir:
    def test_prints_a_folder_that_is_there(self, typed: Typed) -> None:
        assert typed("plugin-dir") == 0
        assert (Path(typed.out.rstrip("\n")) / "hooks" / "hooks.json").is_file()


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh"])
    def test_is_a_script_that_knows_every_command(self, typed: Typed, shell: str) -> None:
        assert typed("completion", shell) == 0
        assert all(name in typed.out for name in parser.names())

    def test_bash_can_read_it(self, typed: Typed) -> None:
        assert typed("completion", "bash") == 0
        bash = shutil.which("bash") or "/bin/bash"
        done = subprocess.run([bash, "-n"], input=typed.out.encode(), check=False)
        assert done.returncode == 0
