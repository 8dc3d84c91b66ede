from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from markdown_it import MarkdownIt

from latent_core.domain.chunk import BlockType
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.text import markdown
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.front_matter import front_matter, indexed_fields
from latent_workers.parse.text.lines import Lines
from latent_workers.parse.text.markdown import reader

LINES = st.sampled_from(
    [
        *(
            "",
            "",
            "# One",
            "## Two `code`",
            "### Three",
            "Setext",
            "===",
            "---",
            "***",
            "text",
            "more *text*",
        ),
        *(
            "- item",
            "  - nested",
            "1. first",
            "   continued",
            "> quoted",
            "> - in quote",
            "    indented",
        ),
        *("```py", "```", "~~~", "| a | b |", "|---|---|", "| 1 | 2 |", "a | b", "--|--", "| lone"),
        *(
            "[ref]: http://example.com",
            "<div>",
            "</div>",
            "<!-- note -->",
            "- ```js",
            "  | x | y |",
            "  |---|---|",
        ),
        *("\u2028odd", "\t", "é中", "\\", "[^1]: note", "- | a | b |", "> |---|---|"),
    ]
)
DOCUMENTS = st.builds(
    lambda lines, end, closed: end.join(lines) + end * closed,
    st.lists(LINES, max_size=25),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)


def parse(text: str) -> ParsedDocument:
    return markdown.of_decoded(decode(text.encode()))


def kinds(text: str) -> list[tuple[str, str]]:
    return [(block.kind.value, block.text) for block in parse(text).blocks]


@settings(max_examples=200)
@given(DOCUMENTS)
@example("---\n---\n# One")
def test_blocks_are_in_order_exact_and_hold_every_filled_line_below_the_front_matter(
    text: str,
) -> None:
    parsed = parse(text)
    lines = Lines(parsed.text)
    covered: list[int] = []
    for block in parsed.blocks:
        assert block.line_start is not None
        assert block.line_end is not None
        assert parsed.text[block.offset_start : block.offset_end] == block.text
        assert lines.span(block.line_start, block.line_end) == (
            block.offset_start,
            block.offset_end,
        )
        covered += range(block.line_start, block.line_end + 1)
    assert covered == sorted(set(covered))
    of_meta = set(range(1, front_matter(parsed.text, lines).lines + 1))
    filled = {n for n, has_text in enumerate(lines.filled(), start=1) if has_text}
    assert filled - of_meta <= set(covered)


def signature(parser: MarkdownIt, text: str) -> list[tuple[str, Any]]:
    inner = ("tr", "td", "th", "inline", "tbody", "thead")
    return [
        (token.type, token.map) for token in parser.parse(text) if not token.type.startswith(inner)
    ]


@settings(max_examples=200)
@given(DOCUMENTS)
def test_the_fast_reader_sees_the_same_blocks_as_the_full_one(text: str) -> None:
    full = MarkdownIt("commonmark").enable("table")
    assert signature(reader(), text) == signature(full, text)


def test_headings_make_a_stack() -> None:
    parsed = parse("# A\n\nx\n\n## B *b* `c`\n\ny\n\n### C\n\n## D\n\nz\n\nE\n=\n\nw\n")
    paths = {block.text: block.heading_path for block in parsed.blocks}
    assert paths["x"] == ("A",)
    assert paths["y"] == ("A", "B b c")
    assert paths["### C"] == ("A", "B b c", "C")
    assert paths["z"] == ("A", "D")
    assert paths["w"] == ("E",)
    assert [block.level for block in parsed.blocks if block.level] == [1, 2, 3, 2, 1]


def test_a_comment_in_a_fence_is_no_heading() -> None:
    parsed = parse("```sh\n# not a heading\n```\n\ntext\n")
    assert [block.heading_path for block in parsed.blocks] == [(), ()]
    assert parsed.blocks[0].kind is BlockType.CODE


def test_tables_and_fences_inside_lists_are_blocks_of_their_own() -> None:
    assert kinds(
        "- a\n\n  ```py\n  x\n  ```\n- b\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n- c\n"
    ) == [
        ("list", "- a"),
        ("code", "  ```py\n  x\n  ```"),
        ("list", "- b"),
        ("table", "  | a | b |\n  |---|---|\n  | 1 | 2 |"),
        ("list", "- c"),
    ]


def test_kinds_of_blocks() -> None:
    text = "para\n\n1. one\n2. two\n\n    code\n\n<div>\nraw\n</div>\n\n[ref]: http://example.com\n\n> quote\n"
    assert [kind for kind, _ in kinds(text)] == [
        "paragraph",
        "list",
        "paragraph",
        "paragraph",
        "paragraph",
    ]
    assert kinds("    code\n")[0][0] == "code"


