"""Installs the real client for the tests, into `.cache/host` of the repository.

Run as a program, by `make test`: needs npm. Does nothing where the right version is there already.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

CLIENT_VERSION = "2.1.332"
FOLDER = Path(__file__).parents[2] / ".cache" / "host"
PROGRAMS = "node_modules/@anthropic-ai/claude-code-*/claude"
"""The program lies in the platform's own package: npm may skip the script that would link it."""


def installed() -> Path | None:
    """The program, where the right version is installed."""
    for program in sorted(FOLDER.glob(PROGRAMS)):
        manifest = json.loads((program.parent / "package.json").read_text())
        if manifest["version"] == CLIENT_VERSION:
            return program
    return None


def main() -> int:
    if installed() is None:
        npm = shutil.which("npm")
        if npm is None:
            print("the tests with the real client need npm (Node.js)", file=sys.stderr)  # noqa: T201
            return 1
        FOLDER.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
        package = f"@anthropic-ai/claude-code@{CLIENT_VERSION}"
        subprocess.run([npm, "install", *options, "--prefix", str(FOLDER), package], check=True)
    print(installed())  # noqa: T201
    return 0 if installed() else 1


if __name__ == "__main__":
    raise SystemExit(main())
