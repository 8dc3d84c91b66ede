"""File types by their first bytes and by their suffix."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from latent_core.domain.chunk import SourceType
from latent_workers.parse.text.decode import utf16_without_mark

PDF: Final = "a PDF"
IMAGES: Final = {
    "a PNG image": "image/png",
    "a JPEG image": "image/jpeg",
    "a GIF image": "image/gif",
    "a TIFF image": "image/tiff",
    "a BMP image": "image/bmp",
    "a WebP image": "image/webp",
}
"""Types that are read as images, with their MIME types."""
_MP4: Final = "an MP4 or QuickTime file"
_MATROSKA: Final = "a Matroska video"
AUDIO: Final = {
    "a WAV sound": "audio/wav",
    "an MP3 sound": "audio/mpeg",
    "an Ogg file": "audio/ogg",
    "a FLAC sound": "audio/flac",
    _MP4: "audio/mp4",
    _MATROSKA: "audio/webm",
}
"""Types that models of speech read, with their MIME types."""
_MP3_FRAMES: Final = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")
_ZIP: Final = "a ZIP archive"
_RTF: Final = "an RTF document"
_OLE: Final = "an old Office document"
_HEIC: Final = "an HEIC image; save it as JPEG or PNG"

_SIGNATURES: Final = (
    (0, b"%PDF-", PDF),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (0, b"II+\x00", "a TIFF image"),
    (0, b"MM\x00+", "a TIFF image"),
    (0, b"BM", "a BMP image"),
    (8, b"WEBP", "a WebP image"),
    (8, b"WAVE", "a WAV sound"),
    (4, b"ftypheic", _HEIC),
    (4, b"ftypheix", _HEIC),
    (4, b"ftyphevc", _HEIC),
    (4, b"ftypmif1", _HEIC),
    (4, b"ftypmsf1", _HEIC),
    (4, b"ftypavi", "an AVIF image; save it as JPEG or PNG"),
    (4, b"ftyp", _MP4),
    (0, b"PK\x03\x04", _ZIP),
    (0, b"PK\x05\x06", _ZIP),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\x00", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstandard file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program (ELF)"),
    (0, b"MZ", "a Windows program"),
    (0, b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (0, b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (0, b"\x00asm", "a WebAssembly module"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ID3", "an MP3 sound"),
    (0, b"OggS", "an Ogg file"),
    (0, b"fLaC", "a FLAC sound"),
    (0, b"\x1aE\xdf\xa3", _MATROSKA),
    (0, b"wOFF", "a web font"),
    (0, b"wOF2", "a web font"),
    (0, b"{\\rtf", _RTF),
    (0, b"%!PS", "a PostScript file"),
)
PACKED: Final = frozenset({_ZIP, _OLE, _RTF})
"""What Office files and messages are from the outside."""
_TEXTUAL: Final = frozenset(
    {b"BM", b"MZ", b"BZh", b"ID3", b"PAR1", b"OggS", b"fLaC", b"ftyp", b"WAVE", b"WEBP"}
)
"""Signatures of letters only: text may start with them too."""
_OFFICE: Final = {
    ".ods": "an OpenDocument spreadsheet; save it as .xlsx",
    ".odp": "an OpenDocument presentation; save it as .pptx",
    ".doc": "a Word document of Office 97 to 2003; save it as .docx",
    ".ppt": "a presentation of Office 97 to 2003; save it as .pptx",
    ".xlsb": "a binary Excel workbook; save it as .xlsx",
    ".pages": "an Apple Pages document; export it as .docx",
    ".numbers": "an Apple Numbers spreadsheet; export it as .xlsx",
    ".key": "an Apple Keynote presentation; export it as .pptx",
    ".jar": "a Java archive",
    ".whl": "a Python wheel",
}
_INSIDE: Final = (
    (b"mimetypeapplication/epub+zip", SourceType.DOCUMENT),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", SourceType.DOCUMENT),
    (b"word/", SourceType.DOCUMENT),
    (b"xl/", SourceType.SHEET),
    (b"ppt/", SourceType.SLIDES),
)
"""What stands in the first bytes of a package."""
_ARCHIVES: Final = frozenset(
    {
        _ZIP,
        "a 7-Zip archive",
        "a RAR archive",
        "a tar archive",
        "a gzip file",
        "a bzip2 file",
        "an xz file",
    }
)
ENVELOPE: Final = re.compile(rb"From \S.*\b\d{1,2}:\d{2}(?::\d{2})?\b.*\d{4}")
"""The line before a message in a mailbox. A sentence that begins with "From" has no time in it."""
_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\b\x1a\x1b")
_MAX_CONTROL_SHARE = 0.1
_MAX_IN_LEGACY_TEXT = 0.02
"""Maximum share of bytes that are not UTF-8 in a text with an older encoding."""


def recognise(head: bytes) -> str | None:
    """The type shown by the first bytes, or ``None``: text, or no known signature."""
    for offset, signature, kind in _SIGNATURES:
        if head.startswith(signature, offset):
            if signature in _TEXTUAL and not is_binary(head):
                continue
            return kind
    # MP3 without a tag in front of its first frame.
    return "an MP3 sound" if head.startswith(_MP3_FRAMES) and is_binary(head) else None


def refine(kind: str, name: str) -> str:
    """A more specific name for an archive, from the file name."""
    if kind in (_ZIP, _OLE):
        kind = _OFFICE.get(PurePosixPath(name.lower()).suffix, kind)
    return f"{kind}: add the files in it" if kind in _ARCHIVES else kind


def is_mailbox(head: bytes) -> bool:
    """Whether a file begins with the envelope of a message."""
    return ENVELOPE.match(head.split(b"\n", 1)[0]) is not None


def packed_type(kind: str | None, head: bytes) -> SourceType | None:
    """The type of an Office file by what its first bytes name: some programs and servers lose the suffix."""
    if kind == _RTF:
        return SourceType.DOCUMENT
    if kind != _ZIP:
        return None
    return next((found for sign, found in _INSIDE if sign in head), None)


def is_binary(head: bytes) -> bool:
    """Whether too many bytes are control characters for text in any known encoding."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")) or utf16_without_mark(head):
        return False
    controls = sum(1 for byte in head if byte in _CONTROLS)
    share = controls / max(1, len(head))
    return share > _MAX_CONTROL_SHARE or (share > _MAX_IN_LEGACY_TEXT and not _is_utf8(head))


