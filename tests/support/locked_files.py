"""Files with a password, made by the tests."""

from __future__ import annotations

import io
import zipfile
from typing import Final

from msoffcrypto.format.ooxml import OOXMLFile

from latent_workers.parse.pdf import mupdf

PADDING_BYTES: Final = 16_384
PASSWORD: Final = "quiet-heron-41"


def locked_pdf(words: str, password: str = PASSWORD) -> bytes:
    pymupdf = mupdf.load()
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), words)
    return bytes(
        document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw=password)
    )


def locked_office(data: bytes, password: str = PASSWORD) -> bytes:
    """An Office file in agile encryption."""
    padded, written = io.BytesIO(data), io.BytesIO()
    with zipfile.ZipFile(padded, "a") as archive:  # the writer is wrong for files below 4 kB
        archive.writestr("docProps/padding.bin", bytes(PADDING_BYTES))
    OOXMLFile(padded).encrypt(password, written)
    return written.getvalue()
