"""Text of documents as HTML: what is hostile stays text, and what is late is shown as it is."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from latent_gateway.console.documents import markup
from latent_gateway.console.documents.rendering import Renderer, TextBlock

ALLOWED = frozenset(
    [
        "p",
        "h3",
        "a",
        "em",
        "strong",
        "s",
        "code",
        "pre",
        "span",
        "mark",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "div",
        "br",
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "<script>x</script>",
        "[a](javascript:x)",
        "[a](JaVaScRiPt:x)",
        "[a](data:text/html,x)",
        "[a](vbscript:x)",
        "<javascript:x>",
        "[a]: javascript:x\n\n[a]",
        '![a](https://example.org/x.png "t")',
        '<img src=x onerror="y">',
        "[a](/relative)",
        '[a](https://example.org/"onclick="x)',
        "```<script>\n<script>x</script>\n```",
        "`<script>`",
        "| <script> | b |\n|---|:-:|\n| <svg onload=x> | d |",
        "&lt;script&gt; &#60;script&#62;",
        "# <h1 style='x'>",
    ],
)
def test_hostile_markdown_becomes_text(text: str) -> None:
    found = WrittenElements()
    found.feed(markup.markdown(text, ["a", "b"]))
    assert found.tags <= ALLOWED
    assert found.attributes <= {"class", "href", "rel", "role", "aria-label", "tabindex"}
    assert all(href.startswith("https://example.org/") for href in found.links)


class WrittenElements(HTMLParser):
    """The elements and attributes of a piece of HTML, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_links_to_the_web_stay_and_tell_nothing() -> None:
    shown = markup.markdown("[fine](https://example.org/a?b=1&c=2) <mailto:keeper@example.org>")
    assert (
        '<a href="https://example.org/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">' in shown
    )
    assert 'href="mailto:keeper@example.org"' in shown


def test_words_are_marked_in_text_code_and_tables_as_whole_words() -> None:
    shown = markup.markdown("The lamp and lamps.\n\n| lamp |\n|---|\n| x |\n\n`lamp`", ["lamp"])
    assert shown.count("<mark>lamp</mark>") == 3
    assert markup.code("lamp = 1  # Lamp", "a.py", ["lamp"]).count("<mark>") == 2
    assert "<mark>" not in markup.markdown("lamps", ["lamp"])
    assert markup.table("| a | b |\n| c | d |").count("<td") == 4


async def test_the_child_renders_and_keeps_what_it_rendered() -> None:
    renderer = Renderer()
    try:
        shown = await renderer.html(
            [TextBlock("markdown", "# Lamp"), TextBlock("code", "x = 1", "a.py")]
        )
        assert shown[0].strip() == '<h3 class="heading level1">Lamp</h3>'
        assert '<span class="mi">1</span>' in shown[1]
        assert await renderer.html([TextBlock("markdown", "# Lamp")]) == shown[:1]
    finally:
        await renderer.close()


async def test_a_text_that_takes_too_long_is_shown_plain_and_the_next_is_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_child.py").write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    if 'forever' in line:\n"
        "        while True: pass\n"
        "    print('\"<b>rendered</b>\"', flush=True)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert sys.executable
    renderer = Renderer("slow_child")
    try:
        shown = await renderer.html(
            [TextBlock("markdown", "<i>forever"), TextBlock("markdown", "x")]
        )
        assert shown == ['<p class="text">&lt;i&gt;forever</p>', "<b>rendered</b>"]
    finally:
        await renderer.close()
