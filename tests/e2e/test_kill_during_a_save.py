"""kill -9 of the daemon during a save, then a start: the fact is written exactly once."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from house import adding, house, saying

from memoryd.demo.script import text

if TYPE_CHECKING:
    from house import House

    from memoryd.demo.script import Call, Reply

pytestmark = pytest.mark.e2e

FACT = "- The build needs Node 20."

CRASH = """
import os, sys
from memoryd.adapters import memory_dir
from memoryd.daemon import saver

def dying(name, when):
    real = getattr(memory_dir.MemoryFiles, name)
    calls = 0
    def call(self, *args):
        nonlocal calls
        calls += 1
        if when == f"before {name} {calls}":
            os._exit(9)
        result = real(self, *args)
        if when == f"after {name} {calls}":
            os._exit(9)
        return result
    setattr(memory_dir.MemoryFiles, name, call)

when = os.environ.get("MEMORYD_TEST_DIE", "")
if when == "after reply":
    real_write = saver.Saver._write
    async def die(self, *args):
        os._exit(9)
    saver.Saver._write = die
for name in ("stage", "publish"):
    dying(name, when)
"""
"""A daemon that ends itself, as abruptly as by SIGKILL, at a named file call."""


def owing(home: House) -> None:
    session = home.session(home.project())
    session.start()
    session.turn("the build needs node 20, remember that")


def test_while_the_model_thinks() -> None:
    hold = Event()
    asked = 0

    def script(_: Call) -> Reply:
        nonlocal asked
        asked += 1
        reply = saying(adding(FACT))
        return reply if asked > 1 else text("never read", hold=hold)

    with house(script) as home:
        owing(home)
        home.api.wait_for(lambda call: call.is_messages)
        home.kill()
        hold.set()
        home.start()
        (run,) = home.wait_saved()
        assert run.state == "done"
        assert home.memory().count(FACT) == 1
        assert asked == 2


POINTS = [
    "after reply",
    "before stage 1",
    "after stage 1",
    "before publish 1",
    "after publish 1",
    "before publish 2",
    "after publish 2",
]


@pytest.mark.parametrize("point", POINTS)
def test_after_the_reply_it_is_not_paid_for_twice(point: str) -> None:
    topics = [{"file": "build.md", "append": "Node 18 failed at link time."}]
    with house(lambda _: saying(adding(FACT), topics=topics)) as home:
        home.kill()
        (home.root / "crash").mkdir()
        (home.root / "crash" / "sitecustomize.py").write_text(CRASH)
        path = f"{home.root / 'crash'}:{home.env['PYTHONPATH']}"
        home.start(MEMORYD_TEST_DIE=point, PYTHONPATH=path)
        owing(home)
        assert home.process is not None
        assert home.process.wait(20) == 9
        home.start()
        (run,) = home.wait_saved()
        assert run.state == "done"
        assert home.memory().count(FACT) == 1
        assert home.memory(file="build.md").count("Node 18") == 1
        assert len(home.api.messages) == 1
        left = [path.name for path in (home.memory_root / "api").iterdir()]
        assert sorted(left) == ["MEMORY.md", "build.md"]
