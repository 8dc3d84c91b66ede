"""Install the built wheels as a user would, and run the smoke test on them, outside the checkout.

    python -m scripts.install_trial WHEELS [--python python3.11] [--without-resolving]

Steps: a fresh environment with the pip that Python brings; its size and what must not be in it; the smoke test in a
folder that holds nothing of the checkout but the test itself; then, for newer Pythons and macOS, whether every
requirement has a binary wheel. What has none is listed. Exit code 1 if a step fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
DISTRIBUTION: Final = "latent-containers"
SMOKE: Final = (
    "scripts/smoke.py",
    "scripts/make_sample_pdf.py",
    "tests/support/__init__.py",
    "tests/support/harness/__init__.py",
    "tests/support/harness/throwaway.py",
)
"""The smoke test and what it imports of the checkout."""
DATA: Final = Path("cli", "src", "latent_cli", "data")
"""Where the smoke test looks for samples; they come from the installed package."""
LIMIT_MB: Final = 750
MEGABYTE: Final = 1_000_000
OF_EVERY_ENVIRONMENT: Final = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
UNWANTED: Final = ("torch", "triton", "nvidia", "cuda", "cupy", "tensorflow", "jax", "django")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux arm64": "aarch64-manylinux_2_28",
    "macOS 14 arm64": "aarch64-apple-darwin",
}
MACOS: Final = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
NO_WHEEL: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:[=<>!]\S*)? has no (?:usable )?wheels"
)
MAX_MISSING: Final = 20
INSTALL_SECONDS: Final = 1200
SMOKE_SECONDS: Final = 600
RESOLVE_SECONDS: Final = 300
LISTED: Final = 12


class Failed(Exception):
    """A step failed; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3.*/site-packages")
        return found

    @classmethod
    def fresh(cls, python: str, folder: Path) -> Environment:
        subprocess.run([python, "-m", "venv", str(folder)], check=True, timeout=120)
        return cls(folder)

    def pip(self, *arguments: str) -> None:
        pip = (str(self.python), "-m", "pip", "--disable-pip-version-check")
        done = subprocess.run(
            [*pip, *arguments], check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if done.returncode:
            raise Failed(f"pip {arguments[0]} failed:\n{done.stderr[-4000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the built wheels and try them")
    parser.add_argument("wheels", type=Path, metavar="WHEELS")
    parser.add_argument("--python", default="python3.11", help="which one makes the environment")
    parser.add_argument("--without-resolving", action="store_true")
    given = parser.parse_args()
    wheels = given.wheels.resolve()
    with tempfile.TemporaryDirectory(prefix="latent-install-") as name:
        folder = Path(name)
        try:
            environment = installed(given.python, wheels, folder / "environment")
            sized(environment)
            smoke(environment, folder / "smoke")
            if not given.without_resolving:
                resolved(wheels, folder)
        except Failed as exc:
            print(exc, file=sys.stderr)
            return 1
    return 0


def wheel_of(wheels: Path) -> Path:
    found = sorted(wheels.glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"))
    if len(found) != 1:
        raise Failed(
            f"{wheels} holds {len(found)} wheels of {DISTRIBUTION}, not one: make wheels OUT=…"
        )
    return found[0]


def installed(python: str, wheels: Path, folder: Path) -> Environment:
    environment = Environment.fresh(python, folder)
    environment.pip("--version")
    begun = time.monotonic()
    environment.pip("install", "--quiet", "--find-links", str(wheels), str(wheel_of(wheels)))
    environment.pip("check")
    print(f"installed in {time.monotonic() - begun:.0f} s", flush=True)
    return environment


def sized(environment: Environment) -> None:
    """The files of the wheels; bytecode is made by pip or at the first import, and counts by itself."""
    files, bytecode = dict[str, int](), 0
    for path in environment.site_packages.rglob("*"):
        top = path.relative_to(environment.site_packages).parts[0]
        if not path.is_file() or re.split(r"[-.]", top)[0] in OF_EVERY_ENVIRONMENT:
            continue
        if path.suffix == ".pyc":
            bytecode += path.stat().st_size
        else:
            files[top] = files.get(top, 0) + path.stat().st_size
    total = sum(files.values()) / MEGABYTE
    for name in sorted(files, key=files.__getitem__, reverse=True)[:LISTED]:
        print(f"  {name:32} {files[name] / MEGABYTE:7.1f} MB")
    print(
        f"site-packages: {total:.0f} MB (limit {LIMIT_MB}), and {bytecode / MEGABYTE:.0f} MB of bytecode"
    )
    unwanted = sorted(name for name in files if any(word in name.lower() for word in UNWANTED))
    if unwanted:
        raise Failed(f"installed, and must not be: {', '.join(unwanted)}")
    if total >= LIMIT_MB:
        raise Failed(f"{total:.0f} MB are over the limit of {LIMIT_MB} MB")


def smoke(environment: Environment, folder: Path) -> None:
    """The smoke test, on the installed packages."""
    for name in SMOKE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    shutil.copytree(environment.site_packages / "latent_cli" / "data", folder / DATA)
    where = (
        "import latent_core, latent_cli; print(latent_core.__file__); print(latent_cli.__file__)"
    )
    command = [str(environment.python), "-c", where]
    places = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    if any(environment.site_packages not in Path(line).parents for line in places.splitlines()):
        raise Failed(f"packages are imported from elsewhere:\n{places}")
    command = [str(environment.python), "-m", "scripts.smoke"]
    if subprocess.run(command, check=False, cwd=folder, timeout=SMOKE_SECONDS).returncode:
        raise Failed("the smoke test failed on the installed packages")


def resolved(wheels: Path, folder: Path) -> None:
    """Resolves with uv, which evaluates markers for the other system; pip evaluates them for this one."""
    tools = Environment.fresh(sys.executable, folder / "tools")
    tools.pip("install", "--quiet", "uv")
    gaps = False
    for (system, platform), python in product(PLATFORMS.items(), PYTHONS):
        absent, count = missing(tools.folder / "bin" / "uv", wheels, platform, python)
        gaps = gaps or bool(absent)
        print(
            f"  {system}, Python {python}: {count} wheels; missing: {', '.join(absent) or 'none'}",
            flush=True,
        )
    if gaps:
        raise Failed("requirements without a binary wheel are listed above")


def missing(uv: Path, wheels: Path, platform: str, python: str) -> tuple[list[str], int]:
    """Requirements without a binary wheel, and the number of packages that resolve without them."""
    absent: list[str] = []
    for _ in range(MAX_MISSING):
        done = _compile(uv, wheels, platform, python, absent)
        if done.returncode == 0:
            return absent, sum("==" in line or " @ " in line for line in done.stdout.splitlines())
        named = set(NO_WHEEL.findall(done.stderr)) - set(absent)
        if not named:
            raise Failed(f"no resolution for {platform}, Python {python}:\n{done.stderr[-3000:]}")
        absent += sorted(named)
    raise Failed(
        f"more than {MAX_MISSING} requirements have no wheel for {platform}, Python {python}"
    )


def _compile(
    uv: Path, wheels: Path, platform: str, python: str, without: Iterable[str]
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="latent-resolve-") as name:
        overrides = Path(name, "overrides.txt")
        overrides.write_text("".join(f"{one} ; python_version < '3'\n" for one in without), "utf-8")
        system = ("--python-platform", platform, "--python-version", python)
        options = (
            "--no-python-downloads",
            "--only-binary",
            ":all:",
            "--no-header",
            "--no-annotate",
            "--find-links",
            str(wheels),
        )
        return subprocess.run(
            [str(uv), "pip", "compile", "-", *system, *options, "--overrides", str(overrides)],
            check=False,
            input=f"{DISTRIBUTION} @ {wheel_of(wheels).as_uri()}\n",
            capture_output=True,
            text=True,
            env={**os.environ, **MACOS},  # noqa: TID251 - handed on to a process, not read
            cwd=name,
            timeout=RESOLVE_SECONDS,
        )


if __name__ == "__main__":
    sys.exit(main())
