"""Names in folders that are no documents by default: rules in the syntax of gitignore."""

from __future__ import annotations

import re
from typing import Final

IGNORE_FILE: Final = ".latentignore"
GITIGNORE: Final = ".gitignore"
GIT: Final = ".git"
RULE_FILES: Final = frozenset({IGNORE_FILE, GITIGNORE})
NEVER: Final = frozenset({*RULE_FILES, GIT, ".hg", ".svn"})
"""Names that are always ignored."""

DEFAULTS: Final = """
.DS_Store
Thumbs.db
desktop.ini
*~
~$*
.~lock.*#
*.swp
*.tmp
*.bak
*.log

.worktrees/
.claude/worktrees/
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

*.ico
*.svg
*.ttf
*.otf
*.woff
*.woff2
*.eot
"""
"""Caches, build output, third-party code, other work trees, secrets, programs. ``!pattern`` in a ``.latentignore``
includes files again, also of a type that no parser reads (``latent_core.domain.unread``)."""

_PLAIN_FOLDER: Final = re.compile(r"[\w.-]+/")
IGNORED_FOLDERS: Final = frozenset(
    {name.rstrip("/") for name in DEFAULTS.splitlines() if _PLAIN_FOLDER.fullmatch(name)}
    | (NEVER - RULE_FILES)
)
"""Folders whose content the defaults ignore, wherever they are."""
