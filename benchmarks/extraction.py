"""Extraction on real files: what is parsed, what is refused and why, how long it takes, how large the parent grows.

    python -m benchmarks.extraction --data FOLDER              folders of files below it, through the sandbox
    python -m benchmarks.extraction --data FOLDER --only html-readability

A folder of saved pages (`*/source.html` beside `*/expected.html`) is scored as well: token F1 of the main text,
ours and trafilatura's alone with its defaults. Nothing is embedded or stored.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import lxml.html
import psutil
import trafilatura

from latent_core.domain.errors import IngestFailed
from latent_core.domain.manifest.model import Manifest
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import HEAD_BYTES, detect
from latent_workers.parse.run import parse_file
from latent_workers.sandbox.pool import Sandbox

FOLDERS: Final = ("pdf-malformed", "pdf-misc", "html-readability", "md-tables", "ocr-images")
NOT_SOURCES: Final = frozenset({"README.md", "manifest.json", "manifest.jsonl", "expected.html"})
WORD: Final = re.compile(r"\w+")
MEGABYTE: Final = 1024 * 1024
SHOWN: Final = 30


@dataclass
class FolderExtraction:
    """What became of one folder's files."""

    parsed: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    largest_mb: float = 0.0
    """Of the parent, above what it was before."""
    ours: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)


def sources(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path
        for path in found
        if path.name not in NOT_SOURCES and path.suffix not in (".json", ".jsonl", ".txt", ".gt")
    )


async def look(folder: Path) -> FolderExtraction:
    seen, process = FolderExtraction(), psutil.Process()
    before = process.memory_info().rss
    async with Sandbox(children=2) as sandbox:
        for path in sources(folder):
            begun = time.perf_counter()
            try:
                parsed = await _parsed(sandbox, path)
                seen.parsed += 1
                if path.name == "source.html":
                    _score(seen, path, parsed)
            except IngestFailed as refusal:
                seen.refused[str(path.relative_to(folder))] = refusal.message
            spent = time.perf_counter() - begun
            seen.seconds += spent
            seen.slowest = max(seen.slowest, (spent, path.name))
            grown = (process.memory_info().rss - before) / MEGABYTE
            seen.largest_mb = max(seen.largest_mb, grown)
    return seen


async def _parsed(sandbox: Sandbox, path: Path) -> ParsedDocument:
    with path.open("rb") as file:
        detected = detect(path.name, file.read(HEAD_BYTES))
    rules = Manifest(id="x", name="x").web.sanitize_rules
    return await parse_file(
        sandbox, path, name=path.name, source_type=detected.source_type, sanitize_rules=rules
    )


def _score(seen: FolderExtraction, path: Path, parsed: ParsedDocument) -> None:
    expected = lxml.html.fromstring((path.parent / "expected.html").read_bytes()).text_content()
    seen.ours.append(_f1(parsed.text, expected))
    alone = trafilatura.extract(path.read_text(encoding="utf-8", errors="replace")) or ""
    seen.alone.append(_f1(alone, expected))


def _f1(extracted: str, expected: str) -> float:
    mine, theirs = (Counter(WORD.findall(text.lower())) for text in (extracted, expected))
    common = sum((mine & theirs).values())
    return 2 * common / (sum(mine.values()) + sum(theirs.values())) if common else 0.0


def format_extraction(name: str, seen: FolderExtraction) -> list[str]:
    lines = [
        f"{name}: {seen.parsed} parsed, {len(seen.refused)} refused by name, {seen.seconds:.0f} s "
        f"(slowest {seen.slowest[0]:.1f} s: {seen.slowest[1]}), parent +{seen.largest_mb:.0f} MB"
    ]
    if seen.ours:
        ours, alone = (sum(scores) / len(scores) for scores in (seen.ours, seen.alone))
        lines.append(f"  token F1 {ours:.4f}; trafilatura alone {alone:.4f}")
    lines += [f"  refused {path}: {why[:140]}" for path, why in list(seen.refused.items())[:SHOWN]]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of folders of files")
    parser.add_argument("--only", nargs="+", default=list(FOLDERS), metavar="FOLDER")
    arguments = parser.parse_args()
    for name in arguments.only:
        folder = arguments.data / name
        if not folder.is_dir():
            print(f"{name}: not there")
            continue
        print("\n".join(format_extraction(name, asyncio.run(look(folder)))), flush=True)


if __name__ == "__main__":
    main()
