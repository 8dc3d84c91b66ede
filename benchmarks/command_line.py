"""Seconds of `latent search` as a person sees them: start of the process, request, answer on a pipe.

    python -m benchmarks.command_line [--runs N]

A fresh installation with the sample container; the first runs, which fill caches, are not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
from statistics import median
from time import perf_counter
from typing import Final

from tests.support.harness.throwaway import TemporaryInstallation, throwaway

QUERY: Final = "what to do when mercury is spilled on the floor"
WARM: Final = 3
SECONDS: Final = 300.0
COMMANDS: Final = (("search", QUERY, "-c", "samples"), ("search", QUERY), ("--help",))


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of `latent search`")
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with throwaway() as installation:
        installation.latent("samples", seconds=SECONDS)
        for command in COMMANDS:
            print(f"latent {command[0]}: {measured(installation, command, runs)}", flush=True)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")


def measured(installation: TemporaryInstallation, command: tuple[str, ...], runs: int) -> str:
    walls, busy = [], []
    for number in range(WARM + runs):
        begun, before = perf_counter(), _processor_seconds()
        done = installation.latent(*command, seconds=SECONDS)
        wall, used = perf_counter() - begun, _processor_seconds() - before
        done.check_returncode()
        if number >= WARM:
            walls.append(wall)
            busy.append(used)
    return f"median {median(walls):.3f} s, fastest {min(walls):.3f} s, of a processor {median(busy):.3f} s"


def _processor_seconds() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
