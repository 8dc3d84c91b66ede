"""The proof of the right to read is constructed where rights are checked, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGES = Path(__file__).parents[3]
CONSTRUCTORS = {
    "core/src/latent_core/refresh/gates.py",
    "mcp-server/src/latent_gateway/auth/access.py",
    "workers/src/latent_workers/jobs/eval.py",
}


def test_only_the_access_check_and_jobs_of_one_container_construct_readable() -> None:
    sources = set(PACKAGES.glob("*/src/**/*.py"))
    found = {
        path.relative_to(PACKAGES).as_posix()
        for path in sources
        if re.search(r"\bReadable\(", path.read_text(encoding="utf-8"))
    }
    assert found == CONSTRUCTORS
