"""Office files by what they are inside, whatever their names say."""

from __future__ import annotations

import io
import re
from typing import BinaryIO, Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.encryption import has_file_pass, password_missing
from latent_workers.parse.office.package import Package
from latent_workers.parse.office.writing import OfficeText, parsed
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.sandbox.memory import give_back_memory

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEAD_BYTES: Final = 4096
_RTF: Final = b"{\\rtf"
_TYPES: Final = "[Content_Types].xml"
_MAIN: Final = re.compile(
    rb"application/vnd\.(?:openxmlformats-officedocument\.(?P<kind>\w+ml)\.[\w.]*?main\+xml"
    rb"|ms-(?:word|excel|powerpoint)\.(?P<macro>\w+)\.macroEnabled[\w.]*?\+xml)",
    re.IGNORECASE,
)
_MACROS: Final = {
    b"document": b"wordprocessingml",
    b"template": b"wordprocessingml",
    b"sheet": b"spreadsheetml",
    b"presentation": b"presentationml",
    b"slideshow": b"presentationml",
}


def parse(source: SourceFile) -> ParsedDocument:
    text = read(source.file, source.name)
    give_back_memory()
    return parsed(text, source.name)


def read(file: BinaryIO, name: str) -> OfficeText:
    head = file.read(len(_OLE))
    file.seek(0)
    if head == _OLE:
        return _of_ole(file, name)
    if head.startswith(_RTF):
        from latent_workers.parse.office import rtf

        return rtf.read(file.read(), name)
    return _of_package(Package(file, name), file, name)


def _of_package(package: Package, file: BinaryIO, name: str) -> OfficeText:
    # Readers are imported here: a child that reads a book needs none of the others.
    if "mimetype" in package:
        return _of_named(package, name)
    kind = _kind(package)
    if kind == b"wordprocessingml":
        from latent_workers.parse.office import docx

        return docx.read(package, name)
    if kind == b"presentationml":
        from latent_workers.parse.office import pptx

        return pptx.read(package, name)
    if kind == b"spreadsheetml":
        from latent_workers.parse.table import workbook

        return workbook.read(file, name, package)
    raise IngestFailed(
        f"'{name}' is a ZIP archive and no Office file: archives are not read; add the files in it",
        detected="a ZIP archive",
    )


def _kind(package: Package) -> bytes | None:
    if _TYPES not in package:
        return None
    for match in _MAIN.finditer(package.read(_TYPES)):
        kind = match["kind"] or _MACROS.get(match["macro"].lower())
        if kind is not None:
            return bytes(kind.lower())
    return None


def _of_named(package: Package, name: str) -> OfficeText:
    mime = package.read("mimetype").decode("ascii", "replace").strip()
    if mime == "application/epub+zip":
        from latent_workers.parse.office import epub

        return epub.read(package, name)
    if mime.startswith("application/vnd.oasis.opendocument.text"):
        from latent_workers.parse.office import odt

        return odt.read(package, name)
    raise IngestFailed(
        f"'{name}' is of the type {mime[:80]}, which is not read: save a spreadsheet as .xlsx and a presentation as "
        ".pptx",
        detected=mime[:80],
    )


def _of_ole(file: BinaryIO, name: str) -> OfficeText:
    """An encrypted file, or one of Office 97 to 2003, of which workbooks are read."""
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(file.read())) as ole:
            streams = {path[0].lower() for path in ole.listdir()}
            books = [path for path in ole.listdir() if path[0].lower() in ("workbook", "book")]
            locked = any(has_file_pass(ole.openstream(path).read(_HEAD_BYTES)) for path in books)
    except (OSError, ValueError, IndexError, TypeError) as exc:
        raise IngestFailed(
            f"'{name}' is damaged ({str(exc)[:200]}): open it in its program and save it again",
            reason="damaged",
        ) from exc
    if "encryptedpackage" in streams or locked:
        raise password_missing(name)
    if streams & {"workbook", "book"}:
        from latent_workers.parse.table import workbook

        return workbook.read(file, name, None)
    kind = "a Word document" if "worddocument" in streams else "a presentation"
    kind = kind if streams & {"worddocument", "powerpoint document"} else "a file"
    raise IngestFailed(
        f"'{name}' is {kind} of Office 97 to 2003, which is not read: save it as .docx, .pptx or .xlsx",
        detected="an old Office document",
    )
