"""Ignore rules of a folder: default rules, extended by ``.latentignore`` files in gitignore syntax."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from latent_client.files import is_text, unreadable
from latent_core.domain.errors import Invalid

IGNORE_FILE: Final = ".latentignore"
MAX_IGNORE_BYTES: Final = 1024 * 1024
_GROUP_NAME: Final = re.compile(r"\(\?P<\w+>")

NEVER: Final = frozenset({IGNORE_FILE, ".git", ".hg", ".svn"})
"""Names that are always ignored."""

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
jspm_packages/
.next/
.nuxt/
.svelte-kit/
.parcel-cache/
.turbo/
.angular/
.gradle/
.terraform/
.dart_tool/
.bundle/
.eggs/
__pypackages__/
site-packages/
vendor/
third_party/
Pods/
Carthage/
DerivedData/
build/
dist/
out/
target/
coverage/
.nyc_output/
cmake-build-*/
_build/

*.lock
package-lock.json
*.min.js
*.min.css
*.map
*.d.ts
*.d.mts
*.d.cts
*.tsbuildinfo

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

*.avif
*.heic
*.ico
*.svg
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
"""Caches, build output, third-party code, secrets and formats without a parser. ``!pattern`` in a
``.latentignore`` includes files again."""


class IgnoreRules:
    """The rules of one folder. They override those of its parent folders."""

    def __init__(self, base: str, spec: GitIgnoreSpec, above: IgnoreRules | None = None) -> None:
        self._base = base
        self._spec = spec
        self._any = _any_of(spec)
        self._above = above

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path``, relative to the root, is ignored. The nearest matching rule decides."""
        if path.rpartition("/")[2] in NEVER:
            return True
        relative = path[len(self._base) :] + ("/" if folder else "")
        # Few files match any rule. One search with the joined patterns is faster than one match per pattern.
        if self._any.search(relative):
            verdict = _verdict(self._spec, relative)
            if verdict is not None:
                return verdict
        return self._above.ignores(path, folder=folder) if self._above else False

    def within(self, folder: Path, base: str) -> IgnoreRules:
        """The rules inside ``folder``, whose paths begin with ``base``."""
        file = folder / IGNORE_FILE
        if not file.is_file():
            return self
        return IgnoreRules(base, _read(file), self)


class Tree:
    """Checks single paths of a folder. Reads the rules of each folder once: discard it if a ``.latentignore`` changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[str, IgnoreRules | None] = {}

    def ignores(self, path: str) -> bool:
        """Whether the file ``path``, relative to the root, or one of its folders is ignored."""
        if not is_text(path):
            return True  # no rule can match it, and it is not a document
        rules = self._inside(path.rpartition("/")[0])
        return rules is None or rules.ignores(path, folder=False)

    def _inside(self, folder: str) -> IgnoreRules | None:
        """The rules inside a folder; None if the folder is ignored."""
        if folder not in self._rules:
            self._rules[folder] = self._read(folder)
        return self._rules[folder]

    def _read(self, folder: str) -> IgnoreRules | None:
        if not folder:
            return default_rules().within(self._root, "")
        above = self._inside(folder.rpartition("/")[0])
        if above is None or above.ignores(folder, folder=True):
            return None
        return above.within(self._root / folder, folder + "/")


def default_rules() -> IgnoreRules:
    return IgnoreRules("", _spec(DEFAULTS))


def _verdict(spec: GitIgnoreSpec, path: str) -> bool | None:
    """The verdict of the last rule that matches ``path`` itself; None without one.

    The caller has already checked the folders above. The spec's own check would let their rules override
    a rule for the path.
    """
    for pattern in reversed(spec.patterns):
        if pattern.regex is not None and _speaks_of(pattern.regex, path):
            return bool(pattern.include)
    return None


def _speaks_of(rule: re.Pattern[str], path: str) -> bool:
    """Whether a match covers all of ``path``.

    The only named group of a rule is the slash after a folder's name: if the match ends there, the folder is
    ``path``. ``folder/**`` matches only the content of the folder and ends with a slash.
    """
    for found in rule.finditer(path):
        whole = found.end() == len(path)
        if found.lastgroup is None:
            return not (whole and rule.pattern.endswith("/"))
        if whole:
            return True
    return False


def _any_of(spec: GitIgnoreSpec) -> re.Pattern[str]:
    """One expression that matches wherever any pattern of ``spec`` does."""
    # A group name may occur only once in an expression, and the names are not needed here.
    sources = (
        _GROUP_NAME.sub("(?:", pattern.regex.pattern)
        for pattern in spec.patterns
        if pattern.regex is not None
    )
    return re.compile("|".join(f"(?:{source})" for source in sources) or "(?!)")


def _read(file: Path) -> GitIgnoreSpec:
    """An unreadable rule file is an error: without its rules the wrong files would be sent."""
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_IGNORE_BYTES + 1)
    except OSError as exc:
        raise unreadable(file, exc) from exc
    if len(source) > MAX_IGNORE_BYTES:
        raise Invalid(
            f"{file} is larger than {MAX_IGNORE_BYTES} bytes, the limit of an ignore file"
        )
    try:
        return _spec(source.decode("utf-8-sig", errors="replace"))
    except ValueError as exc:
        raise Invalid(f"{file}: {exc}") from exc


def _spec(rules: str) -> GitIgnoreSpec:
    # This backend agrees with git. The optional backends of pathspec differ in some cases.
    return GitIgnoreSpec.from_lines(rules.splitlines(), backend="simple")
