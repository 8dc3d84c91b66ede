"""Texts that say nothing: tiny ones, and ones that were read in a wrong encoding."""

from __future__ import annotations

import pytest

from latent_core.search.thin_text import is_damaged, is_tiny


@pytest.mark.parametrize("text", ["hi", "Hi!", "?", "", "OK", "yes, thanks", "Table of contents"])
def test_a_text_with_hardly_a_term_is_tiny_among_usual_chunks(text: str) -> None:
    assert is_tiny(text, "english", 80.0)


@pytest.mark.parametrize(
    "text",
    ["The lamp is lit at dusk.", "Rate limits: 60 requests per minute", "Blue Rider, 1911, Munich"],
)
def test_a_short_text_with_a_few_terms_is_not_tiny(text: str) -> None:
    assert not is_tiny(text, "english", 80.0)


def test_what_is_tiny_depends_on_the_container() -> None:
    assert is_tiny("red shoes", "english", 80.0)
    assert not is_tiny("red shoes", "english", 6.0)


@pytest.mark.parametrize(
    "text",
    [
        "\ufffd\ufffd\ufffd\ufffd \ufffd\ufffd\ufffd",
        "Привет мир, как дела".encode().decode("cp1252", "replace"),
        "Größere Übungsstücke".encode().decode("latin-1") + " Ã¤Ã¶Ã¼",
        "文字化けの例".encode().decode("latin-1"),
        "\x93\x94\x85\x91 \x92\x80",
    ],
)
def test_a_text_in_a_wrong_encoding_is_damaged(text: str) -> None:
    assert is_damaged(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The lamp is lit at dusk.",
        "Größere Übungsstücke für Anfänger, naïve façade, señor",
        "«À la carte», dit-elle : « ça va » — l\u2019été à Besançon…",
        "ÅÄÖ åäö ÆØÅ æøå Þór ðe",
        "Привет мир, как дела",
        "文字化けの例",
        "The cafÃ© at the corner opens at nine and serves breakfast until noon.",
        "x² + y² = 2·π·r, 5 \u00b5m ± 3 °C",
    ],
)
def test_a_text_in_any_language_is_not_damaged_nor_is_one_with_a_wrong_accent(text: str) -> None:
    assert not is_damaged(text)
