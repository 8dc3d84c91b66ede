"""Office files made by the tests, from the XML that the formats prescribe."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
P = f'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:r="{REL}" {A}'
S = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{REL}"'
MAIN = {
    "docx": ("word/document.xml", "wordprocessingml.document"),
    "pptx": ("ppt/presentation.xml", "presentationml.presentation"),
    "xlsx": ("xl/workbook.xml", "spreadsheetml.sheet"),
}


def package(parts: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


def relationships(**targets: str) -> str:
    """``id=kind:target`` pairs."""
    listed = "".join(
        f'<Relationship Id="{key}" Type="{REL}/{kind}" Target="{target}"/>'
        for key, (kind, _, target) in ((k, v.partition(":")) for k, v in targets.items())
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{listed}</Relationships>'


def office(kind: str, parts: Mapping[str, str | bytes]) -> bytes:
    main, name = MAIN[kind]
    content_type = f"application/vnd.openxmlformats-officedocument.{name}.main+xml"
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/{main}" ContentType="{content_type}"/></Types>'
    )
    rels = relationships(r1=f"officeDocument:{main}")
    return package({"[Content_Types].xml": types, "_rels/.rels": rels, **parts})


STYLES = f"""<w:styles {W}>
<w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style>
<w:style w:styleId="H2"><w:name w:val="Heading 2"/><w:basedOn w:val="H1"/></w:style>
<w:style w:styleId="Eigene"><w:name w:val="Kapitel"/><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>
<w:style w:styleId="Sub"><w:name w:val="Kapitel klein"/><w:basedOn w:val="Eigene"/></w:style>
</w:styles>"""
NUMBERING = f"""<w:numbering {W}>
<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/></w:lvl>
<w:lvl w:ilvl="1"><w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>
<w:num w:numId="5"><w:abstractNumId w:val="0"/></w:num></w:numbering>"""


def docx(body: str, **parts: str) -> bytes:
    return office(
        "docx",
        {
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relationships(
                s="styles:styles.xml", n="numbering:numbering.xml", f="footnotes:footnotes.xml"
            ),
            "word/styles.xml": STYLES,
            "word/numbering.xml": NUMBERING,
            **parts,
        },
    )


def p(words: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>"


def styled(words: str, style: str) -> str:
    return p(words, f'<w:pStyle w:val="{style}"/>')


def tc(words: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{p(words)}</w:tc>"


def tr(*cells: str, header: bool = False) -> str:
    mark = "<w:trPr><w:tblHeader/></w:trPr>" if header else ""
    return "".join(["<w:tr>", mark, *cells, "</w:tr>"])


def tbl(*rows: str) -> str:
    return "".join(["<w:tbl>", *rows, "</w:tbl>"])


def shape(words: str, placeholder: str | None = None) -> str:
    mark = "" if placeholder is None else f'<p:ph type="{placeholder}"/>'
    paragraphs = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in words.split("\n"))
    return f"<p:sp><p:nvSpPr><p:nvPr>{mark}</p:nvPr></p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>"


def tree(*shapes: str, root: str = "sld") -> str:
    inner = "".join(shapes)
    return f"<p:{root} {P}><p:cSld><p:spTree>{inner}</p:spTree></p:cSld></p:{root}>"


def pptx(*slides: str, notes: str | None = None, **parts: str) -> bytes:
    """``notes`` are those of the first slide."""
    numbers = range(1, len(slides) + 1)
    order = "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in numbers)
    made: dict[str, str] = {
        "ppt/presentation.xml": f"<p:presentation {P}><p:sldIdLst>{order}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relationships(
            **{f"r{n}": f"slide:slides/slide{n}.xml" for n in numbers}
        ),
        **{f"ppt/slides/slide{n}.xml": slide for n, slide in zip(numbers, slides, strict=True)},
    }
    if notes is not None:
        made["ppt/notesSlides/notesSlide1.xml"] = tree(
            shape("", "sldImg"), shape(notes, "body"), root="notes"
        )
        made["ppt/slides/_rels/slide1.xml.rels"] = relationships(
            n="notesSlide:../notesSlides/notesSlide1.xml", d="chart:../charts/chart1.xml"
        )
    return office("pptx", {**made, **parts})


def xlsx(*sheets: str, names: tuple[str, ...] = (), **parts: str) -> bytes:
    """``sheets`` are the rows and what follows them."""
    names = names or tuple(f"Sheet{n}" for n in range(1, len(sheets) + 1))
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(names, start=1)
    )
    made = {
        "xl/workbook.xml": f"<workbook {S}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relationships(
            **{f"r{n}": f"worksheet:worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)}
        ),
        **{
            f"xl/worksheets/sheet{n}.xml": f"<worksheet {S}>{sheet}</worksheet>"
            for n, sheet in enumerate(sheets, start=1)
        },
    }
    return office("xlsx", {**made, **parts})


def rows(*lines: tuple[object, ...], first: int = 1) -> str:
    """Cells of numbers and of words written in place; ``None`` is no cell."""
    written = []
    for number, line in enumerate(lines, start=first):
        cells = "".join(_cell(chr(65 + at) + str(number), value) for at, value in enumerate(line))
        written.append(f'<row r="{number}">{cells}</row>')
    return "".join(["<sheetData>", *written, "</sheetData>"])


def _cell(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'


def merged(*places: str) -> str:
    listed = "".join(f'<mergeCell ref="{place}"/>' for place in places)
    return f"<mergeCells>{listed}</mergeCells>"
