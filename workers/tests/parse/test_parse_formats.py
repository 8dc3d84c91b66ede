"""Books, OpenDocument and RTF texts, mail, notebooks and subtitles."""

from __future__ import annotations

import io
import json
from email.message import EmailMessage
from pathlib import Path

import pytest

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import IngestFailed
from latent_core.domain.manifest.model import Chunker
from latent_workers.chunk.writing import drafts_of
from latent_workers.parse.mail import mailbox, message, parser as mail
from latent_workers.parse.office import parser as office
from latent_workers.parse.parsed import Cue, ParsedDocument, SourceFile
from latent_workers.parse.registry import detect
from latent_workers.parse.structured import notebook
from latent_workers.parse.text import subtitles
from tests.support.office_files import package
from tests.support.tokenizers import WordPieceTokenizer

ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
)


def source(data: bytes, name: str) -> SourceFile:
    return SourceFile(name, io.BytesIO(data), SourceType.DOCUMENT, 10)


def odt(body: str, **parts: str) -> bytes:
    content = f"<office:document-content {ODF}><office:body><office:text>{body}</office:text></office:body></office:document-content>"
    mime = "application/vnd.oasis.opendocument.text"
    return package({"mimetype": mime, "content.xml": content, **parts})


def cells(*words: str) -> str:
    return "".join(f"<table:table-cell><t:p>{one}</t:p></table:table-cell>" for one in words)


def test_an_opendocument_text_keeps_headings_lists_merged_tables_and_notes() -> None:
    covered = "<table:covered-table-cell/>"
    wide = '<table:table-cell table:number-columns-spanned="2"><t:p>Rain</t:p></table:table-cell>'
    body = (
        '<t:tracked-changes><t:p>gone</t:p></t:tracked-changes><t:h t:outline-level="2">Head</t:h>'
        "<t:p>a<t:s/>b<t:note><t:note-citation>1</t:note-citation><t:note-body><t:p>note</t:p></t:note-body></t:note> c</t:p>"
        "<t:list><t:list-item><t:p>one</t:p><t:list><t:list-item><t:p>two</t:p></t:list-item></t:list></t:list-item></t:list>"
        f"<table:table><table:table-header-rows><table:table-row>{cells('Place')}{wide}{covered}</table:table-row>"
        f"<table:table-row>{cells('', 'May', 'June')}</table:table-row></table:table-header-rows>"
        f"<table:table-row>{cells('Oslo', '53', '68')}</table:table-row></table:table>"
    )
    found = office.parse(source(odt(body), "a.odt"))
    assert found.text == (
        "## Head\n\na b c\n\nnote\n\n- one\n   - two\n\n"
        "| Place | Rain / May | Rain / June |\n| --- | --- | --- |\n| Oslo | 53 | 68 |\n"
    )


def test_an_opendocument_table_of_one_column_is_read_as_its_blocks() -> None:
    inner = "<t:h>Head</t:h><t:list><t:list-item><t:p>one</t:p></t:list-item></t:list>"
    row = f"<table:table-row><table:table-cell>{inner}</table:table-cell></table:table-row>"
    found = office.parse(source(odt(f"<table:table>{row * 2}</table:table>"), "a.odt"))
    assert found.text == "# Head\n\n- one\n\n# Head\n\n- one\n"


