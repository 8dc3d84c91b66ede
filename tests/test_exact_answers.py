"""The check of exact terms and pages: what it takes for true, and that it sees what is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import pytest
from PIL import Image, ImageDraw

from latent_core.wire.search import Hit, Provenance, Reason
from scripts.exact_answers import CORPUS, AnswerCheck, PagedText, compare, links
from scripts.page_marks import numbered_lines, pages_of_code, pages_of_markdown, rules

SIZE: Final = (1240, 1754)
TERM: Final = re.compile("redirect_uri")


def page(numbers: int = 0, ruled: Iterable[int] = ()) -> Image.Image:
    """A page with line numbers in its margin and rules at these heights."""
    image = Image.new("L", SIZE, 255)
    draw = ImageDraw.Draw(image)
    for line in range(numbers):
        draw.text((106, 80 + 20 * line), str(line + 1), fill=80)
        draw.text((150, 80 + 20 * line), "const lamp = 1;", fill=0)
    for y in ruled:
        draw.line([(75, y), (1165, y)], fill=0, width=2)
    draw.text((75, 1660), "a foot", fill=60)
    return image


def test_marks_are_counted_in_the_pixels() -> None:
    assert numbered_lines(page(numbers=70)) == 70
    assert rules(page(ruled=(300, 900))) == 2
    assert (numbered_lines(page()), rules(page(numbers=70))) == (0, 0)


def test_a_line_of_code_is_on_the_page_that_numbers_it() -> None:
    images = [page(numbers=70), page(numbers=70), page(numbers=3)]
    pages = [pages_of_code(line, images) for line in (1, 70, 71, 143)]
    assert pages == [range(1, 2), range(1, 2), range(2, 3), range(3, 4)]


def test_a_section_between_two_rules_is_on_their_pages() -> None:
    text = "a\n\n---\n\nb\n\n---\n\nc\n\n---\n\nd\n"
    images = [page(ruled=(300, 900)), page(ruled=(700,))]
    pages = [pages_of_markdown(text, line, images) for line in (1, 5, 9, 13)]
    assert pages == [range(1, 2), range(1, 2), range(1, 3), range(2, 3)]
    with pytest.raises(ValueError, match="2 rules"):
        pages_of_markdown(text, 1, images[:1])


def hit(**changes: Any) -> Hit:
    reason = Reason(channel="exact", rank=1, score=1.0, term="redirect_uri", lines=[90], page=2)
    given: dict[str, Any] = {
        "source_path": "client.ts",
        "why": [reason],
        "provenance": Provenance.model_construct(page=2),
        "uri": "http://127.0.0.1/2",
        "page_uri": "http://127.0.0.1/2",
    }
    return Hit.model_construct(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        (
            {"provenance": Provenance.model_construct(page=1)},
            ["client.ts:90: page 1, but it is 2 (to 2)"],
        ),
        ({"why": []}, ["lines of client.ts: [], but it is [90]"]),
    ],
)
def test_a_wrong_page_and_a_missing_line_are_seen(
    changes: dict[str, Any], problems: list[str]
) -> None:
    text = "\n".join("redirect_uri" if number == 90 else "x" for number in range(1, 140))
    corpus = {"client.ts": PagedText(text, code=True, images=(page(numbers=70),) * 2)}
    check = AnswerCheck("redirect_uri")
    compare(check, [hit(**changes)], corpus, TERM)
    assert check.problems == problems


@pytest.mark.parametrize(
    "wrong", [{"page_uri": None}, {"meta": {"page": "data:image/webp;base64,"}}]
)
def test_bytes_in_place_of_a_link_are_seen(wrong: dict[str, Any]) -> None:
    check = AnswerCheck("links")
    links(check, [hit()])
    assert check.problems == []
    links(check, [hit(**wrong)])
    assert len(check.problems) == 1


def test_the_corpus_has_code_and_prose_on_several_pages() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert len(files) >= 30
    assert {path.suffix for path in files} == {".md", ".ts", ".tsx"}
