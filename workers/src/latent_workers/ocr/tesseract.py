"""Tesseract: one run per page, with the image on its standard input and words with boxes on its output."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Thread
from typing import IO, Final

from PIL import Image

from latent_core.domain.errors import IngestFailed
from latent_workers.ocr.drawing import PageScan
from latent_workers.ocr.engine import OcrEngine
from latent_workers.ocr.words import OcrText, OcrWord, placement, reading_of
from latent_workers.sandbox.budget import MIB

# Threads of its own make it six times slower on two cores.
_ENVIRONMENT: Final = {"OMP_THREAD_LIMIT": "1", "LANG": "C.UTF-8"}
_COLUMNS: Final = 12
_WORD_LEVEL: Final = "5"
_HEADER: Final = "level\t"
_PIECE: Final = 65_536
_MAX_OUTPUT: Final = 16 * MIB
_JOIN_SECONDS: Final = 5.0
_SURE: Final = 0.6
"""Confidence of a page below which it is also tried upside down."""


@dataclass(frozen=True, slots=True)
class TesseractRun:
    """A run of Tesseract."""

    status: int
    output: bytes
    complaint: str


def read(engine: OcrEngine, drawn: PageScan) -> OcrText:
    """``IngestFailed`` says how Tesseract failed."""
    words = _words_on(engine, drawn)
    reading = reading_of(words, placement(drawn.image.size))
    if not words or reading.confidence >= _SURE:
        return reading
    # Of a few lines it does not notice that they stand on their heads.
    turned = replace(drawn, image=drawn.image.transpose(Image.Transpose.ROTATE_180))
    other = reading_of(_words_on(engine, turned), placement(drawn.image.size, 2))
    return max(reading, other, key=lambda one: one.confidence)


def _words_on(engine: OcrEngine, drawn: PageScan) -> list[OcrWord]:
    # psm 1 finds out how the page is turned; psm 3 reads turned pages as nothing.
    options = ["--psm", "1", "-l", engine.languages or "eng"]
    if drawn.dpi is not None:
        options += ["--dpi", str(drawn.dpi)]
    ended = _run([engine.program, "stdin", "stdout", *options, "tsv"], _pgm(drawn.image))
    if ended.status:
        raise _failure(ended)
    return list(_words(ended.output.decode("utf-8", "replace")))


def _run(command: Sequence[str], picture: bytes) -> TesseractRun:
    """No time limit here: the parent kills the whole process group, and the CPU limit is inherited. A child of the
    sandbox may not kill processes: for too much output, the pipe is closed."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=_ENVIRONMENT, bufsize=0
        )
    except OSError as exc:
        raise IngestFailed(f"Tesseract cannot be started: {exc.strerror}", reason="start") from exc
    complaint = bytearray()
    threads = (
        Thread(target=_feed, args=(process.stdin, picture), daemon=True),
        Thread(target=_hear, args=(process.stderr, complaint), daemon=True),
    )
    for thread in threads:
        thread.start()
    output = _read_some(process.stdout)
    status = process.wait()
    for thread in threads:
        thread.join(_JOIN_SECONDS)
    return TesseractRun(status, output, complaint[-500:].decode("utf-8", "replace"))


def _feed(stdin: IO[bytes] | None, picture: bytes) -> None:
    if stdin is not None:
        rest = memoryview(picture)
        with suppress(OSError), stdin:
            while len(rest):
                rest = rest[stdin.write(rest) :]


def _hear(stderr: IO[bytes] | None, complaint: bytearray) -> None:
    if stderr is not None:
        with stderr:
            while part := stderr.read(_PIECE):
                complaint += part[: _PIECE - len(complaint)]


def _read_some(stdout: IO[bytes] | None) -> bytes:
    output = bytearray()
    if stdout is not None:
        with stdout:
            while part := stdout.read(_PIECE):
                output += part
                if len(output) > _MAX_OUTPUT:
                    raise IngestFailed(
                        f"Tesseract gave more than {_MAX_OUTPUT // MIB} MB of output",
                        reason="output",
                    )
    return bytes(output)


def _pgm(image: Image.Image) -> bytes:
    """The simplest image format, without compression."""
    return b"P5 %d %d 255\n" % image.size + image.tobytes()


def _failure(ended: TesseractRun) -> IngestFailed:
    complaint = " ".join(ended.complaint.split())[-200:]
    if ended.status == -signal.SIGXCPU:
        return IngestFailed("Tesseract exceeded its CPU limit", reason="cpu")
    if "bad_alloc" in complaint:
        return IngestFailed("Tesseract needed more memory than its limit", reason="memory")
    if ended.status < 0:
        return IngestFailed(f"Tesseract crashed (signal {-ended.status})", reason="crash")
    return IngestFailed(
        f"Tesseract ended with status {ended.status}: {complaint or 'without a message'}",
        reason="error",
    )


def _words(tsv: str) -> Iterator[OcrWord]:
    """Rows of words; columns: level, page, block, paragraph, line, word, left, top, width, height, confidence (0 to
    100), text."""
    lines = tsv.split("\n")
    if not lines[0].startswith(_HEADER):
        raise IngestFailed("Tesseract gave an invalid answer", reason="nonsense")
    for line in lines[1:]:
        cells = line.split("\t", _COLUMNS - 1)
        if len(cells) != _COLUMNS or cells[0] != _WORD_LEVEL:
            continue
        try:
            confidence = float(cells[10]) / 100
            left, top, width, height = map(float, cells[6:10])
        except ValueError:
            continue
        if text := cells[11].strip():
            edges = left, top, left + width, top + height
            yield OcrWord(text, confidence, (cells[2], cells[3]), cells[4], edges)
