from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_daemon import FakeDaemon, Reply

from memoryd import __version__, paths
from memoryd.ctl import plugin
from memoryd.errors import StorageError, UnsafePathError
from memoryd.protocol import LOAD_PARTS, ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT = b'{"session_id":"s1"}'


def render(folder: Path, **changed: Path) -> Path:
    places = {
        "interpreter": plugin.hook_interpreter(),
        "socket": folder / "s",
        "spool": folder / "spool",
    } | changed
    return plugin.render(folder / "plugin", **places)


def hooks(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Event and registration of each hook of a plugin."""
    registered = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]
    for event, groups in registered.items():
        for group in groups:
            for hook in group["hooks"]:
                yield event, hook


def run(hook: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """A hook as the host runs it."""
    command = [hook["command"], *hook["args"]]
    return subprocess.run(
        command, input=EVENT, env={}, capture_output=True, timeout=20.0, check=False
    )


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


class TestWhatIsRegistered:
    def test_every_event_has_its_route(self, tmp_path: Path) -> None:
        found = [(event, hook["args"][8:]) for event, hook in hooks(render(tmp_path))]
        starts = [("SessionStart", ["session_started", str(n + 1)]) for n in range(LOAD_PARTS)]
        assert found == [
            *starts,
            ("UserPromptSubmit", ["prompt_submitted"]),
            ("PostToolBatch", ["tools_ran"]),
            ("Stop", ["turn_ended"]),
            ("StopFailure", ["turn_failed"]),
            ("SessionEnd", ["session_ended"]),
        ]
        assert all(("POST", arguments[0]) in ROUTES for _, arguments in found)

    def test_no_shell_and_no_path_that_depends_on_a_session(self, tmp_path: Path) -> None:
        for _, hook in hooks(render(tmp_path)):
            assert hook["type"] == "command"
            assert Path(hook["command"]).is_absolute()
            assert hook["args"][:4] == ["-I", "-S", "-B", "-c"]
            assert all(Path(argument).is_absolute() for argument in hook["args"][5:8])
            assert not hook.get("async", False)
            assert 0 < hook["timeout"] <= 5

    def test_no_name_in_braces_is_left(self, tmp_path: Path) -> None:
        folder = render(tmp_path)
        manifest = json.loads((folder / ".claude-plugin" / "plugin.json").read_text())
        assert (manifest["name"], manifest["version"]) == ("memoryd", __version__)
        assert not any("{" in argument for _, hook in hooks(folder) for argument in hook["args"])

    def test_odd_characters_in_paths_stay_what_they_are(self, tmp_path: Path) -> None:
        folder = tmp_path / 'a "b" {spool} \\ ü $HOME'
        folder.mkdir()
        assert [hook["args"][6] for _, hook in hooks(render(folder))] == [str(folder / "s")] * 11


@pytest.mark.e2e
class TestRunningAHook:
    def test_the_daemon_hears_it_and_its_answer_is_printed(self, tmp_path: Path) -> None:
        folder = render(tmp_path)
        with FakeDaemon(tmp_path / "s", lambda _: Reply(body=b"{}")) as daemon:
            done = run(dict(hooks(folder))["SessionStart"])
        assert (done.returncode, done.stdout, done.stderr) == (0, b"{}", b"")
        assert daemon.routes() == ["session_started"]
        assert daemon.arrivals[0].said("origin") == str(folder / "shim.py")

    def test_it_runs_the_compiled_file(self, tmp_path: Path) -> None:
        folder = render(tmp_path)
        source = folder / "shim.py"
        found, size = source.stat(), source.stat().st_size
        source.write_bytes(b"#" * size)  # of the same age and size: only the compiled file can work
        os.utime(source, ns=(found.st_atime_ns, found.st_mtime_ns))
        with FakeDaemon(tmp_path / "s") as daemon:
            run(dict(hooks(folder))["Stop"])
        assert daemon.routes() == ["turn_ended"]

    @pytest.mark.parametrize("data", [None, b"", b"rubbish" * 500])
    def test_without_a_good_compiled_file_it_runs_the_source(
        self, tmp_path: Path, data: bytes | None
    ) -> None:
        folder = render(tmp_path)
        (compiled,) = (folder / "__pycache__").iterdir()
        compiled.unlink()
        if data is not None:
            compiled.write_bytes(data)
        with FakeDaemon(tmp_path / "s") as daemon:
            done = run(dict(hooks(folder))["Stop"])
        assert (done.returncode, done.stderr) == (0, b"")
        assert daemon.routes() == ["turn_ended"]

    def test_a_deleted_folder_does_not_hurt_a_session_that_runs(self, tmp_path: Path) -> None:
        folder = render(tmp_path)
        registered = list(hooks(folder))
        shutil.rmtree(folder)
        for _, hook in registered:
            done = run(hook)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


class TestKeepingItUpToDate:
    def test_twice_is_once(self, tmp_path: Path) -> None:
        before = snapshot(render(tmp_path))
        assert snapshot(render(tmp_path)) == before
        assert (tmp_path / "plugin").stat().st_mode & 0o777 == 0o700

    def test_what_changed_is_replaced_and_the_rest_left_alone(self, tmp_path: Path) -> None:
        before = snapshot(render(tmp_path))
        after = snapshot(render(tmp_path, socket=tmp_path / "other"))
        changed = {name for name in before if before[name] != after[name]}
        assert changed - {name for name in changed if name.endswith(".pyc")} == {"hooks/hooks.json"}

    def test_files_of_an_older_version_go(self, tmp_path: Path) -> None:
        folder = render(tmp_path)
        (folder / "commands").mkdir()
        (folder / "commands" / "old.md").write_text("old")
        (folder / "shim.py").write_text("old")
        render(tmp_path)
        assert not (folder / "commands" / "old.md").exists()
        assert (folder / "shim.py").read_bytes() == (plugin.template() / "shim.py").read_bytes()

    def test_nothing_else_is_left_beside_it(self, tmp_path: Path) -> None:
        render(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["plugin"]

    def test_an_interpreter_that_can_not_compile(self, tmp_path: Path) -> None:
        folder = render(tmp_path, interpreter=tmp_path / "missing")
        assert {hook["command"] for _, hook in hooks(folder)} == {str(tmp_path / "missing")}

    def test_a_folder_that_can_not_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "plugin").write_text("a file")
        with pytest.raises(StorageError, match="cannot write"):
            render(tmp_path)

    def test_a_path_that_json_can_not_hold(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="not UTF-8"):
            render(tmp_path, socket=Path("/a\udcff"))


class TestPluginDir:
    def test_it_lies_in_the_state_directory(self, tmp_path: Path) -> None:
        env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
        folder = plugin.plugin_dir(env)
        assert folder == tmp_path / "state" / "memoryd" / "plugin" / "claude_code"
        arguments = dict(hooks(folder))["Stop"]["args"]
        spool = paths.spool_dir(paths.state_dir(env))
        assert arguments[5:8] == [str(folder), str(paths.socket_path(env)), str(spool)]

    def test_a_status_line_starts_the_shim_as_the_hooks_do(self, tmp_path: Path) -> None:
        env = {"HOME": str(tmp_path)}
        hook = dict(hooks(plugin.plugin_dir(env)))["Stop"]
        command = plugin.shim_command(plugin.places_for(env), "statusline")
        assert command == [hook["command"], *hook["args"][:-1], "statusline"]

    def test_a_state_directory_open_to_others_is_refused(self, tmp_path: Path) -> None:
        env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        (tmp_path / "memoryd").mkdir()
        (tmp_path / "memoryd").chmod(0o777)
        with pytest.raises(UnsafePathError):
            plugin.plugin_dir(env)


class TestTheInterpreter:
    def test_it_is_no_link_of_an_environment(self) -> None:
        found = plugin.hook_interpreter()
        assert found.is_absolute()
        assert not (found.parent.parent / "pyvenv.cfg").exists()

    def test_it_starts_without_anything(self) -> None:
        command = [str(plugin.hook_interpreter()), "-I", "-S", "-c", "pass"]
        assert subprocess.run(command, env={}, timeout=20.0, check=False).returncode == 0


def test_the_template_of_an_installed_package_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "memoryd" / "ctl" / "plugin.py"
    monkeypatch.setattr(plugin, "__file__", str(module))
    assert plugin.template() == tmp_path / "clients" / "claude_code"
    shipped = tmp_path / "memoryd" / "data" / "clients" / "claude_code"
    shipped.mkdir(parents=True)
    assert plugin.template() == shipped
