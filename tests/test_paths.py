"""Where things lie, for every environment that a daemon, a shim or a person may have."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from wire import short_dir

from memoryd import paths
from memoryd.errors import UnsafePathError

TEMPORARY = Path("/tmp")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "u"
    home.mkdir(mode=0o700)
    return home


class TestMaking:
    def test_no_parent_is_left_to_the_umask(self, home: Path) -> None:
        before = os.umask(0)
        try:
            paths.make_dir(home / "a" / "b")
        finally:
            os.umask(before)
        made = (home / "a", home / "a" / "b")
        assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700, 0o700]

    def test_what_is_there_stays_as_it_is(self, home: Path) -> None:
        home.chmod(0o750)
        paths.make_dir(home)
        assert stat.S_IMODE(home.stat().st_mode) == 0o750


class TestHome:
    def test_the_environment_says_it(self) -> None:
        assert paths.home({"HOME": "/home/u"}) == Path("/home/u")

    @pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": "u"}])
    def test_else_the_account(self, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOME", raising=False)
        import pwd  # noqa: PLC0415  what the system says

        assert paths.home(env) == Path(pwd.getpwuid(os.getuid()).pw_dir)


class TestFolders:
    def test_below_the_home(self) -> None:
        env = {"HOME": "/h"}
        assert paths.state_dir(env) == Path("/h/.local/state/memoryd")
        assert paths.config_file(env) == Path("/h/.config/memoryd/config.toml")
        assert paths.default_memory_root(env) == Path("/h/.cli-tweaks/memory")
        assert paths.spool_dir(Path("/s")) == Path("/s/spool")

    def test_where_the_person_wants_them(self) -> None:
        env = {
            "HOME": "/h",
            "XDG_STATE_HOME": "/x/s",
            "XDG_CONFIG_HOME": "/x/c",
        }
        assert paths.state_dir(env) == Path("/x/s/memoryd")
        assert paths.config_file(env) == Path("/x/c/memoryd/config.toml")

    @pytest.mark.parametrize("value", ["", "x", "./x", "~/x"])
    def test_a_relative_value_counts_as_unset(self, value: str) -> None:
        env = {
            "HOME": "/h",
            "XDG_STATE_HOME": value,
            "XDG_CONFIG_HOME": value,
        }
        assert paths.state_dir(env) == Path("/h/.local/state/memoryd")
        assert paths.config_file(env) == Path("/h/.config/memoryd/config.toml")


class TestExpanding:
    @pytest.mark.parametrize(
        ("value", "found"),
        [
            ("~/m", "/home/u/m"),
            ("~", "/home/u"),
            ("$HOME/m", "/home/u/m"),
            ("${HOME}/m", "/home/u/m"),
            ("$MEM/x", "/data/mem/x"),
            ("/abs/m", "/abs/m"),
            ("m", "/home/u/m"),
            ("~/my notes/größe 日本", "/home/u/my notes/größe 日本"),
            ("/a$$b", "/a$b"),
            ("/a/$UNKNOWN/b", "/a/$UNKNOWN/b"),
            ("/a~b", "/a~b"),
            ("$TILDE/m", "/home/u/m"),
        ],
    )
    def test_of_a_configured_path(self, value: str, found: str) -> None:
        env = {"HOME": "/home/u", "MEM": "/data/mem", "TILDE": "~"}
        assert paths.expand(value, env) == Path(found)


class TestSocket:
    def test_a_named_one(self) -> None:
        assert paths.socket_path({"MEMORYD_SOCKET": "/run/m.sock", "HOME": "/h"}) == Path(
            "/run/m.sock"
        )

    @pytest.mark.parametrize("named", ["m.sock", "./m.sock", "~/m.sock"])
    def test_a_named_one_is_absolute(self, named: str) -> None:
        with pytest.raises(UnsafePathError, match="MEMORYD_SOCKET must be an absolute path"):
            paths.socket_path({"MEMORYD_SOCKET": named, "HOME": "/h"})

    def test_in_the_runtime_directory_where_that_is_private_and_ours(self) -> None:
        with short_dir() as run:
            found = paths.socket_path({"HOME": "/h", "XDG_RUNTIME_DIR": str(run)})
            assert found == run / "memoryd.sock"

    @pytest.mark.parametrize("value", [None, "", "run", "/nonexistent", "/tmp", "/dev/null"])
    def test_else_in_the_state_directory(self, value: str | None) -> None:
        env = {"HOME": "/h"} | ({} if value is None else {"XDG_RUNTIME_DIR": value})
        assert paths.socket_path(env) == Path("/h/.local/state/memoryd/memoryd.sock")

    @pytest.mark.parametrize("fault", ["open to others", "another uid", "a link"])
    def test_a_runtime_directory_that_is_not_ours_alone(
        self, fault: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with short_dir() as folder:
            run = folder / "run"
            if fault == "a link":
                (folder / "real").mkdir(mode=0o700)
                run.symlink_to(folder / "real")
            else:
                run.mkdir(mode=0o700)
            if fault == "open to others":
                run.chmod(0o710)
            if fault == "another uid":
                monkeypatch.setattr(os, "geteuid", lambda: 4242)
            env = {"HOME": "/h", "XDG_RUNTIME_DIR": str(run)}
            assert paths.socket_path(env) == Path("/h/.local/state/memoryd/memoryd.sock")

    def test_bytes_count_and_not_characters(self) -> None:
        short = "/" + "é" * 51  # 103 bytes
        assert paths.socket_path({"MEMORYD_SOCKET": short}) == Path(short)
        long = paths.socket_path({"MEMORYD_SOCKET": f"{short}x"})
        assert len(os.fsencode(long)) < 103
        assert long.parent == TEMPORARY / f"memoryd-{os.geteuid()}"

    def test_a_long_path_has_one_stand_in_and_another_one_another(self) -> None:
        home = "/home/" + "u" * 120
        first = paths.socket_path({"HOME": home})
        assert first == paths.socket_path({"HOME": home})
        assert first != paths.socket_path({"HOME": f"{home}x"})
        control = paths.control_path(paths.state_dir({"HOME": home}))
        assert control.parent == first.parent
        assert control != first

    def test_the_second_socket_lies_in_the_state_directory(self) -> None:
        assert paths.control_path(Path("/s")) == Path("/s/control.sock")


class TestPrivateDirectories:
    def test_it_is_made(self, tmp_path: Path) -> None:
        old = os.umask(0)
        try:
            paths.require_private_dir(tmp_path / "a" / "b")
        finally:
            os.umask(old)
        assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700

    def test_one_that_is_there_is_fine(self, home: Path) -> None:
        paths.require_private_dir(home)
        assert paths.private_dir_fault(home) == ""

    @pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o770])
    def test_open_to_others(self, home: Path, mode: int) -> None:
        home.chmod(mode)
        with pytest.raises(UnsafePathError, match=f"open to others .mode {mode:04o}") as told:
            paths.require_private_dir(home)
        assert told.value.hint == f"chmod 700 '{home}'"
        home.chmod(0o700)

    def test_of_somebody_else(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        owner = home.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert paths.private_dir_fault(home) == f"belongs to uid {owner}"

    def test_a_link(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(home)
        assert paths.private_dir_fault(tmp_path / "link") == "is a symbolic link"

    def test_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        assert paths.private_dir_fault(tmp_path / "file") == "is no directory"
        assert paths.private_dir_fault(tmp_path / "none") == "No such file or directory"
        with pytest.raises(UnsafePathError, match="file/below: Not a directory"):
            paths.require_private_dir(tmp_path / "file" / "below")


class TestParents:
    def test_safe_ones(self, home: Path) -> None:
        paths.require_safe_parents(home / "a" / "b")

    def test_a_sticky_one_is_safe(self, home: Path) -> None:
        home.chmod(0o1777)
        paths.require_safe_parents(home / "a")

    def test_group_write_is_safe(self, home: Path) -> None:
        home.chmod(0o775)
        paths.require_safe_parents(home / "a")

    def test_writable_by_everybody(self, home: Path) -> None:
        home.chmod(0o707)
        with pytest.raises(UnsafePathError, match="is writable by everybody") as told:
            paths.require_safe_parents(home / "a" / "b")
        assert (told.value.path, told.value.hint) == (home, f"chmod o-w '{home}'")

    def test_of_somebody_else(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.chown(home, 4243, -1) if os.geteuid() == 0 else None
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        with pytest.raises(UnsafePathError, match="belongs to uid"):
            paths.require_safe_parents(home / "a")

    def test_one_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(UnsafePathError, match="Not a directory"):
            paths.require_safe_parents(tmp_path / "file" / "a" / "b")
