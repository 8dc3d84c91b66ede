"""One page of a PDF as a small PDF: what it shows, and nothing that acts."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.parser import open_document

_ACTIONS: Final = ("A", "AA", "Dest", "FS", "Popup", "IRT")
"""Keys of annotations that run, open or carry something else."""
_OF_DOCUMENT: Final = ("AcroForm", "Names", "OpenAction", "AA")
_MAX_ANNOTATIONS = 10_000


def page_pdf(file: BinaryIO, name: str, number: int) -> bytes:
    """Page ``number``, from 1. The same page gives the same bytes. ``IngestFailed`` when it cannot be taken out."""
    document = open_document(file, name)
    if not 1 <= number <= document.page_count:
        raise IngestFailed(f"'{name}' has {document.page_count} pages, and no page {number}")
    try:
        with mupdf.reading():
            return _taken_out(document, number)
    except mupdf.PdfError as exc:
        raise IngestFailed(f"page {number} of '{name}' is damaged; see its image instead") from exc


def _taken_out(document: Any, number: int) -> bytes:
    single = mupdf.load().open()
    place = number - 1
    # Links lead to pages that are not there, or start programs.
    single.insert_pdf(document, from_page=place, to_page=place, links=False, widgets=True)
    # What a form's fields show becomes part of the page; the fields would need the document's scripts.
    single.bake(annots=False, widgets=True)
    for key in _OF_DOCUMENT:
        single.xref_set_key(single.pdf_catalog(), key, "null")
    for index, annotation in enumerate(single[0].annots()):
        if index >= _MAX_ANNOTATIONS:
            break
        for key in _ACTIONS:
            single.xref_set_key(annotation.xref, key, "null")
    single.xref_set_key(single[0].xref, "AA", "null")
    return bytes(single.tobytes(garbage=3, deflate=True, no_new_id=True))
