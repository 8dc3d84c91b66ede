"""Test the Dockerfiles and the compose files where no image can be pulled: make docker-trial

Builds both images on a base made by debootstrap, builds them again after a change to the code, starts the stack with
stand-ins for the stores, and runs the checks of `make smoke` on it. At the end it lists what was not tested.
It needs root, Debian's docker.io and debootstrap. All data is below --scratch; a second run reuses it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latent_client import SyncClient
from latent_core.domain.errors import LatentError, TimedOut, Unavailable
from latent_core.domain.manifest.model import LOCAL_MULTILINGUAL, Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from scripts import compose_secrets, smoke
from scripts.compose_stack import REPOSITORY, ComposeStack, compose_command, composed

SUITE = "bookworm"  # its Python is 3.11
INCLUDED = "python3,python3-venv,python3-pip,ca-certificates"
BASE = "latent-trial-base:trial"
CONTEXT = (
    "core",
    "client",
    "mcp-server",
    "workers",
    "cli",
    "migrations",
    "docker",
    "distribution",
    "requirements.lock",
    "scripts",
    ".dockerignore",
)
IMAGES = {"latent-gateway": "mcp-server/Dockerfile", "latent-worker": "workers/Dockerfile"}
STORES = "docker/trial/stores.Dockerfile"
STAND_INS = "latent-trial-stores:trial"
FROM_HOST = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""Files of this machine that a build may need to reach a package index."""
GERMAN = {
    "fahrrad": "Das Fahrrad steht im Keller neben der Heizung.",
    "rechnung": "Rechnungen werden innerhalb von dreißig Tagen bezahlt.",
    "hund": "Der Hund bekommt morgens und abends Futter.",
}
GERMAN_QUERY = "Wo habe ich mein Rad abgestellt?"
START_SECONDS = 60.0
BUILD_SECONDS = 1800.0
SECRET = re.compile(r"(?i)\b\w*(?:password|api_key|secret_key|token)\b=\S+|://[^/\s:@]+:[^/\s@]+@")
"""A value of a variable, or a password in an address."""
REBUILD_SECONDS = 60.0
"""A third of the first build is also accepted, since machines differ."""
NOT_HAD = (
    "python:3.11-slim (a base of debootstrap was used instead)",
    "postgres:18.4 (the Postgres 18 of the embedded default's wheel was used instead)",
    "qdrant/qdrant (a stand-in over qdrant-client's local mode: wiring, not proof)",
    "chrislusf/seaweedfs (the SeaweedFS of a wheel was used instead: its start script was not run)",
    "the images of docker/observability.yml, docker/tls.yml and docker/minio.yml (not started)",
)


@dataclass(frozen=True, slots=True)
class Docker:
    """A Docker daemon and the variables that select it."""

    variables: Mapping[str, str]

    def run(self, *arguments: str, cwd: Path = REPOSITORY, seconds: float = BUILD_SECONDS) -> str:
        """The output of docker. Raises ``Unavailable`` with its error output if it fails."""
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **self.variables},  # noqa: TID251 - handed on, not read
            cwd=cwd,
            timeout=seconds,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(
                f"docker {arguments[0]} failed:\n{(done.stderr or done.stdout)[-4000:]}"
            )
        return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the Dockerfiles and the compose wiring")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp/latent-docker-trial"))
    scratch: Path = parser.parse_args().scratch
    checks = smoke.Checks()
    try:
        needed("docker", "dockerd", "debootstrap")
        compose_command()
        scratch.mkdir(mode=0o755, parents=True, exist_ok=True)
        with daemon(scratch) as docker:
            base(docker, scratch)
            build(docker, scratch, checks)
            start(docker, checks)
    except (LatentError, OSError, subprocess.SubprocessError) as exc:
        checks.that(False, f"{type(exc).__name__}: {exc}")
    print("\nunavailable, and so not tested:", *NOT_HAD, sep="\n  - ")
    print(f"\n{len(checks.failed)} checks failed" if checks.failed else "\nall checks passed")
    return 1 if checks.failed else 0


