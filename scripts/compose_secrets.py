"""The secrets of the compose stack, made once: python scripts/compose_secrets.py [folder]

What exists is left alone, so that it can be run again. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "secrets"
RANDOM = (
    "postgres_password",
    "qdrant_api_key",
    "s3_access_key",
    "s3_secret_key",
    "mcp_token",
    "signing_key",
    "grafana_password",
)
BYTES = 32


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the secrets of the compose stack")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    made = make(folder)
    print(f"{folder}: {'made ' + ', '.join(made) if made else 'nothing to do'}")
    return 0


def make(folder: Path) -> list[str]:
    """Write what is missing into ``folder``; the names of what was written.

    The folder is closed to others; the files in it are not, since each container reads those that are
    mounted into it as a user of its own.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    made = [name for name in RANDOM if _write(folder / name, secrets.token_urlsafe(BYTES))]
    given = {name: (folder / name).read_text("utf-8").strip() for name in RANDOM}
    derived = {
        "postgres_dsn": f"postgresql://latent:{given['postgres_password']}@postgres:5432/latent",
        "qdrant.yaml": f"service:\n  api_key: {json.dumps(given['qdrant_api_key'])}\n",
        "s3.json": json.dumps(_identities(given["s3_access_key"], given["s3_secret_key"])),
    }
    return made + [name for name, content in derived.items() if _write(folder / name, content)]


def _identities(access_key: str, secret_key: str) -> dict[str, object]:
    """Who may use SeaweedFS: us, for everything."""
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "latent", "credentials": credentials, "actions": actions}]}


def _write(file: Path, content: str) -> bool:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        os.fchmod(descriptor, 0o644)
        opened.write(content)
    return True


if __name__ == "__main__":
    sys.exit(main())
