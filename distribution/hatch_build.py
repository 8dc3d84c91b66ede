"""Hatch hooks of the distribution: what it needs and what it holds, read from the pyproject files of its packages.

It runs with hatchling alone: an isolated build has nothing else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Requirements(MetadataHookInterface):
    """Dependencies and extras of the packages, without the packages themselves."""

    def update(self, metadata: dict[str, Any]) -> None:  # type: ignore[explicit-override]
        projects = [read(Path(self.root), member)["project"] for member in self.config["members"]]
        own = {normal(project["name"]) for project in projects}
        replaced = {normal(name): line for name, line in self.config["replaced"].items()}

        def needed(lines: list[str]) -> set[str]:
            return {replaced.get(named(line), line) for line in lines if named(line) not in own}

        extras: dict[str, set[str]] = {name: set() for name in self.config["empty"]}
        dependencies: set[str] = set()
        for project in projects:
            dependencies |= needed(project["dependencies"])
            for extra, lines in project.get("optional-dependencies", {}).items():
                extras.setdefault(extra, set()).update(needed(lines))
        metadata["dependencies"] = sorted(dependencies, key=str.lower)
        metadata["optional-dependencies"] = {
            extra: sorted(lines, key=str.lower) for extra, lines in sorted(extras.items())
        }


class Contents(BuildHookInterface[Any]):
    """The code of the packages, and the files that they take from elsewhere in the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # type: ignore[explicit-override]
        if self.target_name != "wheel":
            return
        if version == "editable":
            raise ValueError(
                "the packages are installed in place, not the distribution: make setup"
            )
        root = Path(self.root)
        for member in self.config["members"]:
            wheel = read(root, member)["tool"]["hatch"]["build"]["targets"]["wheel"]
            build_data["force_include"].update(held(root / member, wheel))


def read(root: Path, member: str) -> dict[str, Any]:
    return tomllib.loads((root / member / "pyproject.toml").read_text("utf-8"))


def held(member: Path, wheel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Source and place in the wheel of all that a package's own wheel holds."""
    for package in wheel["packages"]:
        yield str((member / package).resolve()), Path(package).name
    for source, target in wheel.get("force-include", {}).items():
        yield str((member / source).resolve()), target


def named(requirement: str) -> str:
    """The normalized name of what a requirement is for."""
    found = NAME.match(requirement.strip())
    if found is None:
        raise ValueError(f"no name in the requirement '{requirement}'")
    return normal(found.group())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
