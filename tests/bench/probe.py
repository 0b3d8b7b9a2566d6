"""Asks a daemon again and again until its standard input ends: `python -m bench.probe SOCKET PAUSE`.

A process of its own, so that nothing which the benchmark does meanwhile delays it. Says when it
begins, and at the end the seconds of each request as a JSON list.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from bench.daemons import EVENT, RECEIVED, Wire
from bench.measure import no_collection


def main(path: Path, pause: float) -> None:
    found = []
    with Wire(path).connect() as client, no_collection():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], pause)[0]:
            started = time.perf_counter()
            client.sendall(EVENT)
            client.recv(RECEIVED)
            found.append(time.perf_counter() - started)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
