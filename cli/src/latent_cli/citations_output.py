"""Citations of an answer, as styled lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latent_cli.output import safe
from latent_cli.place_output import place_of
from latent_cli.styled import Line
from latent_core.wire.ask import Citation


def citation_lines(citations: Sequence[Citation], *, links: bool) -> Iterator[Line]:
    """An empty line, and two lines for each citation. ``links`` makes its title a hyperlink to its page, for five
    minutes."""
    if citations:
        yield []
    for one in citations:
        uri = one.page_pdf_uri or one.page_uri
        linked = links and uri is not None and uri.startswith(("http://", "https://"))
        style = f"bold link {safe(uri)}" if linked and uri is not None else "bold"
        place = place_of(one.place.model_copy(update={"page": one.page, "page_end": None}))
        where = f", {place}" if place else ""
        yield [(f"[{one.n}] ", ""), (safe(one.title), style), (safe(where), "")]
        has_page = one.page is not None and one.page_uri is not None
        opened = f"open: latent open {one.doc_id}/{one.page}" if has_page else one.source_uri
        yield [(f"    {safe(opened)}", "dim")]