def needed(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise Unavailable(
            f"the trial needs root and {', '.join(missing or programs)}; on Debian: apt-get install docker.io "
            "docker-compose debootstrap"
        )


@contextmanager
def daemon(scratch: Path) -> Iterator[Docker]:
    """A separate Docker daemon with its data below ``scratch``; stopped at the end of the block."""
    socket = scratch / "docker.sock"
    variables = {"DOCKER_HOST": f"unix://{socket}", "DOCKER_BUILDKIT": "0"}
    with (scratch / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={scratch / 'data'}",
                f"--exec-root={scratch / 'exec'}",
                f"--pidfile={scratch / 'dockerd.pid'}",
                f"--host=unix://{socket}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        docker = Docker(variables)
        _await_daemon(docker, process, scratch)
        yield docker
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _await_daemon(docker: Docker, process: subprocess.Popen[bytes], scratch: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            docker.run("version", seconds=10)
            return
        except Unavailable as exc:
            if process.poll() is not None or time.monotonic() > until:
                tail = (scratch / "dockerd.log").read_text("utf-8", errors="replace")[-2000:]
                raise TimedOut(f"dockerd did not start:\n{tail}") from exc
        time.sleep(0.5)


def base(docker: Docker, scratch: Path) -> None:
    """The stand-in for python:3.11-slim, built once."""
    if docker.run("images", "--quiet", BASE).strip():
        return
    begun = time.monotonic()
    root = scratch / "rootfs"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, root],
        check=True,
        timeout=BUILD_SECONDS,
        stdout=subprocess.DEVNULL,
    )
    for name in FROM_HOST:
        if (Path("/") / name).is_file():
            shutil.copyfile(Path("/") / name, root / name)
    _settle_apt(root)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    archive = scratch / "rootfs.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=300)
    docker.run("import", str(archive), BASE)
    archive.unlink()
    shutil.rmtree(root)
    print(f"a base of debootstrap in {time.monotonic() - begun:.0f} s")


def _settle_apt(root: Path) -> None:
    """Containers use the package index of this machine."""
    for folder, pattern in (("sources.list.d", "*.sources"), ("apt.conf.d", "99*")):
        for file in (Path("/etc/apt") / folder).glob(pattern):
            shutil.copyfile(file, root / "etc/apt" / folder / file.name)
            (root / "etc/apt/sources.list").write_text("", "utf-8")


def build(docker: Docker, scratch: Path, checks: smoke.Checks) -> None:
    """Build both images, then again after a change to the code, which must rebuild only the last layers."""
    context = scratch / "context"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    for name in CONTEXT:
        source = REPOSITORY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "tests", "*.egg-info")
            shutil.copytree(source, context / name, ignore=ignored)
        else:
            shutil.copyfile(source, context / name)
    first: dict[str, float] = {}
    for tag, file in IMAGES.items():
        first[tag] = seconds = _build(docker, context, f"{tag}:trial", file)
        size = int(docker.run("image", "inspect", "--format={{.Size}}", f"{tag}:trial"))
        print(f"{tag} built in {seconds:.0f} s, {size / 1e6:.0f} MB")
        user = docker.run("image", "inspect", "--format={{.Config.User}}", f"{tag}:trial").strip()
        checks.that(user == "10001:10001", f"{tag} runs as its own user: {user}")
        _inspect(docker, f"{tag}:trial", checks)
    with (context / "core/src/latent_core/__init__.py").open("a", encoding="utf-8") as changed:
        changed.write("# changed\n")
    for tag, file in IMAGES.items():
        seconds = _build(docker, context, f"{tag}:trial", file)
        quick = seconds < max(first[tag] / 3, REBUILD_SECONDS)
        checks.that(quick, f"{tag} rebuilt in {seconds:.0f} s after a change to the code")
    _build_stand_ins(docker, scratch / "stores")


def _inspect(docker: Docker, image: str, checks: smoke.Checks) -> None:
    """Check what the image holds, and that no layer and no variable of it has a secret."""
    check = (REPOSITORY / "scripts" / "image_check.py").read_text("utf-8")
    try:
        seen = docker.run(
            "run", "--rm", "--network=none", "--entrypoint=python", image, "-c", check
        )
        checks.that(True, f"{image}: {seen.strip()}")
    except Unavailable as exc:
        checks.that(False, f"{image} holds all that it needs: {exc.message}")
    history = docker.run("history", "--no-trunc", "--format={{.CreatedBy}}", image)
    variables = docker.run("image", "inspect", "--format={{json .Config}}", image)
    compose_secrets.make(compose_secrets.FOLDER)
    values = [file.read_text("utf-8").strip() for file in compose_secrets.FOLDER.iterdir()]
    found = [v for v in values if v and v in history + variables]
    found += SECRET.findall(history + variables)
    checks.that(not found, f"{image}: {len(history.splitlines())} layers, none with a secret")
    unexpected = docker.run(
        *("run", "--rm", "--network=none", "--user=0", "--entrypoint=find", image, "/", "-xdev"),
        *("(", "-name", ".env*", "-o", "-name", "pip.conf", "-o", "-path", "*/secrets/*_key", ")"),
        *("-not", "-path", "/etc/pip.conf"),  # of the stand-in base
    )
    checks.that(not unexpected.strip(), f"{image} has no settings and no keys {unexpected.strip()}")


