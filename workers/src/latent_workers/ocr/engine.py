"""Selects the OCR engine: Tesseract if installed, else rapidocr, else a hint what to install."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

logger = logging.getLogger(__name__)

Choice = Literal["auto", "tesseract", "rapidocr", "off"]
Kind = Literal["tesseract", "rapidocr"]

TESSERACT: Final = "tesseract"
INSTALL: Final = (
    "install the system's package tesseract-ocr, or latent-containers[ocr] instead of latent-containers, "
    "and add the document again"
)
_PACKAGES: Final = ("rapidocr", "onnxruntime")
_VERSION: Final = re.compile(r"tesseract v?(\d[\w.\-]*)")
_LANGUAGE: Final = re.compile(r"[A-Za-z][\w/\-]{1,40}")
_NO_LANGUAGES: Final = frozenset({"osd", "equ", "snum"})
_USUAL: Final = "eng"
_MAX_LANGUAGES: Final = 4
"""Each costs about as much time as the first; if more are installed, they were probably not chosen for documents."""
_LIBRARY_FOLDERS: Final = ("lib", "lib64", "share/tessdata", "share/tesseract-ocr", "Cellar")
"""Folders of a separate prefix, such as that of conda or Homebrew; not all of ``share``, which may belong to a
user."""
_ANSWER_SECONDS: Final = 15.0
_ANSWER_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True)
class OcrEngine:
    """An OCR engine on this machine."""

    kind: Kind
    version: str
    program: str = ""
    """Path of Tesseract's executable."""
    languages: str = ""
    """As Tesseract takes them: ``eng+deu``."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders of the program, its libraries and its models, if they are outside the system's."""
        if not self.program:
            return ()
        named = Path(self.program).absolute()
        found = {named, named.resolve()}
        bundled = {path.parent.parent / part for path in found for part in _LIBRARY_FOLDERS}
        return tuple(sorted(found | bundled))

    @property
    def key(self) -> str:
        """Changes when the same page may be read differently."""
        return f"{self.label} {self.languages}".strip()


@dataclass(frozen=True, slots=True)
class NoEngine:
    """``why`` says what is missing and how to install it."""

    why: str

    @property
    def key(self) -> str:
        return "none"


async def find(choice: Choice, languages: str | None = None) -> OcrEngine | NoEngine:
    """The engine for ``choice``; ``languages`` (``eng+deu``) are for Tesseract."""
    if choice == "off":
        return NoEngine("OCR is switched off (LLC_OCR=off)")
    found: OcrEngine | None = None
    if choice in ("auto", "tesseract"):
        found = await _tesseract(languages)
    if found is None and choice in ("auto", "rapidocr"):
        found = await asyncio.to_thread(_rapidocr)
    if found is not None:
        return found
    if choice == "auto":
        return NoEngine(f"no OCR engine is installed: {INSTALL}")
    return NoEngine(
        f"LLC_OCR={choice}, but {choice} is not installed or does not answer: {INSTALL}"
    )


async def _tesseract(languages: str | None) -> OcrEngine | None:
    program = await asyncio.to_thread(shutil.which, TESSERACT)
    if program is None:
        return None
    version_match = _VERSION.search(await _program_output(program, "--version"))
    if version_match is None:
        logger.warning("tesseract_does_not_answer", extra={"program": program})
        return None
    return OcrEngine("tesseract", version_match[1], program, languages or await _languages(program))


async def _languages(program: str) -> str:
    """All installed languages if they are few: installing one shows that it is needed."""
    output = await _program_output(program, "--list-langs")
    names = [line.strip() for line in output.splitlines()[1:]]
    known = sorted(n for n in names if _LANGUAGE.fullmatch(n) and n not in _NO_LANGUAGES)
    if not known or len(known) > _MAX_LANGUAGES:
        return _USUAL
    return "+".join(sorted(known, key=lambda name: (name != _USUAL, name)))


async def _program_output(program: str, option: str) -> str:
    """The output of the program; empty if it does not run or does not end."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            option,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
            env={"LANG": "C.UTF-8"},
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return answer[:_ANSWER_CHARS].decode("utf-8", "replace")


def _rapidocr() -> OcrEngine | None:
    """Found by its metadata: importing it costs a gigabyte, which only its child may use."""
    try:
        version, _ = map(importlib.metadata.version, _PACKAGES)
    except importlib.metadata.PackageNotFoundError:
        return None
    return OcrEngine("rapidocr", version)
