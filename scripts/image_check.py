"""What an image must hold, checked inside of it, without a network. Its Python reads this file from stdin:

    docker run --rm --interactive --network none --entrypoint python latent-worker:local - < scripts/image_check.py

The user has no rights, every module of ours can be imported, and both built-in embedders embed a text. Prints what it
saw; the exit code is 1 and the cause is printed if something is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "latent_core",
    "latent_client",
    "latent_cli",
    "latent_gateway",
    "latent_workers",
)
STARTS_A_PROGRAM: Final = "__main__"
OF_OTHER_IMAGES: Final = frozenset({"latent_gateway", "latent_workers"})
"""Each image holds one of these."""
USER: Final = 10001


def main() -> int:
    if os.getuid() != USER or os.getgid() != USER:
        return refused(f"runs as {os.getuid()}:{os.getgid()}, not as {USER}:{USER}")
    held = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    if len(held) != len(PACKAGES) - 1:
        return refused(f"holds {', '.join(held) or 'no package of ours'}")
    modules = [module for name in held for module in modules_of(name)]
    failed = [cause for module in modules if (cause := cannot_import(module))]
    if failed:
        return refused("\n".join(failed))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        dims = asyncio.run(embedded(Path(folder)))
    print(f"user {USER}, {len(modules)} modules of {', '.join(held)}, embedders {dims}")
    return 0


def refused(cause: str) -> int:
    print(cause, file=sys.stderr)
    return 1


def modules_of(package: str) -> list[str]:
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    return [module.name for module in found if not module.name.endswith(STARTS_A_PROGRAM)]


def cannot_import(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] in OF_OTHER_IMAGES:
            return None
        return f"{module}: {exc}"
    except ImportError as exc:
        return f"{module}: {exc}"
    return None


async def embedded(folder: Path) -> dict[str, int]:
    """Dimensions of a query's vector by embedder."""
    from latent_core.models.embedding import minilm, multilingual
    from latent_core.models.embedding.local import LocalEmbedder

    vectors = {}
    for local in (minilm.built_in(minilm.FP32, folder), multilingual.built_in(folder)):
        vector = await LocalEmbedder(local, threads=1).embed_query("Wo steht der Leuchtturm?")
        vectors[local.model.embedder] = len(vector)
    return vectors


if __name__ == "__main__":
    sys.exit(main())