def _build_stand_ins(docker: Docker, context: Path) -> None:
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docker" / "trial", context / "docker" / "trial")
    shutil.copytree(
        REPOSITORY / "tests" / "support",
        context / "tests" / "support",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    docker.run("build", "--network=host", f"--tag={STAND_INS}", f"--file={STORES}", str(context))


def _build(docker: Docker, context: Path, tag: str, file: str) -> float:
    begun = time.monotonic()
    docker.run(
        "build",
        "--network=host",
        f"--build-arg=PYTHON_IMAGE={BASE}",
        f"--tag={tag}",
        f"--file={file}",
        ".",
        cwd=context,
    )
    return time.monotonic() - begun


def start(docker: Docker, checks: smoke.Checks) -> None:
    """Run the smoke checks on a stack with two workers and stand-ins for the stores."""
    variables = {**docker.variables, "LATENT_VERSION": "trial"}
    with composed(
        ["small", "trial"], variables=variables, options=("--no-build", "--scale", "worker=2")
    ) as stack:
        healthy(docker, stack, checks)
        without_rights(docker, stack, checks)
        reads_german(stack, checks)
        smoke.guarded(stack, checks)


def healthy(docker: Docker, stack: ComposeStack, checks: smoke.Checks) -> None:
    """Check the health of gateway and workers as Docker reports it."""
    for service, count in (("gateway", 1), ("worker", 2)):
        until = time.monotonic() + 120
        states = _health(docker, stack, service)
        while states != ["healthy"] * count and time.monotonic() < until:
            time.sleep(2)
            states = _health(docker, stack, service)
        checks.that(states == ["healthy"] * count, f"{service}: {', '.join(states) or 'absent'}")


def without_rights(docker: Docker, stack: ComposeStack, checks: smoke.Checks) -> None:
    """Check the user, the capabilities and the root of the running gateway and workers."""
    script = (
        "id -u; grep CapEff /proc/self/status; touch /opt/x 2>/dev/null && echo written || true"
    )
    for service in ("gateway", "worker"):
        for one in _containers(docker, stack, service):
            seen = docker.run("exec", one, "sh", "-c", script).split()
            expected = ["10001", "CapEff:", "0000000000000000"]
            checks.that(seen == expected, f"{service}: user, capabilities, root: {' '.join(seen)}")


def reads_german(stack: ComposeStack, checks: smoke.Checks) -> None:
    """Check that a container with the multilingual embedder is ingested and found in by meaning."""
    folder = stack.folder / "lager"
    folder.mkdir()
    for name, text in GERMAN.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    with SyncClient(stack.url, stack.token) as client:
        client.create(Manifest(id="lager", name="Lager", embedder=LOCAL_MULTILINGUAL))
        done = stack.latent("ingest", folder, "-c", "lager", "--wait", seconds=600.0)
        checks.that(done.returncode == 0, f"German files are ingested {done.stderr[-400:]}")
        request = SearchRequest(
            containers=["lager"], query=GERMAN_QUERY, top_k=3, mode=SearchMode.SEMANTIC
        )
        answer = client.search(request)
    found = [hit.source_path.rpartition("/")[2] for hit in answer.hits]
    checks.that(found[:1] == ["fahrrad.md"], f"by meaning, in German: {', '.join(found)}")


def _health(docker: Docker, stack: ComposeStack, service: str) -> Sequence[str]:
    ids = _containers(docker, stack, service)
    return [docker.run("inspect", "--format={{.State.Health.Status}}", one).strip() for one in ids]


def _containers(docker: Docker, stack: ComposeStack, service: str) -> Sequence[str]:
    labels = ("project=" + stack.project, "service=" + service)
    filters = [f"--filter=label=com.docker.compose.{label}" for label in labels]
    return docker.run("ps", "--all", "--quiet", *filters).split()


if __name__ == "__main__":
    sys.exit(main())
