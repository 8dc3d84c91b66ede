"""Nothing calls home: what a query by the local embedder leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

QUERY: Final = """
import asyncio, sys
from pathlib import Path
from latent_core.models.embedding import minilm
from latent_core.models.embedding.local import LocalEmbedder
async def main():
    embedder = LocalEmbedder(minilm.built_in(minilm.INT8, Path(sys.argv[1])))
    print(len(await embedder.embed_query("who keeps the lamp?")))
    await embedder.close()
asyncio.run(main())
"""


def test_a_query_by_the_local_embedder_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    """What onnxruntime would report it first keeps there: a number of the machine, and the reports to be sent. Where
    it sees ``CI`` it is silent, so this runs in an environment of its own."""
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", QUERY, str(tmp_path / "models")],
        env={
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "ORT_DISABLE_TELEMETRY": "0",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "384\n"), done.stderr
    assert list(home.rglob("*")) == []
