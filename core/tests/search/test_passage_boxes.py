"""A part of a page's text is found among the words that the page shows."""

from __future__ import annotations

import random
import time

import pytest

from latent_core.domain.page_words import PageWord, placed
from latent_core.domain.passage_boxes import PageAlignment

LINE = 400
"""Height of a line and its gap, in ten-thousandths."""


def page(*lines: str, column: int = 0) -> list[PageWord]:
    """Words in lines from the top, 100 units per letter."""
    words = []
    for number, line in enumerate(lines):
        left = 500 + column * 5000
        for text in line.split():
            right = left + 100 * len(text)
            words.append(PageWord(text, left, LINE * number, right, LINE * number + 250))
            left = right + 100
    return words


def shown(text: str, part: str, words: list[PageWord], occurrence: int = 0) -> str:
    """The words of the page that show a part of the text."""
    start = -1
    for _ in range(occurrence + 1):
        start = text.index(part, start + 1)
    alignment = PageAlignment(text, words)
    return " ".join(words[n].text for n in alignment.words(start, start + len(part)))


def test_a_word_that_is_split_at_the_end_of_a_line_is_shown_by_both_parts() -> None:
    words = page("The keeper winds the clock-", "work before lighting the lamp.")
    text = "The keeper winds the clockwork before lighting the lamp."
    assert shown(text, "clockwork before", words) == "clock- work before"


def test_ligatures_accents_white_space_and_case_do_not_matter() -> None:
    words = page("THE \ufb01rst oﬃce re\u0301sume\u0301 —", "na\u00efve  end")
    text = "The first\n\n office\u00a0resum\u00e9 naive end"
    assert shown(text, "first\n\n office", words) == "\ufb01rst oﬃce"
    assert shown(text, "resum\u00e9", words) == "re\u0301sume\u0301"


def test_a_sentence_that_is_repeated_is_boxed_where_it_is_meant() -> None:
    lines = [f"Entry {n}: the lamp was lit at dusk." for n in range(6)]
    text = "\n".join(lines)
    alignment = PageAlignment(text, page(*lines))
    start = text.index("the lamp", text.index("Entry 4"))
    (box,) = alignment.boxes([(start, start + len("the lamp was lit"))])
    assert round(box.top, 4) == 4 * LINE / 10_000


def test_running_headers_and_tables_do_not_disturb() -> None:
    words = [*page("Annual report 2024", "Sales by quarter", "Q1 12 15", "Q2 9 7", "Page 3")]
    text = "# Sales by quarter\n\n| Quarter | North | South |\n| --- | --- | --- |\n| Q1 | 12 | 15 |\n| Q2 | 9 | 7 |"
    assert shown(text, "| Q2 | 9 | 7 |", words) == "Q2 9 7"
    assert shown(text, "# Sales by quarter", words) == "Sales by quarter"


def test_columns_in_another_order_are_found_and_boxed_apart() -> None:
    left = ["Lamps are lit at dusk", "and put out at dawn by"]
    right = ["the keeper of the light", "who winds the clockwork"]
    mixed = [*page(left[0]), *page(right[0], column=1)]
    mixed += [word._replace(top=LINE, bottom=LINE + 250) for word in page(left[1])]
    mixed += [word._replace(top=LINE, bottom=LINE + 250) for word in page(right[1], column=1)]
    text = " ".join([*left, *right])
    part = "dawn by the keeper of the light who"
    assert shown(text, part, mixed).split() == [
        "the",
        "keeper",
        "of",
        "the",
        "light",
        "dawn",
        "by",
        "who",
    ]
    start = text.index(part)
    assert len(PageAlignment(text, mixed).boxes([(start, start + len(part))])) == 3


def test_a_dash_between_found_words_is_in_the_box() -> None:
    words = page("From dusk \u2013 till dawn")
    assert shown("From dusk till dawn", "dusk till", words) == "dusk \u2013 till"


def test_turned_lines_are_boxed_one_by_one() -> None:
    words = [
        PageWord(text, 9000 - LINE * line, 500 + 700 * n, 9250 - LINE * line, 1100 + 700 * n)
        for line, texts in enumerate((("lamps", "shine", "bright"), ("gulls", "sleep", "deeply")))
        for n, text in enumerate(texts)
    ]
    text = "lamps shine bright gulls sleep deeply"
    assert len(PageAlignment(text, words).boxes([(0, len(text))])) == 2


def test_a_text_that_the_page_does_not_show_has_no_box() -> None:
    alignment = PageAlignment("Completely different words", page("Nothing of that kind"))
    assert alignment.boxes([(0, 26)]) == []
    assert PageAlignment("", []).boxes([(0, 0)]) == []


@pytest.mark.parametrize("letters", ["0", "ab", "abc ."])
def test_a_page_of_the_same_letters_again_and_again_is_bounded(letters: str) -> None:
    """Runs are compared at a few places only, however often they occur."""
    draw = random.Random(3)
    text = "".join(draw.choices(letters, k=60_000))
    words = page(*[text[at : at + 60] for at in range(0, 30_000, 60)])
    begun = time.process_time()
    PageAlignment(text, words)
    print(letters, time.process_time() - begun)


def test_a_word_outside_of_the_page_has_no_place() -> None:
    assert placed("gull", 1.1, 0.2, 1.3, 0.3) is None
    assert placed("", 0.1, 0.2, 0.3, 0.3) is None
    assert placed("gull", -0.5, 0.2, 0.5, 2.0) == PageWord("gull", 0, 2000, 5000, 10_000)
