"""The parser of each file type. To add one: a file with ``parse(source) -> Parsed``, and a line in ``PARSERS``.

Detection uses the name and the first bytes. Content that is clearly of another type has priority over the name, so
that an image called ``.md`` is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from latent_core.domain.chunk import SourceType
from latent_core.domain.conversation import CONVERSATION_MIME
from latent_core.domain.errors import IngestFailed
from latent_workers.parse import signatures
from latent_workers.parse.signatures import (
    CORPUS,
    EXTENSIONS,
    FILE_NAMES,
    MAILBOX_MIME,
    MIME_OF_EXTENSION,
    MIME_OF_TYPE,
    MIME_TYPES,
)

HEAD_BYTES: Final = 8192
"""Bytes of a file that ``detect`` needs."""


@dataclass(frozen=True, slots=True)
class Parser:
    """``module`` is imported only where files are parsed; ``what`` is its name in messages."""

    module: str
    what: str

    @property
    def label(self) -> str:
        return f"the {self.what} parser"


PARSERS: Final[Mapping[SourceType, Parser]] = {
    SourceType.TEXT: Parser("latent_workers.parse.text.parser", "text"),
    SourceType.MARKDOWN: Parser("latent_workers.parse.text.markdown", "Markdown"),
    SourceType.PDF: Parser("latent_workers.parse.pdf.parser", "PDF"),
    SourceType.CODE: Parser("latent_workers.parse.code.parser", "source code"),
    SourceType.YAML: Parser("latent_workers.parse.structured.yaml_file", "YAML"),
    SourceType.JSON: Parser("latent_workers.parse.structured.json_file", "JSON"),
    SourceType.IMAGE: Parser("latent_workers.parse.image.parser", "image"),
    SourceType.WEB: Parser("latent_workers.parse.web.parser", "HTML"),
    SourceType.CONVERSATION: Parser("latent_workers.parse.conversation.parser", "conversation"),
    SourceType.DOCUMENT: Parser(
        "latent_workers.parse.office.parser", "Word, OpenDocument, RTF and EPUB"
    ),
    SourceType.SLIDES: Parser("latent_workers.parse.office.parser", "PowerPoint"),
    SourceType.SHEET: Parser("latent_workers.parse.table.parser", "Excel and CSV"),
    SourceType.MAIL: Parser("latent_workers.parse.mail.parser", "mail"),
    SourceType.NOTEBOOK: Parser("latent_workers.parse.structured.notebook", "notebook"),
    SourceType.SUBTITLES: Parser("latent_workers.parse.text.subtitles", "subtitle"),
}


PACKED_TYPES: Final = (SourceType.DOCUMENT, SourceType.SHEET, SourceType.SLIDES, SourceType.MAIL)
"""Types whose files are packages."""


@dataclass(frozen=True, slots=True)
class DetectedType:
    """The type of a file. ``corpus``: one of many documents: JSONL with one per line, or a mailbox."""

    source_type: SourceType
    mime: str
    corpus: bool = False


def parser_of(source_type: SourceType) -> Parser:
    parser = PARSERS.get(source_type)
    if parser is None:
        raise IngestFailed(f"{source_type} files cannot be ingested; {supported()}")
    return parser


def supported() -> str:
    names = [parser.what for parser in PARSERS.values()]
    return f"supported are {', '.join(names)} and JSONL corpora, and audio with a model of speech"


_BY_SIGNATURE: Final[Mapping[str | None, DetectedType]] = {
    signatures.PDF: DetectedType(SourceType.PDF, "application/pdf"),
    **{kind: DetectedType(SourceType.IMAGE, mime) for kind, mime in signatures.IMAGES.items()},
    **{kind: DetectedType(SourceType.AUDIO, mime) for kind, mime in signatures.AUDIO.items()},
}
"""Types that their first bytes prove, whatever the name says."""


def detect(name: str, head: bytes, mime: str | None = None) -> DetectedType:
    """The source type of a file by its name, its first ``HEAD_BYTES`` bytes and its declared type.

    ``IngestFailed`` names the type if there is no parser for it, and empty files.
    """
    if not head:
        raise IngestFailed(f"'{name}' is empty")
    kind = signatures.recognise(head)
    if kind in _BY_SIGNATURE:
        return _BY_SIGNATURE[kind]
    if kind is None and plain_mime(mime) == CONVERSATION_MIME:
        return DetectedType(SourceType.CONVERSATION, CONVERSATION_MIME)
    by_name = _by_name(name) or _by_mime(mime)
    if kind in signatures.PACKED:
        # The parser looks inside, whatever the name says.
        if by_name is not None and by_name.source_type in PACKED_TYPES:
            return by_name
        if packed := signatures.packed_type(kind, head):
            return DetectedType(packed, MIME_OF_TYPE[packed])
    if kind is None and by_name is not None and by_name.source_type is SourceType.PDF:
        return by_name  # broken at the start; the parser may still repair it
    if kind is None and signatures.is_binary(head):
        kind = "binary data of an unknown kind"
    if kind is not None:
        raise IngestFailed(
            f"'{name}' is {signatures.refine(kind, name)}; {supported()}", detected=kind
        )
    if by_name is None and signatures.is_mailbox(head):
        return DetectedType(SourceType.MAIL, MAILBOX_MIME, corpus=True)
    return by_name or DetectedType(SourceType.TEXT, "text/plain")


def _by_name(name: str) -> DetectedType | None:
    path = PurePosixPath(name.lower())
    suffix = path.suffix.removeprefix(".")
    source_type = FILE_NAMES.get(path.name) or EXTENSIONS.get(suffix)
    if source_type is None:
        return None
    if suffix in CORPUS:
        return DetectedType(source_type, "application/x-ndjson", corpus=True)
    mime = MIME_OF_EXTENSION.get(suffix) or MIME_OF_TYPE[source_type]
    return DetectedType(source_type, mime, corpus=mime == MAILBOX_MIME)


def plain_mime(mime: str | None) -> str:
    """A type without its parameters."""
    return (mime or "").partition(";")[0].strip().lower()


def _by_mime(mime: str | None) -> DetectedType | None:
    plain = plain_mime(mime)
    if plain == "application/x-ndjson":
        return DetectedType(SourceType.JSON, plain, corpus=True)
    source_type = MIME_TYPES.get(plain)
    return DetectedType(source_type, plain, corpus=plain == MAILBOX_MIME) if source_type else None
