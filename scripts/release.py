"""What a release needs of the repository: its version, and its section of the changelog.

python -m scripts.release check v0.2.0    exit code 1 unless tag, version and changelog agree
python -m scripts.release notes v0.2.0    print the section
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
"""Read, not imported: the job that publishes installs nothing of ours."""
SECTION: Final = r"^## \[{version}\][^\n]*\n(.*?)(?=^## \[|\Z)"


class Refused(Exception):
    """The repository does not fit the tag; the message says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a release, or print its notes")
    parser.add_argument("action", choices=("check", "notes"))
    parser.add_argument("tag")
    given = parser.parse_args()
    source = (REPOSITORY / "core" / "src" / "latent_core" / "__init__.py").read_text("utf-8")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    try:
        notes = checked(given.tag, source, changelog)
    except Refused as exc:
        print(exc, file=sys.stderr)
        return 1
    print(notes if given.action == "notes" else f"{given.tag}: version and changelog agree")
    return 0


def checked(tag: str, source: str, changelog: str) -> str:
    """The changelog's section of the version that ``tag`` names and ``source`` holds."""
    found = VERSION.search(source)
    version = found.group(1) if found else ""
    if tag != f"v{version}":
        raise Refused(f"the tag is {tag}, and the code is version {version}: one of them is wrong")
    section = re.search(
        SECTION.format(version=re.escape(version)), changelog, re.MULTILINE | re.DOTALL
    )
    if section is None or not section.group(1).strip():
        raise Refused(f"CHANGELOG.md has no section [{version}]")
    return section.group(1).strip()


if __name__ == "__main__":
    sys.exit(main())
