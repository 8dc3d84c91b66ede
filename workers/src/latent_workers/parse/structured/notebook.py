"""Jupyter notebooks: text cells as they are, code cells and what they printed as code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.writing import OfficeText, parsed
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.text.compose import MarkdownText
from latent_workers.parse.text.decode import decode_filled

MAX_OUTPUT_CHARS: Final = 4_000
"""Of what one cell printed: logs of a training would drown the rest."""
_DEFAULT_LANGUAGE: Final = "python"


def parse(source: SourceFile) -> ParsedDocument:
    decoded = decode_filled(source.read(), source.name)
    try:
        notebook = json.loads(decoded.text)
    except (ValueError, RecursionError) as exc:
        raise IngestFailed(
            f"'{source.name}' is no notebook: {str(exc)[:200]}", reason="damaged"
        ) from exc
    if not isinstance(notebook, dict) or not (cells := list(_cells(notebook))):
        raise IngestFailed(f"'{source.name}' is no notebook with cells", reason="damaged")
    language = _language(notebook)
    text = MarkdownText(source.name)
    for cell in cells:
        _write(text, cell, language)
    meta = {"notebook_language": language, "cells": len(cells)}
    return parsed(OfficeText(text.text(), meta=meta), source.name)


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of version 4, or of the sheets of version 3."""
    sheets = notebook.get("worksheets")
    parts = [notebook, *(sheets if isinstance(sheets, list) else [])]
    for part in parts:
        yield from _objects(part.get("cells") if isinstance(part, dict) else None)


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    """Those of a list; what is no list has none."""
    yield from (one for one in values if isinstance(one, dict)) if isinstance(values, list) else ()


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    for key in ("language_info", "kernelspec"):
        named = metadata.get(key) if isinstance(metadata, dict) else None
        language = (
            named.get("name" if key == "language_info" else "language")
            if isinstance(named, dict)
            else None
        )
        if isinstance(language, str) and language.isalnum():
            return language
    return _DEFAULT_LANGUAGE


def _write(text: MarkdownText, cell: dict[str, Any], language: str) -> None:
    kind = cell.get("cell_type")
    source = _joined(cell.get("source", cell.get("input")))
    if kind == "code":
        text.code(source, language)
        for output in _objects(cell.get("outputs")):
            text.code(_printed(output)[:MAX_OUTPUT_CHARS])
    elif kind == "heading":
        text.heading(cell["level"] if isinstance(cell.get("level"), int) else 1, source)
    elif kind == "raw":
        text.paragraph(source)
    else:
        text.markdown(source)


def _printed(output: dict[str, Any]) -> str:
    data = output.get("data")
    plain = data.get("text/plain") if isinstance(data, dict) else None
    error = ": ".join(str(output[key]) for key in ("ename", "evalue") if output.get(key))
    return _joined(output.get("text", plain)) or error


def _joined(source: Any) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
