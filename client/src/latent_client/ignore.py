"""What is left out of a folder: gitignore rules, from ``.latentignore`` files over sensible defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from latent_client.files import unreadable
from latent_core.domain.errors import Invalid

IGNORE_FILE: Final = ".latentignore"
MAX_IGNORE_BYTES: Final = 1024 * 1024

NEVER: Final = frozenset({IGNORE_FILE, ".git", ".hg", ".svn"})
"""Names that no rule takes in."""

DEFAULTS: Final = """
.DS_Store
Thumbs.db
desktop.ini
*~
*.swp
*.tmp
*.bak
*.log

.idea/
.vscode/
.cache/
.latent/
.venv/
venv/
.tox/
.nox/
.eggs/
*.egg-info/
__pycache__/
.mypy_cache/
.ruff_cache/
.pytest_cache/
.hypothesis/
.ipynb_checkpoints/
htmlcov/
node_modules/
bower_components/
.next/
.nuxt/
.gradle/
.terraform/
build/
dist/
target/

*.lock
package-lock.json
*.min.js
*.min.css
*.map

.env
.env.*
!.env.example
.netrc
.npmrc
.pypirc
id_rsa*
id_ed25519*
*.pem
*.key
*.p12
*.pfx

*.zip
*.tar
*.gz
*.tgz
*.bz2
*.xz
*.zst
*.7z
*.rar
*.jar
*.war
*.whl
*.iso
*.dmg
*.deb
*.rpm

*.exe
*.dll
*.so
*.so.*
*.dylib
*.a
*.o
*.obj
*.lib
*.class
*.pyc
*.pyo
*.pyd
*.wasm
*.bin

*.png
*.jpg
*.jpeg
*.gif
*.webp
*.avif
*.heic
*.bmp
*.ico
*.svg
*.tif
*.tiff
*.psd
*.mp3
*.wav
*.flac
*.ogg
*.m4a
*.mp4
*.mov
*.avi
*.mkv
*.webm
*.ttf
*.otf
*.woff
*.woff2
*.eot

*.doc
*.docx
*.xls
*.xlsx
*.ppt
*.pptx
*.odt
*.ods
*.odp

*.sqlite
*.sqlite3
*.db
*.parquet
*.arrow
*.npy
*.npz
*.pkl
*.pickle
*.h5
*.hdf5
*.onnx
*.pt
*.safetensors
"""
"""Caches, builds, secrets and what no parser reads. ``!pattern`` in a ``.latentignore`` takes back in."""


class Rules:
    """The rules of one folder, over those of the folders above it."""

    def __init__(self, base: str, spec: GitIgnoreSpec, above: Rules | None = None) -> None:
        self._base = base
        self._spec = spec
        self._above = above

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path``, relative to the root, is left out: the nearest rule that speaks of it decides."""
        if path.rpartition("/")[2] in NEVER:
            return True
        relative = path[len(self._base) :] + ("/" if folder else "")
        verdict = self._spec.check_file(relative).include
        if verdict is not None:
            return verdict
        return self._above.ignores(path, folder=folder) if self._above else False

    def within(self, folder: Path, base: str) -> Rules:
        """The rules inside ``folder``, whose paths begin with ``base``."""
        file = folder / IGNORE_FILE
        if not file.is_file():
            return self
        return Rules(base, _read(file), self)


def default_rules() -> Rules:
    return Rules("", GitIgnoreSpec.from_lines(DEFAULTS.splitlines()))


def _read(file: Path) -> GitIgnoreSpec:
    """An unreadable file of rules is an error: without it the wrong files would be sent."""
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_IGNORE_BYTES + 1)
    except OSError as exc:
        raise unreadable(file, exc) from exc
    if len(source) > MAX_IGNORE_BYTES:
        raise Invalid(f"{file}: a file of rules has at most {MAX_IGNORE_BYTES} bytes")
    try:
        return GitIgnoreSpec.from_lines(source.decode("utf-8-sig", errors="replace").splitlines())
    except ValueError as exc:
        raise Invalid(f"{file}: {exc}") from exc
