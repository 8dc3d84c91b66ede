"""Files that are encrypted with a password: refused by name, or decrypted in the sandbox for one read."""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, BinaryIO, Final

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.pdf import mupdf
from latent_workers.sandbox.budget import MIB
from latent_workers.sandbox.frames import TaskOutput

LOCKABLE: Final = frozenset(
    {SourceType.PDF, SourceType.DOCUMENT, SourceType.SHEET, SourceType.SLIDES}
)
"""Types whose files can have a password."""
PIECE_BYTES: Final = 8 * MIB
_PDF: Final = b"%PDF-"
_RECORD: Final = struct.Struct("<HH")
_FILE_PASS: Final = 0x002F
_RECORDS: Final = 8
"""Before it stand at most the start of the stream and what protects it against writing."""
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def password_missing(name: str) -> IngestFailed:
    return IngestFailed(
        f"'{name}' is encrypted: add it again with its password (--password-file), or save it without one. A password "
        "is used for one read and not kept",
        reason="encrypted",
    )


def _wrong_password(name: str) -> IngestFailed:
    return IngestFailed(
        f"'{name}' is encrypted, and the given password does not open it: add it again with the right one",
        reason="wrong_password",
    )


def unlock(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``password`` and the file; yields its bytes without encryption in pieces, none if it has none."""
    name, password, file = arguments["name"], arguments["password"], files[0]
    head = file.read(1024)
    file.seek(0)
    plain: bytes | None = None
    if head.startswith(_OLE):
        plain = _of_office(file, name, password)
    elif _PDF in head:
        plain = _of_pdf(file, name, password)
    for start in range(0, len(plain or b""), PIECE_BYTES):
        yield TaskOutput({}, memoryview(plain or b"")[start : start + PIECE_BYTES])


def _of_pdf(file: BinaryIO, name: str, password: str) -> bytes | None:
    """None also for a damaged file: the parser says so."""
    data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        with mupdf.reading():
            document = mupdf.load().open(stream=data, filetype="pdf")
            if not document.needs_pass or document.authenticate(""):
                return None
            if not document.authenticate(password):
                raise _wrong_password(name)
            return bytes(document.tobytes(encryption=mupdf.load().PDF_ENCRYPT_NONE))
    except mupdf.PdfError:
        return None


def _of_office(file: BinaryIO, name: str, password: str) -> bytes | None:
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

    try:
        office = msoffcrypto.OfficeFile(file)
        if not office.is_encrypted():
            return None
    except (FileFormatError, ParseError, OSError, ValueError, IndexError, TypeError):
        return None  # the parser says what it is
    plain = io.BytesIO()
    try:
        _load_key(office, password)
        office.decrypt(plain)
    except InvalidKeyError as exc:
        raise _wrong_password(name) from exc
    except (DecryptionError, FileFormatError, ParseError, KeyError, ValueError) as exc:
        raise IngestFailed(
            f"'{name}' is encrypted in a way that is not read ({type(exc).__name__}): save it without a password",
            reason="encrypted",
        ) from exc
    return plain.getvalue()


def _load_key(office: Any, password: str) -> None:
    from msoffcrypto.format import xls97
    from msoffcrypto.format.ooxml import OOXMLFile

    if isinstance(office, OOXMLFile):
        office.load_key(password=password, verify_password=True)
    else:
        # It decrypts into a temporary file, and a child of the sandbox writes none.
        xls97.tempfile = SimpleNamespace(TemporaryFile=io.BytesIO)
        office.load_key(password=password)


def has_file_pass(workbook: bytes) -> bool:
    """Whether the stream of a workbook of Office 97 to 2003 is encrypted: one of its first records says so."""
    at = 0
    for _ in range(_RECORDS):
        if len(workbook) < at + _RECORD.size:
            return False
        number, size = _RECORD.unpack_from(workbook, at)
        if number == _FILE_PASS:
            return True
        at += _RECORD.size + size
    return False
