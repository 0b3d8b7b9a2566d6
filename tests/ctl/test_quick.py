from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from answering import AnsweringDaemon, Reply
from hypothesis import given
from hypothesis import strategies as st

from memoryd import paths
from memoryd.ctl import plugin, quick
from memoryd.errors import UnsafePathError

REPOSITORY = Path(quick.__file__).parents[2]
EVENT = b'{"session_id":"s1","cwd":"/home/user/alpha"}'
LIGHT = "argparse typing contextlib pathlib json socket subprocess msgspec memoryd.paths"

PARTS = st.lists(st.sampled_from(["", ".", "..", "a", "b c", "ä", "x" * 60]), max_size=3)
VALUES = st.one_of(st.just(""), PARTS.map("/".join), PARTS.map(lambda parts: "/" + "/".join(parts)))
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        "HOME": VALUES,
        "XDG_STATE_HOME": VALUES,
        "XDG_RUNTIME_DIR": VALUES,
        "MEMORYD_SOCKET": VALUES,
    },
)


class TestWhereItLooks:
    @given(ENVIRONMENTS)
    def test_where_all_others_do_or_it_goes_the_long_way(self, env: dict[str, str]) -> None:
        self.agrees(env)

    @pytest.mark.parametrize("mode", [0o700, 0o750, 0o000])
    def test_the_runtime_directory_where_it_is_private(self, folder: Path, mode: int) -> None:
        folder.chmod(mode)
        env = {"HOME": "/home/user", "XDG_RUNTIME_DIR": str(folder)}
        assert self.agrees(env)
        assert (quick.socket_of(env) == f"{folder}/memoryd.sock") == (mode != 0o750)

    def test_a_link_is_no_private_directory(self, folder: Path) -> None:
        (folder / "link").symlink_to(folder)
        env = {"HOME": "/home/user", "XDG_RUNTIME_DIR": f"{folder}/link"}
        assert self.agrees(env)

    @pytest.mark.parametrize(
        "env",
        [
            {"HOME": "/home/user"},
            {"HOME": "/home/user", "XDG_STATE_HOME": "/s"},
            {"HOME": "/home/user", "XDG_STATE_HOME": "relative"},
            {"HOME": "/home/user", "XDG_RUNTIME_DIR": "/tmp"},
            {"MEMORYD_SOCKET": "/run/m.sock", "HOME": "/home/user"},
        ],
    )
    def test_what_is_usual_goes_the_short_way(self, env: dict[str, str]) -> None:
        assert self.agrees(env)

    def agrees(self, env: dict[str, str]) -> bool:
        """Whether it went the short way, which leads where the long one does."""
        socket, state = quick.socket_of(env), quick.state_of(env)
        try:
            assert socket in ("", str(paths.socket_path(env)))
        except UnsafePathError:
            assert not socket
        assert state in ("", str(paths.state_dir(env)))
        return bool(socket and state)

    def test_the_shim_of_this_very_package(self) -> None:
        assert quick._shim_folder() == str(plugin.template())


class TestStart:
    def test_imports_as_little_as_a_hook(self, folder: Path) -> None:
        """Seen from the outside: the shim ends the process before anything else is imported."""
        code = (
            "import sys, os\n"
            "class Watch:\n"
            f"    slow = frozenset({LIGHT.split()})\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name in self.slow: os._exit(9)\n"
            "sys.meta_path.insert(0, Watch())\n"
            "from memoryd.ctl.main import main; main()"
        )
        with AnsweringDaemon(folder / "s", Reply(b"memory: no change\n")):
            done = subprocess.run(
                [sys.executable, "-c", code, "statusline"],
                env={"HOME": "/h", "MEMORYD_SOCKET": f"{folder}/s", "PYTHONPATH": str(REPOSITORY)},
                input=EVENT,
                capture_output=True,
                timeout=20.0,
                check=False,
            )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"memory: no change\n", b"")

    def test_takes_nothing_from_a_stdin_that_it_leaves_to_the_long_way(self) -> None:
        read, write = os.pipe()
        code = (
            "import sys; from memoryd.ctl import quick; "
            "quick._host_speaks(); sys.stdout.write(sys.stdin.read())"
        )
        with os.fdopen(write, "wb") as said:
            said.write(EVENT)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(REPOSITORY)},
            stdin=read,
            capture_output=True,
            timeout=20.0,
            check=False,
        )
        os.close(read)
        assert done.stdout == EVENT
