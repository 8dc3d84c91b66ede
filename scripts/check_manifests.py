"""Validate every manifest of a folder (default: the repository's): used by `make check`."""

from __future__ import annotations

import sys
from pathlib import Path

from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.yaml_reader import load_manifest


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "manifests"
    files = sorted(folder.glob("*.yaml"))
    bad = 0
    for path in files:
        try:
            load_manifest(path)
        except LatentError as error:
            print(error.message, file=sys.stderr)
            bad += 1
    print(f"{len(files)} manifests, {bad} with problems")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