def test_an_opendocument_with_entities_or_a_password_is_refused_by_name() -> None:
    with pytest.raises(IngestFailed, match="defines its own XML entities"):
        office.parse(
            source(odt("", **{"content.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "a.odt")
        )
    listed = {"META-INF/manifest.xml": "<m><encryption-data/></m>"}
    with pytest.raises(IngestFailed, match="is encrypted: save it without a password"):
        office.parse(source(odt("", **listed), "a.odt"))


def test_numbered_lists_of_an_opendocument_text_keep_their_numbers() -> None:
    style = (
        '<office:automatic-styles xmlns:s="urn:oasis:names:tc:opendocument:xmlns:style:1.0"><t:list-style s:name="L1">'
        '<t:list-level-style-number t:level="1" s:num-format="1"/></t:list-style></office:automatic-styles>'
    )
    item = "<t:list-item><t:p>{}</t:p></t:list-item>"
    listed = f'<t:list t:style-name="L1">{item.format("a")}{item.format("b")}</t:list>'
    content = (
        f"<office:document-content {ODF}>{style}<office:body><office:text>{listed}</office:text></office:body>"
        "</office:document-content>"
    )
    assert office.parse(source(odt("", **{"content.xml": content}), "a.odt")).text == "1. a\n2. b\n"


def test_footnotes_of_an_rtf_document_are_read_and_broken_pictures_cost_nothing() -> None:
    data = rb"{\rtf1 claim{\super\chftn{\footnote\pard the source}}\par {\pict\bin ffd8}rest\par}"
    found = office.parse(source(data, "a.rtf")).text
    assert "the source" in found
    assert "rest" in found


def epub(encrypted: str = "", **chapters: str) -> bytes:
    items = "".join(
        f'<item id="{k}" href="{k}.xhtml" media-type="application/xhtml+xml"/>' for k in chapters
    )
    order = "".join(f'<itemref idref="{k}"/>' for k in reversed(chapters))
    return package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfiles><rootfile full-path="O/b.opf"/></rootfiles></c>',
            "O/b.opf": '<package xmlns:dc="d"><metadata><dc:title>Book</dc:title><dc:language>en-GB</dc:language></metadata>'
            f"<manifest>{items}</manifest><spine>{order}</spine></package>",
            **{
                f"O/{k}.xhtml": f"<!DOCTYPE html><html><body>{v}</body></html>"
                for k, v in chapters.items()
            },
            **({"META-INF/encryption.xml": encrypted} if encrypted else {}),
        }
    )


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    found = office.parse(source(epub(b="<h1>Two</h1><p>y</p>", a="<h1>One</h1><p>x</p>"), "a.epub"))
    assert found.text == "# One\n\nx\n\n# Two\n\ny\n"
    assert (found.title, found.language) == ("Book", "en")


@pytest.mark.parametrize(("part", "is_read"), [("O/b.xhtml", False), ("O/fonts/x.otf", True)])
def test_a_book_with_encrypted_chapters_is_refused_and_one_with_encrypted_fonts_is_read(
    part: str, is_read: bool
) -> None:
    listed = f'<e:encryption xmlns:e="e"><e:EncryptedData><e:CipherReference URI="{part}"/></e:EncryptedData></e:encryption>'
    book = source(epub(listed, a="<p>lamp</p>", b="<p>boat</p>"), "a.epub")
    if is_read:
        assert office.parse(book).text == "boat\n\nlamp\n"
    else:
        with pytest.raises(IngestFailed, match="is protected against copying"):
            office.parse(book)


def test_an_rtf_document_keeps_its_headings_and_tables() -> None:
    data = (
        rb"{\rtf1\ansi\ansicpg1252{\stylesheet{\s1 heading 1;}}{\info{\title Report}}\pard\plain\s1 Chapter\par "
        rb"\pard\plain caf\'e9 {\pict 0123}\par \trowd\cellx1\cellx2\pard\intbl a\cell b\cell\row"
        rb"\trowd\cellx1\cellx2\pard\intbl 1\cell 2\cell\row\pard end\par}"
    )
    found = office.parse(source(data, "a.rtf"))
    assert found.text == "# Chapter\n\ncaf\xe9\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nend\n"
    assert found.title == "Report"


def test_an_rtf_mark_of_a_group_inside_of_a_group_hides_nothing() -> None:
    data = rb"{\rtf1{\*\generator no}{\f2\*\cs7 The fox}{ \* \pgdsc no} a\\*b}"
    assert office.parse(source(data, "a.rtf")).text == "The fox a\\*b\n"


def eml(**headers: str) -> EmailMessage:
    one = EmailMessage()
    for key, value in {
        "Subject": "Boats",
        "From": "Ann <ann@x.org>",
        "To": "bo@x.org",
        **headers,
    }.items():
        one[key] = value
    return one


def read_mail(one: EmailMessage) -> ParsedDocument:
    return mail.parse(source(one.as_bytes(), "a.eml"))


def test_a_message_says_who_wrote_it_and_names_its_attachments() -> None:
    one = eml(Date="Mon, 6 May 2024 10:00:00 +0200")
    one.set_content("Dear Bo,\n\nthe café is open.\n")
    one.add_alternative("<p>other</p>", subtype="html")
    one.add_attachment(b"x", maintype="application", subtype="pdf", filename="plan.pdf")
    found = read_mail(one)
    assert found.text == (
        "# Boats\n\nFrom: Ann <ann@x.org>\nTo: bo@x.org\nDate: 2024-05-06 08:00\n\n"
        "Dear Bo,\n\nthe café is open.\n\nAttachments: plan.pdf\n"
    )
    assert found.title == "Boats"
    assert found.meta["date"] == "2024-05-06T08:00:00+00:00"


def test_a_message_of_html_alone_is_read_as_a_page_and_a_forwarded_one_below_its_subject() -> None:
    inner = eml(Subject="Inner")
    inner.set_content(
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", subtype="html"
    )
    outer = eml()
    outer.set_content("see below")
    outer.add_attachment(inner)
    found = read_mail(outer)
    assert (
        "## Inner\n\nFrom: Ann <ann@x.org>\nTo: bo@x.org\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
        in found.text
    )


def test_messages_within_messages_without_end_are_refused() -> None:
    data = b"Content-Type: message/rfc822\n\n" * 100 + b"Subject: x\n\nx"
    with pytest.raises(IngestFailed, match="messages within messages more than 20 deep"):
        mail.parse(source(b"Subject: a\n" + data, "a.eml"))
    with pytest.raises(IngestFailed, match="more than 20 deep, or more than"):
        mail.parse(source(b"Subject: a\n" + data * 50, "a.eml"))


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(IngestFailed, match="is no mail message"):
        mail.parse(source(b"just text", "a.eml"))
    with pytest.raises(IngestFailed, match="is no Outlook message that can be read"):
        mail.parse(source(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "a.msg"))


def test_dates_that_no_calendar_has_are_no_dates() -> None:
    assert message.moment("yesterday") is None
    assert message.moment("Mon, 99 May 2024 10:00:00") is None


def test_a_notebook_keeps_its_text_as_it_is_and_its_code_with_what_it_printed() -> None:
    book = {
        "metadata": {"language_info": {"name": "julia"}},
        "cells": [
            {"cell_type": "markdown", "source": ["# Rain\n", "\n", "in *May*"]},
            {
                "cell_type": "code",
                "source": "x = 1",
                "outputs": [
                    {"output_type": "stream", "text": ["1\n"]},
                    {"output_type": "display_data", "data": {"image/png": "AAAA"}},
                    {"output_type": "error", "ename": "E", "evalue": "no", "traceback": []},
                ],
            },
        ],
    }
    found = notebook.parse(source(json.dumps(book).encode(), "a.ipynb"))
    assert (
        found.text
        == "# Rain\n\nin *May*\n\n```julia\nx = 1\n```\n\n```\n1\n```\n\n```\nE: no\n```\n"
    )
    assert found.title == "Rain"
    assert found.blocks[2].kind is BlockType.CODE


def test_a_cell_whose_outputs_are_no_list_is_read_without_them() -> None:
    book = {"cells": [{"cell_type": "code", "source": "x = 1", "outputs": 5}]}
    found = notebook.parse(source(json.dumps(book).encode(), "a.ipynb"))
    assert found.text == "```python\nx = 1\n```\n"


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"cells": 5}', b"[" * 100_000])
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    with pytest.raises(IngestFailed, match="is no notebook"):
        notebook.parse(source(data, "a.ipynb"))


