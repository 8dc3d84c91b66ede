"""Create the secrets of the compose stack: python scripts/compose_secrets.py [folder]

Existing files are kept, so the script can run again. It needs only Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
FOR_KEYS = {
    "embed_api_key": ("LLC_EMBED_API_KEY", "LLC_NOMIC_API_KEY", "NOMIC_API_KEY"),
    "rerank_api_key": ("LLC_RERANK_API_KEY", "RERANK_API_KEY"),
    "otel_headers": (
        "LLC_OTEL_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ),
}
"""Files for your own API keys, and the variables that hold them outside of containers. Empty means no key."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Create the secrets of the compose stack")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    made = make(folder)
    print(f"{folder}: {'created ' + ', '.join(made) if made else 'nothing to do'}")
    for variable, name in not_read(folder.parent / ".env"):
        print(
            f"{variable} is not passed to containers, since their environment can be inspected; "
            f"write the key into {folder / name}"
        )
    return 0


def make(folder: Path) -> list[str]:
    """Write missing files into ``folder``. Returns their names.

    Only the owner can read the folder. The files in it are readable by all users, since each container reads
    its mounted files under a different user.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    made = [name for name in RANDOM if _write(folder / name, secrets.token_urlsafe(BYTES))]
    made += [name for name in FOR_KEYS if _write(folder / name, "")]
    given = {name: (folder / name).read_text("utf-8").strip() for name in RANDOM}
    derived = {
        "postgres_dsn": f"postgresql://latent:{given['postgres_password']}@postgres:5432/latent",
        "qdrant.yaml": f"service:\n  api_key: {json.dumps(given['qdrant_api_key'])}\n",
        "s3.json": json.dumps(_identities(given["s3_access_key"], given["s3_secret_key"])),
    }
    return made + [name for name, content in derived.items() if _write(folder / name, content)]


def not_read(dotenv: Path) -> list[tuple[str, str]]:
    """Keys that are set in a variable, and the files they belong in."""
    lines = dotenv.read_text("utf-8").splitlines() if dotenv.is_file() else []
    found = (re.match(r"(?:export\s+)?(\w+)=\S", line.strip()) for line in lines)
    given = {match[1] for match in found if match}
    given |= {name for name, value in os.environ.items() if value}  # noqa: TID251 - names only
    return [(v, name) for name, variables in FOR_KEYS.items() for v in variables if v in given]


def _identities(access_key: str, secret_key: str) -> dict[str, object]:
    """The SeaweedFS identity: one user with all permissions."""
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
