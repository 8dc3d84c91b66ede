"""What a pip install of the embedded default takes on disk: the installed packages that ours stand on.

    python benchmarks/size.py [--json FILE]

Only what the five packages need in this environment is counted, not the developer's tools beside it.
Exit code 1 when it is over the limit, or when a package of torch or CUDA is among it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS: Final = ("latent-core", "latent-gateway", "latent-workers", "latent-client", "latent-cli")
LIMIT_MB: Final = 900
MEGABYTE: Final = 1_000_000
LISTED: Final = 12
UNWANTED: Final = ("torch", "triton", "nvidia", "cuda", "cupy", "tensorflow", "jax")


@dataclass(frozen=True, slots=True)
class Size:
    """In MB of a million bytes."""

    total_mb: float
    packages: dict[str, float]
    """The largest first."""
    unwanted: list[str]
    absent: list[str]
    """Declared, but not installed: left out on purpose (see the overrides in ``pyproject.toml``)."""


def measure() -> Size:
    found, absent = closure()
    sizes = {name: _bytes(one) / MEGABYTE for name, one in found.items()}
    ordered = sorted(sizes.items(), key=lambda pair: -pair[1])
    return Size(
        total_mb=round(sum(sizes.values()), 1),
        packages={name: round(size, 1) for name, size in ordered},
        unwanted=sorted(name for name in found if any(word in name for word in UNWANTED)),
        absent=sorted(absent),
    )


def closure() -> tuple[dict[str, Distribution], set[str]]:
    """Installed distributions that ours need, ours included; and names that are needed and not installed."""
    found: dict[str, Distribution] = {}
    absent: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(name) for name in OURS]
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        for extra in ("", *needed.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                absent.add(name)
                continue
            waiting += _needs(found[name], extra)
    return found, absent


def _needs(one: Distribution, extra: str) -> Iterator[Requirement]:
    for line in one.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _bytes(one: Distribution) -> int:
    files = {Path(str(one.locate_file(file))).resolve() for file in one.files or ()}
    files |= {compiled for file in files if file.suffix == ".py" for compiled in _compiled(file)}
    files |= set(_editable(one))
    return sum(file.stat().st_size for file in files if file.is_file())


def _compiled(source: Path) -> Iterator[Path]:
    yield from (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")


def _editable(one: Distribution) -> Iterator[Path]:
    """Sources of a package that was installed in place."""
    direct_url = json.loads(one.read_text("direct_url.json") or "{}")
    if direct_url.get("dir_info", {}).get("editable"):
        yield from (Path(unquote(urlsplit(direct_url["url"]).path)) / "src").rglob("*")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file to write the numbers to")
    arguments = parser.parse_args()
    size = measure()
    for name, megabytes in list(size.packages.items())[:LISTED]:
        print(f"{name:30} {megabytes:8.1f} MB")
    rest = sum(list(size.packages.values())[LISTED:])
    print(f"{len(size.packages) - LISTED} more {'':23} {rest:8.1f} MB")
    print(f"{'together':30} {size.total_mb:8.1f} MB, limit {LIMIT_MB} MB")
    if size.absent:
        print(f"declared and left out: {', '.join(size.absent)}")
    if size.unwanted:
        print(f"not wanted: {', '.join(size.unwanted)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(size), indent=2) + "\n", encoding="utf-8")
    return 1 if size.unwanted or size.total_mb >= LIMIT_MB else 0


if __name__ == "__main__":
    sys.exit(main())