SRT = b"""1\r
00:00:01,500 --> 00:00:03,000\r
<i>Hello</i> there.\r
\r
2\r
00:00:03,100 --> 00:00:05,000\r
How are you?\r
\r
3\r
00:01:00,000 --> 00:01:02,250\r
Later.\r
"""
VTT = b"""WEBVTT

NOTE nothing

00:01.000 --> 00:02.000 align:start
<v Ann>Hi &amp; bye

id
00:02.000 --> 00:03.500
<v Bo>Hi &amp; bye too
"""


def test_subtitles_are_paragraphs_between_pauses_with_the_times_of_their_lines() -> None:
    found = subtitles.parse(source(SRT, "a.srt"))
    assert found.text == "Hello there.\nHow are you?\n\nLater.\n"
    assert found.cues == (Cue(0, 1.5, 3.0), Cue(13, 3.1, 5.0), Cue(27, 60.0, 62.25))
    assert subtitles.parse(source(VTT, "a.vtt")).text == "Ann: Hi & bye\n\nBo: Hi & bye too\n"


def test_chunks_of_subtitles_have_the_time_from_their_first_word_to_their_last() -> None:
    lines = b"\n\n".join(
        b"00:00:%02d.000 --> 00:00:%02d.500\nword %d is said here and now" % (n, n, n)
        for n in range(60)
    )
    parsed = subtitles.parse(source(lines, "a.vtt"))
    settings = Chunker(overlap=0.0)
    _, drafts = drafts_of(parsed, SourceType.SUBTITLES, settings, WordPieceTokenizer(), 256)
    assert len(drafts) > 1
    times = [draft.meta["timestamps"] for draft in drafts]
    assert times[0][0] == 0.0
    assert times[-1][1] == 59.5
    for draft, (begin, end) in zip(drafts, times, strict=True):
        numbers = [int(word) for word in draft.text.split() if word.isdigit()]
        assert (begin, end) == (numbers[0], numbers[-1] + 0.5)


