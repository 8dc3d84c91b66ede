from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.pdf import mupdf
from latent_workers.render.run import page_pdf
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()


def book(path: Path, pages: int = 3, **saved: Any) -> Path:
    """Pages with a link to another page, one to a program, a note and an attachment."""
    document = pymupdf.open()
    for number in range(1, pages + 1):
        page = document.new_page(width=300, height=400)
        page.insert_text((30, 50), f"This is page {number}.")
    page = document[0]
    box = pymupdf.Rect(30, 60, 200, 80)
    page.insert_link({"kind": pymupdf.LINK_GOTO, "from": box, "page": 2})
    page.insert_link({"kind": pymupdf.LINK_LAUNCH, "from": box, "file": "/bin/sh"})
    note = page.add_text_annot((100, 100), "Mind the lamp.")
    document.xref_set_key(note.xref, "A", "<</S/JavaScript/JS(app.alert(1))>>")
    page.add_file_annot((150, 150), b"secret bytes", "a.bin")
    document.xref_set_key(page.xref, "AA", "<</O<</S/JavaScript/JS(app.alert(2))>>>>")
    document.save(path, **saved)
    return path


async def test_a_page_is_taken_out_as_it_looks_without_anything_that_acts(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    path = book(tmp_path / "a.pdf")
    data = await page_pdf(sandbox, path, name="a.pdf", number=1)
    single = pymupdf.open(stream=data, filetype="pdf")
    assert single.page_count == 1
    assert single[0].get_text().strip() == "This is page 1."
    assert single[0].get_links() == []
    assert "Mind the lamp." in [annotation.info["content"] for annotation in single[0].annots()]
    objects = [single.xref_object(xref) for xref in range(1, single.xref_length())]
    assert not any("JavaScript" in one or "/Launch" in one for one in objects)
    assert not any(
        single.xref_stream(xref) == b"secret bytes"
        for xref in range(1, single.xref_length())
        if single.xref_is_stream(xref)
    )


async def test_what_a_form_says_stays_to_be_seen_and_its_fields_go(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    document = pymupdf.open()
    field = pymupdf.Widget()
    field.field_name, field.field_type = "keeper", pymupdf.PDF_WIDGET_TYPE_TEXT
    field.rect, field.field_value = pymupdf.Rect(50, 50, 250, 80), "Ann of the lamp"
    field.script = "app.alert(3)"
    document.new_page().add_widget(field)
    document.save(tmp_path / "a.pdf")
    data = await page_pdf(sandbox, tmp_path / "a.pdf", name="a.pdf", number=1)
    single = pymupdf.open(stream=data, filetype="pdf")
    assert "Ann of the lamp" in single[0].get_text()
    assert list(single[0].widgets()) == []
    objects = [single.xref_object(xref) for xref in range(1, single.xref_length())]
    assert not any("JavaScript" in one or "AcroForm <<" in one or "FT" in one for one in objects), (
        objects
    )


async def test_the_same_page_gives_the_same_bytes_and_another_one_others(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    path = book(tmp_path / "a.pdf", pages=40)
    first, again = [await page_pdf(sandbox, path, name="a.pdf", number=2) for _ in range(2)]
    assert first == again
    assert first != await page_pdf(sandbox, path, name="a.pdf", number=3)
    assert len(first) < path.stat().st_size


async def test_a_page_of_a_pdf_with_an_empty_password_is_readable_by_everybody(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    path = book(
        tmp_path / "a.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="o", user_pw=""
    )
    data = await page_pdf(sandbox, path, name="a.pdf", number=3)
    single = pymupdf.open(stream=data, filetype="pdf")
    assert not single.is_encrypted
    assert "page 3" in single[0].get_text()


async def test_a_page_that_is_not_there_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    path = book(tmp_path / "a.pdf")
    for number in (0, 4):
        with pytest.raises(
            IngestFailed, match=f"'a.pdf' has 3 pages; page {number} does not exist"
        ):
            await page_pdf(sandbox, path, name="a.pdf", number=number)
