"""Validate every manifest of a folder (default: the shipped ones) and the golden queries beside it: used by
`make check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from latent_core.domain.errors import LatentError
from latent_core.domain.manifest import templates
from latent_core.domain.manifest.yaml_reader import load_manifest
from latent_core.eval.datasets import read_golden

SHIPPED: Final = Path(str(templates.SHIPPED))


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED
    files = sorted(folder.rglob("*.yaml"))
    bad = 0
    for path in files:
        try:
            load_manifest(path)
        except LatentError as error:
            print(error.message, file=sys.stderr)
            bad += 1
    golden = sorted([*folder.glob("*.eval.json"), *folder.glob("*/eval.json")])
    known = {path.stem for path in files}
    for path in golden:
        problem = _problem(path, known)
        if problem is not None:
            print(problem, file=sys.stderr)
            bad += 1
    print(f"{len(files)} manifests, {len(golden)} files of golden queries, {bad} with problems")
    return 1 if bad or not files else 0


def _problem(path: Path, manifests: set[str]) -> str | None:
    """What is wrong with a file of golden queries: its shape, or that no manifest stands beside it."""
    owner = path.parent.name if path.name == "eval.json" else path.name.removesuffix(".eval.json")
    if owner not in manifests:
        return f"{path}: there is no manifest {owner}.yaml"
    try:
        read_golden(path)
    except LatentError as error:
        return error.message
    return None


if __name__ == "__main__":
    sys.exit(main())