def test_subtitles_without_a_time_are_refused() -> None:
    with pytest.raises(IngestFailed, match="has no subtitles"):
        subtitles.parse(source(b"words", "a.srt"))


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("a.eml", "message/rfc822"),
        ("a.ipynb", "application/x-ipynb+json"),
        ("a.vtt", "text/vtt"),
        ("a.odt", "application/vnd.oasis.opendocument.text"),
    ],
)
def test_each_format_has_its_type(name: str, mime: str) -> None:
    assert detect(name, b"x").mime == mime


MBOX = b"""From ann@x.org Mon May  6 10:00:00 2024
Subject: First
From: ann@x.org
Message-ID: <1@x>

>From now on lines may begin so.

From here no message begins.

From bo@x.org Tue May 07 11:00:00 2024
Subject: Second
From: bo@x.org

Words.
"""


def test_a_mailbox_is_split_at_envelopes_and_not_at_sentences(tmp_path: Path) -> None:
    path = tmp_path / "all.mbox"
    path.write_bytes(MBOX)
    with path.open("rb") as file:
        first = mailbox.read_batch(file, max_records=1, max_bytes=1000)
        rest = mailbox.read_batch(
            file, offset=first.next_offset, line=first.next_line, max_records=9, max_bytes=1000
        )
    (one,), (two,) = first.records, rest.records
    assert (one.id, one.title, one.line, one.mail) == ("1@x", "First", 1, True)
    assert one.text.endswith("From now on lines may begin so.\n\nFrom here no message begins.")
    assert (two.title, two.line) == ("Second", 10)
    assert len(two.id) == 64
    assert rest.next_offset == rest.total_bytes == len(MBOX)


def test_a_message_too_long_to_hold_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MAX_MESSAGE_BYTES", 150)
    path = tmp_path / "all.mbox"
    path.write_bytes(MBOX)
    with path.open("rb") as file:
        batch = mailbox.read_batch(file, max_records=9, max_bytes=1000)
    assert [failure.line for failure in batch.failures] == [1]
    assert [record.title for record in batch.records] == ["Second"]


def test_a_mailbox_is_known_by_its_first_line() -> None:
    assert detect("INBOX", MBOX).mime == "application/mbox"
    assert detect("INBOX", MBOX).corpus
    assert not detect("a.txt", MBOX).corpus
    assert detect("letter", b"From here on, nothing.").source_type is SourceType.TEXT
