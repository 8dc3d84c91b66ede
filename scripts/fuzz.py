"""The whole served schema under schemathesis: every route, as every role, stateful and with wrong data.

    python -m scripts.fuzz [--seconds 1200] [--seed 1] [--role reader|ingest|admin|owner]

A fresh installation is started with a little content, and ended with all that was done to it. What is checked: no
5xx, every answer as the schema says (status, type, body, headers), wrong data refused, and no answer slower than two seconds. Exit code 1 when a check fails, or when a role was not tried at all; what failed is
printed with a curl line each, and nothing else but how much was tried.
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
from latent_core.domain.query import SearchRequest
from latent_core.domain.token import Scope
from tests.support.harness.throwaway import TemporaryInstallation, throwaway

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SAMPLES: Final = REPOSITORY / "samples" / "lighthouse"
CONTAINER: Final = "fuzzed"
DOOMED: Final = tuple(f"doomed-{n}" for n in range(4))
"""What may be deleted, so that there is something left to ask for."""
AGENT: Final = "agent:fuzz"
SLOWEST_SECONDS: Final = 2
WAIT_SECONDS: Final = 30
"""For one request, before it is given up as hung."""
JOB_SECONDS: Final = 120.0
MIN_SECONDS: Final = 20
PATIENT: Final = 3
MAX_LINES: Final = 300
"""Of one role."""
CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
"""All but positive_data_acceptance and those that build on it: much that a schema allows is refused with a reason (a
filter of fields the container has not, a source that is not there), and ignored_auth: who sends so many wrong tokens is
soon told to wait, which it takes for a fault. That every route wants a token is shown by tests/access/test_roles.py."""
HEADING: Final = re.compile(r"=+ (\w[\w ]*?) =+")
TRIED: Final = re.compile(r"^ *\d+ generated.*$", re.MULTILINE)
"""As in "106 generated, 106 passed, 24 skipped"."""
SERVER_ERROR: Final = re.compile(r'"(?:request_failed|tool_failed)"')


@dataclass(frozen=True)
class Role:
    name: str
    share: float
    """Of the time."""
    scopes: tuple[Scope, ...] = ()
    """None: the owner, by the installation's own token."""


ROLES: Final = (
    Role("reader", 0.15, (Scope.READ,)),
    Role("ingest", 0.2, (Scope.READ, Scope.INGEST)),
    Role("admin", 0.25, (Scope.READ, Scope.INGEST, Scope.ADMIN)),
    Role("owner", 0.4),  # last: it may take everything away
)


@dataclass
class KnownIds:
    """Names of things that are there, so that requests reach past the first check."""

    documents: list[str] = field(default_factory=list)
    chunks: list[str] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    link: str = ""


def main() -> int:
    given = _arguments()
    try:
        with throwaway(REPOSITORY / "manifests") as installation:
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
    """The run; when it breaks off, with the end of the server's log."""
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
        print(f"\nFAIL {unforeseen} errors that nobody foresaw, from the server's log:")
        print(installation.tail())
    if failed:
        print(f"\nFAIL as {', '.join(failed)}")
    return 1 if failed or unforeseen else 0


def filled(client: SyncClient, installation: TemporaryInstallation) -> KnownIds:
    """A container with the samples, others that may go, and what they hold."""
    acl = Acl(roles=Roles(owner=["local:you", AGENT], reader=["*"]))
    for container_id in (CONTAINER, *DOOMED):
        client.create(Manifest(id=container_id, name=container_id.title(), acl=acl))
    known, files = KnownIds(), sorted(SAMPLES.glob("*.md"))
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
    """Whether one role was tried and nothing was found. A busy machine may not come to the first request in a short
    time: it is given more, once."""
    for share in (seconds, PATIENT * seconds):
        print(f"\n=== as {role.name}, {share} s", flush=True)
        code, output = fuzz(installation, role, token, known, share, given)
        print("\n".join(findings(output, failed=code != 0)), flush=True)
        if code != 0 or TRIED.search(output):
            return code == 0
    print(f"not one request was sent in {share} s: give it more time")
    return False


def findings(output: str, *, failed: bool) -> list[str]:
    """Of what schemathesis tells: failures, errors, and how many cases there were."""
    title, shown = "", []
    for line in output.splitlines():
        heading = HEADING.fullmatch(line)
        title = heading[1] if heading else title
        if title in ("FAILURES", "ERRORS") or TRIED.fullmatch(line):
            shown.append(line)
    if failed and len(shown) < 2:  # it did not come so far: its settings, or the schema
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
    """One run of schemathesis: its exit code and what it told."""
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
    """Settings of schemathesis: values that lead somewhere, most of the time."""
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
    # It waits for its job as long as it is asked to, which is no slowness.
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
    """Where this operation takes its values from, other than the rest."""
    bound = [
        f'"{key}" = {{ dictionary = "{dictionary}", probability = 0.9 }}'
        for key, dictionary in parameters.items()
    ]
    return ["[[operations]]", f'include-name = "{name}"', "[operations.parameters]", *bound]


if __name__ == "__main__":
    sys.exit(main())
