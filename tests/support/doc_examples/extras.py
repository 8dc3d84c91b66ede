"""What a text says to install: the distribution, with extras that it has."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Any, Final

from tests.support import REPOSITORY

DISTRIBUTION: Final = "latent-containers"
NAMED: Final = re.compile(r"\b(latent-[a-z]+)\[([a-z, ]+)\]")


def extra_problems(text: str) -> list[str]:
    problems = []
    for package, extras in NAMED.findall(text):
        if package != DISTRIBUTION:
            problems.append(f"{package} is not a package that users install: write {DISTRIBUTION}")
        unknown = {extra.strip() for extra in extras.split(",")} - known_extras()
        problems += [f"{DISTRIBUTION} has no extra {extra}" for extra in sorted(unknown)]
    return problems


@cache
def known_extras() -> frozenset[str]:
    """The extras that the build of the distribution collects from its packages."""
    root = _read("pyproject.toml")
    hook = root["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    extras = set(hook["empty"])
    for member in hook["members"]:
        project = _read(f"{member}/pyproject.toml")["project"]
        extras |= set(project.get("optional-dependencies", {}))
    return frozenset(extras)


def _read(path: str) -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8"))
