"""Test the served OpenAPI schema with schemathesis: every route, as every role, stateful and with invalid data.

    python -m scripts.fuzz [--seconds 1200] [--seed 1] [--role reader|write|admin|owner]

It starts a temporary installation with a little content. It checks that no answer is a 5xx, that every answer matches
the schema (status, type, body, headers), that invalid data is refused, and that no answer takes longer than two
seconds. Exit code 1 if a check fails or a role sent no request. It prints the number of tested requests and one curl
line per failure.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from latent_client import SyncClient
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.domain.token import Scope
from latent_core.wire.search import SearchRequest
from tests.support import LIGHTHOUSE
from tests.support.harness.throwaway import TemporaryInstallation, throwaway

CONTAINER: Final = "fuzzed"
DOOMED: Final = tuple(f"doomed-{n}" for n in range(4))
"""Containers that a role may delete, so that others remain for requests."""
AGENT: Final = "agent:fuzz"
SLOWEST_SECONDS: Final = 2
WAIT_SECONDS: Final = 30
"""Timeout of one request."""
JOB_SECONDS: Final = 120.0
MIN_SECONDS: Final = 20
PATIENT: Final = 3
MAX_LINES: Final = 300
"""Maximum lines of output per role."""
CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
"""All but positive_data_acceptance and the checks that build on it, and ignored_auth. The server refuses with a reason
much that the schema allows, such as filters on unknown fields or a missing source. After many invalid tokens it answers
429, which ignored_auth reports as a failure; tests/access/test_roles.py tests that every route needs a token."""
HEADING: Final = re.compile(r"=+ (\w[\w ]*?) =+")
TRIED: Final = re.compile(r"^ *\d+ generated.*$", re.MULTILINE)
"""Matches "106 generated, 106 passed, 24 skipped"."""
SERVER_ERROR: Final = re.compile(r'"(?:request_failed|tool_failed)"')


@dataclass(frozen=True)
class Role:
    name: str
    share: float
    """Fraction of the total time."""
    scopes: tuple[Scope, ...] = ()
    """None for the owner, who uses the token of the installation."""


ROLES: Final = (
    Role("reader", 0.15, (Scope.READ,)),
    Role("write", 0.2, (Scope.READ, Scope.WRITE, Scope.DELETE)),
    Role("admin", 0.25, tuple(Scope)),
    Role("owner", 0.4),  # last: it may delete everything
)


@dataclass
class KnownIds:
    """Identifiers of existing objects, so that requests pass the first check."""

    documents: list[str] = field(default_factory=list)
    chunks: list[str] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    link: str = ""


def main() -> int:
    given = _arguments()
    try:
        with throwaway() as installation:
            roles = [role for role in ROLES if given.role in (None, role.name)]
            return guarded(installation, roles, given)
    except LatentError as exc:
        print(f"FAIL {exc.message}")
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--slowest", type=float, default=SLOWEST_SECONDS, help="seconds; more on a busy machine"
    )
    parser.add_argument("--role", choices=[role.name for role in ROLES])
    return parser.parse_args()


def guarded(
    installation: TemporaryInstallation, roles: list[Role], given: argparse.Namespace
) -> int:
    """Run all roles. If the run aborts, print the end of the server's log."""
    try:
        return run(installation, roles, given)
    except (LatentError, httpx.HTTPError, subprocess.SubprocessError) as exc:
        print(f"FAIL {type(exc).__name__}: {exc}\n{installation.tail()}")
        return 1


def run(installation: TemporaryInstallation, roles: list[Role], given: argparse.Namespace) -> int:
    print(f"latent runs at {installation.url} after {installation.started_seconds:.1f} s")
    failed = []
    with SyncClient(installation.url, installation.token) as client:
        known = filled(client, installation)
        for role in roles:
            token = token_of(client, role) or installation.token
            share = max(
                MIN_SECONDS, round(given.seconds * role.share / sum(one.share for one in roles))
            )
            if not tried(installation, role, token, known, share, given):
                failed.append(role.name)
    unforeseen = len(SERVER_ERROR.findall(installation.log.read_text("utf-8", errors="replace")))
    if unforeseen:
        print(f"\nFAIL {unforeseen} unexpected errors in the server's log:")
        print(installation.tail())
    if failed:
        print(f"\nFAIL as {', '.join(failed)}")
    return 1 if failed or unforeseen else 0


def filled(client: SyncClient, installation: TemporaryInstallation) -> KnownIds:
    """Create a container with the samples and others to delete. Returns the identifiers of their content."""
    acl = Acl(roles=Roles(owner=["local:you", AGENT], reader=["*"]))
    for container_id in (CONTAINER, *DOOMED):
        client.create(Manifest(id=container_id, name=container_id.title(), acl=acl))
    known, files = KnownIds(), sorted(LIGHTHOUSE.glob("*.md"))
    for file in files:
        upload = client.upload(CONTAINER, file)
        known.uploads.append(upload.file_ref)
        known.jobs.append(client.add(CONTAINER, file_ref=upload.file_ref).job_id)
    client.wait(known.jobs, timeout_seconds=JOB_SECONDS)
    drawn = [job.job_id for job in client.jobs(container_id=CONTAINER) if job.kind == "render"]
    client.wait(drawn, timeout_seconds=JOB_SECONDS)
    known.documents = [str(found.doc_id) for found in client.documents(CONTAINER)]
    known.chunks = [str(found.chunk_id) for found in client.chunks(CONTAINER)][:20]
    found = client.search(SearchRequest(containers=[CONTAINER], query="lamp", top_k=1))
    known.link = found.hits[0].page_uri or "" if found.hits else ""
    print(
        f"held: {len(known.documents)} documents, {len(known.chunks)} chunks, in {installation.folder}"
    )
    return known


