"""Programs and libraries from npm, installed once below ``build/`` by name and version.

Without npm or a Node that is new enough, a test that needs one is skipped and says why.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.support import REPOSITORY

CACHE: Final = REPOSITORY / "build" / "npm"


def node(min_version: int) -> str:
    """A Node that is new enough: the system's, else the one that Playwright's wheel carries."""
    carried = find_spec("playwright")
    places = [shutil.which("node")]
    if carried is not None and carried.origin is not None:
        places.append(str(Path(carried.origin).parent / "driver" / "node"))
    for place in places:
        if place is not None and Path(place).exists():
            answer = subprocess.run(
                [place, "--version"], capture_output=True, text=True, check=False
            )
            version = re.match(r"v(\d+)\.", answer.stdout)
            if version is not None and int(version[1]) >= min_version:
                return place
    pytest.skip(f"this needs Node {min_version} or newer, and there is none")


def installed(package: str) -> Path:
    """The folder of an npm package ``@scope/name@version``, with ``node_modules`` above it."""
    name, version = package[1:].rsplit("@", 1)
    place = CACHE / re.sub(r"\W+", "-", package[1:])
    home = place / "node_modules" / f"@{name}"
    if not (home / "package.json").is_file():
        install(place, package)
    assert json.loads((home / "package.json").read_text("utf-8"))["version"] == version
    return home


def install(place: Path, *packages: str) -> None:
    """Install them below a folder, without running anything of theirs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"{packages[0]} comes by npm, and there is none")
    options = [
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--engine-strict=false",
    ]
    done = subprocess.run(
        [npm, "install", *options, f"--prefix={place}", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"{packages[0]} cannot be had from npm: {done.stderr.strip()[-300:]}")


def program(package: str, min_version: int) -> list[str]:
    """The command of an npm package."""
    home = installed(package)
    commands: dict[str, str] = json.loads((home / "package.json").read_text("utf-8"))["bin"]
    return [node(min_version), str(home / next(iter(commands.values())))]
