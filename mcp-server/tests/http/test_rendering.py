"""Text of documents as HTML: what is hostile stays text, and what is late is shown as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from latent_gateway.console.documents import markup
from latent_gateway.console.documents.rendering import Renderer, TextBlock


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
    shown = markup.markdown(text, ["a", "b"])
    for part in (
        "<script",
        "<img",
        "<svg",
        'javascript:x"',
        " onerror=",
        ' onclick="',
        "style=",
        'href="data',
        'href="/',
    ):
        assert part not in shown.replace("&quot;", "'"), shown


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