def token_of(client: SyncClient, role: Role) -> str | None:
    if not role.scopes:
        return None
    return client.create_token(AGENT, name=role.name, scopes=role.scopes).secret


def tried(
    installation: TemporaryInstallation,
    role: Role,
    token: str,
    known: KnownIds,
    seconds: int,
    given: argparse.Namespace,
) -> bool:
    """Whether one role sent requests without a finding. If a busy machine sends no request in time, retry once with
    more time."""
    for share in (seconds, PATIENT * seconds):
        print(f"\n=== as {role.name}, {share} s", flush=True)
        code, output = fuzz(installation, role, token, known, share, given)
        print("\n".join(findings(output, failed=code != 0)), flush=True)
        if code != 0 or TRIED.search(output):
            return code == 0
    print(f"no request was sent in {share} s; use a larger --seconds")
    return False


def findings(output: str, *, failed: bool) -> list[str]:
    """The failures, errors and case counts in the output of schemathesis."""
    title, shown = "", []
    for line in output.splitlines():
        heading = HEADING.fullmatch(line)
        title = heading[1] if heading else title
        if title in ("FAILURES", "ERRORS") or TRIED.fullmatch(line):
            shown.append(line)
    # It stopped early: its settings or the schema are wrong.
    if failed and len(shown) < 2:
        shown = output.splitlines()[-MAX_LINES:]
    more = len(shown) - MAX_LINES
    return [*shown[:MAX_LINES], f"… and {more} lines more"] if more > 0 else shown


def fuzz(
    installation: TemporaryInstallation,
    role: Role,
    token: str,
    known: KnownIds,
    seconds: int,
    given: argparse.Namespace,
) -> tuple[int, str]:
    """Run schemathesis once. Returns its exit code and output."""
    folder = installation.folder / f"fuzz-{role.name}"
    folder.mkdir(exist_ok=True)
    settings = folder / "schemathesis.toml"
    settings.write_text(configuration(known), encoding="utf-8")
    schema = folder / "openapi.json"
    served = httpx.get(f"{installation.url}/openapi.json", timeout=WAIT_SECONDS, trust_env=False)
    schema.write_bytes(served.raise_for_status().content)
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if program is None:
        raise LatentError("schemathesis is not installed: run `make setup`")
    done = subprocess.run(
        [
            program,
            f"--config-file={settings}",
            "run",
            str(schema),
            f"--url={installation.url}",
            f"--header=Authorization: Bearer {token}",
            f"--checks={','.join(CHECKS)}",
            f"--max-time={seconds}",
            f"--max-response-time={given.slowest}",
            f"--request-timeout={WAIT_SECONDS}",
            f"--seed={given.seed}",
            "--continue-on-failure",
            "--max-failures=20",
            "--no-color",
        ],
        cwd=folder,
        timeout=2 * seconds + 120,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    return done.returncode, done.stdout


def configuration(known: KnownIds) -> str:
    """Settings of schemathesis, which mostly use existing identifiers."""
    lists: dict[str, list[str] | list[int]] = {
        "containers": [CONTAINER, DOOMED[0]],
        "doomed": list(DOOMED[1:]),
        "documents": known.documents,
        "chunks": known.chunks,
        "jobs": known.jobs,
        "sources": [*known.uploads, *known.documents],
        "pages": [1, 2],
        "waits": [0, 200],
    }
    bound = {
        "path.container_id": "containers",
        "query.container_id": "containers",
        "body.container_id": "containers",
        "path.doc_id": "documents",
        "query.doc_id": "documents",
        "path.chunk_id": "chunks",
        "path.job_id": "jobs",
        "path.page": "pages",
        "body.file_ref": "sources",
    }
    lines = []
    for name, values in lists.items():
        lines += [f"[dictionaries.{name}]", f"values = {values!r}"]
    link = httpx.URL(known.link)
    parts = {"path.sha256": link.path.rpartition("/")[2]}
    parts |= {f"query.{name}": value for name, value in link.params.items()}
    lines += [line for key, value in parts.items() for line in _one_value(key, value)]
    lines.append("[parameters]")
    lines += [
        f'"{key}" = {{ dictionary = "{name}", probability = 0.8 }}' for key, name in bound.items()
    ]
    lines += _of_operation("DELETE /v1/containers/{container_id}", {"path.container_id": "doomed"})
    lines += _of_operation("GET /v1/blobs/{sha256}", {key: _named(key) for key in parts})
    # It waits for its job as long as the request says, so it may be slow.
    lines += _of_operation(
        "GET /v1/documents/{doc_id}/pages/{page}/pdf", {"query.wait_ms": "waits"}
    )
    lines += [
        "[[operations]]",
        'include-path = "/v1/jobs/{job_id}/events"',
        "max-stream-events = 3",
    ]
    return "\n".join(lines) + "\n"


def _one_value(key: str, value: str) -> list[str]:
    values = [int(value) if value.isdecimal() else value]
    return [f"[dictionaries.{_named(key)}]", f"values = {values!r}"]


def _named(key: str) -> str:
    return f"link_{key.partition('.')[2]}"


def _of_operation(name: str, parameters: dict[str, str]) -> list[str]:
    """Values for operations that need different ones than the rest."""
    bound = [
        f'"{key}" = {{ dictionary = "{dictionary}", probability = 0.9 }}'
        for key, dictionary in parameters.items()
    ]
    return ["[[operations]]", f'include-name = "{name}"', "[operations.parameters]", *bound]


if __name__ == "__main__":
    sys.exit(main())