MATTERS = {
    "obsidian": "---\ntitle: Lamps\naliases:\n  - Argand\ntags: [oil, glass]\ndate: 2024-05-01\n---",
    "jekyll": "---\r\ntitle: Lamps\r\ntags: [oil, glass]\r\naliases: [Argand]\r\ndate: 2024-05-01\r\n---",
    "ended by dots": "---\ntitle: Lamps\ntags:\n- oil\n- glass\naliases: [Argand]\ndate: 2024-05-01\n...",
    "hugo toml": '+++\ntitle = "Lamps"\naliases = ["Argand"]\ntags = ["oil", "glass"]\ndate = 2024-05-01\n+++',
    "hugo json": """{
  "title": "Lamps",
  "aliases": ["Argand"], "tags": ["oil", "glass"],
  "date": "2024-05-01"
}""",
}


@pytest.mark.parametrize("matter", MATTERS.values(), ids=list(MATTERS))
def test_front_matter_is_meta_and_no_block_and_the_lines_below_keep_their_numbers(
    matter: str,
) -> None:
    parsed = parse(f"{matter}\n# Heading\n\nThe lamp is lit.\n")
    assert parsed.title == "Lamps"
    assert (
        parsed.meta.items()
        >= {
            "date": "2024-05-01",
            "tags": ["oil", "glass"],
            "aliases": ["Argand"],
        }.items()
    )
    first = len(matter.splitlines()) + 1
    assert [(block.text, block.line_start) for block in parsed.blocks] == [
        ("# Heading", first),
        ("The lamp is lit.", first + 2),
    ]
    assert parsed.warnings == ()
    assert indexed_fields(parsed.meta) == "Lamps\nArgand\noil\nglass"


def test_a_file_of_front_matter_alone_is_its_text() -> None:
    parsed = parse("---\ntitle: Ada\nrole: keeper\n---\n\n***\n")
    assert parsed.title == "Ada"
    assert parsed.blocks[0].text == "---\ntitle: Ada\nrole: keeper\n---"


@pytest.mark.parametrize("text", ["---\n---\nBody.\n", "---\n# only a comment\n---\nBody.\n"])
def test_empty_front_matter_is_no_text(text: str) -> None:
    assert [block.text for block in parse(text).blocks] == ["Body."]


@pytest.mark.parametrize(
    "text",
    [
        "{% raw %}\nBody.\n",
        '{"a": 1\n\nBody.\n',
        '{"a": 1} is JSON\n\nBody.\n',
        "{}\n\nBody.\n",
        "+++\nno end\n\nBody.\n",
        "\n---\ntitle: not at the top\n---\n\nBody.\n",
        '{"a": ' * 20_000 + "\n\nBody.\n",
    ],
)
def test_what_only_begins_like_front_matter_is_text_without_a_warning(text: str) -> None:
    parsed = parse(text)
    assert parsed.warnings == ()
    assert set(parsed.meta) == {"encoding"}
    assert "\n".join(block.text for block in parsed.blocks).split() == text.split()


def test_malformed_toml_is_kept_as_text_with_a_warning() -> None:
    parsed = parse("+++\ntitle = \n+++\nBody.\n")
    assert parsed.blocks[0].text == "+++\ntitle = \n+++"
    assert "is not valid TOML" in parsed.warnings[0].message


def test_words_of_front_matter_are_bounded_and_other_values_are_no_words() -> None:
    meta = {
        "Title": 2024,
        "tags": "a  b",
        "aliases": [True, False, None, {"x": 1}, "c"],
        "draft": True,
    }
    assert indexed_fields(meta) == "2024\nc\na b"
    assert (
        len(indexed_fields({"tags": ["x" * 90] * 5 + [f"tag{n}" * 9 for n in range(200)]})) <= 2000
    )


@pytest.mark.parametrize("matter", ["a: [", "a: &x [1]\nb: *x", "a: b: c"])
def test_front_matter_that_cannot_be_trusted_is_kept_as_text_with_a_warning(matter: str) -> None:
    parsed = parse(f"---\n{matter}\n---\ntext\n")
    assert len(parsed.warnings) == 1
    assert "front matter" in parsed.warnings[0].message
    assert parsed.blocks[0].text == f"---\n{matter}\n---"


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    parsed = parse("---\njust text\n---\nmore\n")
    assert parsed.warnings == ()
    assert set(parsed.meta) == {"encoding"}


def test_the_title_is_the_first_of_the_highest_headings() -> None:
    assert parse("## Below\n\n# Top **bold**\n\n# Second\n").title == "Top bold"
    assert parse("no heading\n").title is None


def test_deep_nesting_does_no_harm() -> None:
    parsed = parse(">" * 5000 + " deep\n\n" + "- " * 3000 + "deep\n\n" + "[" * 3000 + "\n")
    assert "".join(block.text for block in parsed.blocks).count("deep") == 2


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!timestamp x"])
def test_front_matter_with_a_tag_that_does_not_fit_is_kept_as_text(value: str) -> None:
    parsed = parse(f"---\na: {value}\n---\n\nBody.\n")
    assert "Body." in parsed.text
    assert parsed.warnings
