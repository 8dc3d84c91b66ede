"""Start the servers that tests need and run a command with their addresses.

    python -m scripts.servers -- pytest tests          # end to end: gateway and worker on servers
    python -m scripts.servers --postgres 16 -- pytest core/tests/bm25/test_keyword_index.py
    python -m scripts.servers --no-command             # keep them until Ctrl-C

Postgres comes from the wheel of the embedded server or from the system (``--postgres system``), S3 is SeaweedFS. Qdrant
is a stand-in that uses the local mode of its client. Addresses that are already set (``LLC_TEST_…``) are used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack, suppress

from tests.support.servers.launch import all_started
from tests.support.servers.postgres_server import system_programs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--postgres", default="18", help="18, 16, or system")
    parser.add_argument("--no-command", action="store_true", help="print the addresses and wait")
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    if not given.command and not given.no_command:
        parser.error("name a command, or --no-command")
    with ExitStack() as running:
        addresses = running.enter_context(all_started(_postgres_options(given.postgres)))
        environment = {"LLC_TEST_STACK": "servers", **addresses}
        if given.no_command:
            print(
                "\n".join(f"export {name}='{value}'" for name, value in environment.items()),
                flush=True,
            )
            print("Press Ctrl-C to stop them.", file=sys.stderr)
            with suppress(KeyboardInterrupt):
                sys.stdin.read()
            return 0
        inherited = {**os.environ, **environment}  # noqa: TID251 - handed on, not read
        return subprocess.run(given.command, env=inherited, check=False).returncode


def _postgres_options(chosen: str) -> list[str]:
    if chosen != "system":
        return ["--major", chosen]
    programs = system_programs()
    if programs is None:
        raise SystemExit(
            "no Postgres is installed below /usr/lib/postgresql; install one or use --postgres 18"
        )
    return ["--programs", str(programs)]


if __name__ == "__main__":
    sys.exit(main())