def _is_utf8(head: bytes) -> bool:
    """``head`` may end in the middle of a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


_CODE: Final = (
    "py pyi pyx pxd ipy rb rs go java kt kts scala sc groovy gradle c h cc cpp cxx hh hpp hxx inl m mm "
    "cs fs fsx vb swift js mjs cjs jsx ts mts cts tsx vue svelte php pl pm lua r jl dart ex exs erl hrl "
    "clj cljs cljc edn hs lhs elm ml mli nim zig v sv svh vhd vhdl d pas pp asm s f f90 f95 for cob "
    "lisp lsp el scm rkt sql ddl sh bash zsh fish ps1 psm1 bat cmd awk sed tcl proto thrift graphql gql "
    "tf tfvars hcl cmake mk make dockerfile nix bzl bazel css scss sass less styl xml xsd xsl xslt svg "
    "toml ini cfg conf properties env plist editorconfig gitignore dockerignore patch diff sol move wgsl "
    "glsl vert frag hlsl metal cu cuh lock"
)
_CODE_NAMES: Final = (
    "makefile gnumakefile dockerfile containerfile jenkinsfile vagrantfile rakefile gemfile procfile "
    "justfile build workspace cmakelists.txt .gitignore .dockerignore .editorconfig .bashrc .zshrc "
    ".profile .env"
)
_TEXT: Final = "txt text log rst adoc asciidoc org tex bib sty cls po pot me nfo wiki"

EXTENSIONS: Final[Mapping[str, SourceType]] = {
    **dict.fromkeys(_CODE.split(), SourceType.CODE),
    **dict.fromkeys(_TEXT.split(), SourceType.TEXT),
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mdx", "qmd", "rmd"), SourceType.MARKDOWN),
    **dict.fromkeys(("yaml", "yml"), SourceType.YAML),
    **dict.fromkeys(("json", "json5", "jsonc", "geojson", "jsonl", "ndjson"), SourceType.JSON),
    **dict.fromkeys(("html", "htm", "xhtml"), SourceType.WEB),
    "pdf": SourceType.PDF,
    "ipynb": SourceType.NOTEBOOK,
    **dict.fromkeys(
        ("docx", "docm", "dotx", "dotm", "odt", "ott", "rtf", "epub"), SourceType.DOCUMENT
    ),
    **dict.fromkeys(("xlsx", "xlsm", "xltx", "xltm", "xls", "csv", "tsv"), SourceType.SHEET),
    **dict.fromkeys(("pptx", "pptm", "ppsx", "ppsm", "potx", "potm"), SourceType.SLIDES),
    **dict.fromkeys(("eml", "msg", "mbox"), SourceType.MAIL),
    **dict.fromkeys(("srt", "vtt"), SourceType.SUBTITLES),
}
CORPUS: Final = frozenset({"jsonl", "ndjson"})
FILE_NAMES: Final[Mapping[str, SourceType]] = dict.fromkeys(_CODE_NAMES.split(), SourceType.CODE)
MAILBOX_MIME: Final = "application/mbox"
_OOXML: Final = "application/vnd.openxmlformats-officedocument."
MIME_OF_TYPE: Final[Mapping[SourceType, str]] = {
    SourceType.TEXT: "text/plain",
    SourceType.MARKDOWN: "text/markdown",
    SourceType.PDF: "application/pdf",
    SourceType.CODE: "text/plain",
    SourceType.YAML: "application/yaml",
    SourceType.JSON: "application/json",
    SourceType.WEB: "text/html",
    SourceType.DOCUMENT: f"{_OOXML}wordprocessingml.document",
    SourceType.SHEET: f"{_OOXML}spreadsheetml.sheet",
    SourceType.SLIDES: f"{_OOXML}presentationml.presentation",
    SourceType.MAIL: "message/rfc822",
    SourceType.NOTEBOOK: "application/x-ipynb+json",
    SourceType.SUBTITLES: "text/vtt",
}
MIME_OF_EXTENSION: Final[Mapping[str, str]] = {
    "docx": f"{_OOXML}wordprocessingml.document",
    "docm": "application/vnd.ms-word.document.macroenabled.12",
    "odt": "application/vnd.oasis.opendocument.text",
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
    "xlsx": f"{_OOXML}spreadsheetml.sheet",
    "xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    "xls": "application/vnd.ms-excel",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "pptx": f"{_OOXML}presentationml.presentation",
    "pptm": "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    "eml": "message/rfc822",
    "msg": "application/vnd.ms-outlook",
    "mbox": MAILBOX_MIME,
    "ipynb": "application/x-ipynb+json",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
}
"""Of the types that have several."""
MIME_TYPES: Final[Mapping[str, SourceType]] = {
    **{mime: EXTENSIONS[suffix] for suffix, mime in MIME_OF_EXTENSION.items()},
    "text/rtf": SourceType.DOCUMENT,
    "text/plain": SourceType.TEXT,
    "text/markdown": SourceType.MARKDOWN,
    "text/x-markdown": SourceType.MARKDOWN,
    "application/pdf": SourceType.PDF,
    "application/yaml": SourceType.YAML,
    "application/x-yaml": SourceType.YAML,
    "text/yaml": SourceType.YAML,
    "application/json": SourceType.JSON,
    "text/html": SourceType.WEB,
    "application/xhtml+xml": SourceType.WEB,
    "text/css": SourceType.CODE,
    "text/javascript": SourceType.CODE,
    "application/javascript": SourceType.CODE,
    "text/x-python": SourceType.CODE,
    "application/xml": SourceType.CODE,
    "text/xml": SourceType.CODE,
}
