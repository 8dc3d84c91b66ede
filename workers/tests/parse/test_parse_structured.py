from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_core.domain.ids import content_hash
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.writing import chunk
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.structured import json_file, yaml_file
from latent_workers.parse.structured.tree import key_path, segment
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.lines import Lines
from tests.support.tokenizers import CharacterTokenizer, WordPieceTokenizer


def parsed(source: str, name: str) -> ParsedDocument:
    of_decoded = json_file.of_decoded if ".js" in name else yaml_file.of_decoded
    return of_decoded(decode(source.encode()), name)


def chunks(
    source: str, name: str, budget: int = 60, tokenizer: Tokenizer | None = None
) -> list[DraftChunk]:
    return chunk(
        parsed(source, name),
        source_type=SourceType.JSON if ".js" in name else SourceType.YAML,
        budget_tokens=budget,
        overlap=0.12,
        table_rows=25,
        tokenizer=tokenizer or WordPieceTokenizer(),
    )


def places(found: Sequence[DraftChunk]) -> list[tuple[str | None, int | None, int | None]]:
    return [(d.place.key_path, d.place.line_start, d.place.line_end) for d in found]


COMPOSE = """\
# The stack.
version: "3"

services:
  # Serves requests.
  api:
    image: example/api:1.2  # pinned
    ports:
      - "8080:80"
      - "8443:443"
    environment:
{environment}
  db:
    image: postgres
    volumes:
      - data:/var/lib

volumes:
  data: {{}}
# The end.
""".format(environment="\n".join(f"      NAME_{n}: value of it" for n in range(12)))


def test_a_named_value_at_the_top_is_a_section_with_its_key_path_and_lines() -> None:
    found = chunks(COMPOSE, "compose.yaml", budget=2000)
    assert places(found) == [("version", 1, 2), ("services", 4, 27), ("volumes", 29, 31)]
    assert found[1].text == COMPOSE[COMPOSE.index("services:") : COMPOSE.index("\n\nvolumes")]
    assert found[1].embed_text.startswith("services\n\nservices:\n  # Serves")
    assert found[1].place.parent_section is None


def test_a_section_over_budget_is_split_by_its_children() -> None:
    found = chunks(COMPOSE, "compose.yaml", budget=80)
    assert places(found) == [
        ("version", 1, 2),
        ("services.api", 4, 10),
        ("services.api.environment", 11, 23),
        ("services.db", 24, 27),
        ("volumes", 29, 31),
    ]
    assert [d.place.parent_section for d in found] == [
        None,
        "services",
        "services.api",
        "services",
        None,
    ]
    assert found[1].text.startswith("services:\n  # Serves requests.\n  api:\n    image")


def test_json_gives_the_sections_that_the_same_yaml_gives() -> None:
    value = yaml.safe_load(COMPOSE)
    expected = ["version", "services.api", "services.api.environment", "services.db", "volumes"]
    assert [d.place.key_path for d in chunks(COMPOSE, "a.yaml", budget=80)] == expected
    found = chunks(json.dumps(value, indent=2), "a.json", budget=160)
    assert [d.place.key_path for d in found] == expected
    assert found[-1].text.endswith("  }\n}")
    squeezed = chunks(json.dumps(value), "a.json", budget=160)
    assert [d.place.key_path for d in squeezed] == expected
    assert {d.place.line_start for d in squeezed} == {1}


def test_small_siblings_are_packed_under_their_parent() -> None:
    source = "rows:\n" + "".join(f"  - {{id: {n}, name: item {n}}}\n" for n in range(60))
    found = chunks(source, "a.yaml")
    assert {d.place.key_path for d in found[:-1]} == {"rows"}
    assert 4 < len(found) < 30
    assert all(d.token_count <= 60 for d in found)


def test_a_scalar_over_budget_is_cut_at_its_lines() -> None:
    source = "intro: |\n" + "".join(f"  line {n} of a long text\n" for n in range(60)) + "b: 1\n"
    found = chunks(source, "a.yaml")
    cut = [d for d in found if d.place.key_path == "intro"]
    assert len(cut) > 3
    assert "\n".join(d.text for d in cut) == source[: source.index("\nb:")]
    assert found[-1].place.key_path == "b"


def test_documents_of_one_file_stay_separate() -> None:
    spec = "spec:\n  text: some words\n  more: 2\n"
    source = f"---\nkind: A\n{spec}---\n# Second.\nkind: B\n{spec}...\n"
    assert parsed(source, "a.yaml").meta["documents"] == 2
    found = chunks(source, "a.yaml", budget=2000)
    assert [
        (*place, d.meta["document"]) for place, d in zip(places(found), found, strict=True)
    ] == [
        ("kind", 1, 2, 1),
        ("spec", 3, 5, 1),
        ("kind", 6, 8, 2),
        ("spec", 9, 12, 2),
    ]
    assert found[2].embed_text.startswith("document 2 > kind\n\n---\n# Second.\n")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["services", "api", 0], "services.api[0]"),
        ([0, "a"], "[0].a"),
        (["a.b", "c d", ""], '"a.b"."c d".""'),
        (["[0]", 'q"', "x/y-z_1", "größe"], '"[0]"."q\\"".x/y-z_1.größe'),
        (["a\0\ud800"], "a\ufffd\ufffd"),
        (["k" * 500], "k" * 119 + "…"),
        ([], None),
    ],
)
def test_odd_keys_are_quoted_in_a_key_path(path: list[str | int], expected: str | None) -> None:
    assert key_path([segment(part) for part in path]) == expected


@pytest.mark.parametrize(
    ("name", "source", "problem"),
    [
        ("a.json", '{"a": [1, 2', r"as JSON: '\]' is missing \(line 1\)"),
        ("a.json", '{\n"a": }', r"a value is missing \(line 2\)"),
        ("a.json", '{"a": 1} x', "an invalid value"),
        ("a.json", '{"a": "never closed}\n', "an invalid value"),
        ("a.json", "[1,,2]", "a comma without a value"),
        ("a.json", "{1: 2}", "without a key"),
        ("a.json", "[1 2]", "a comma is missing"),
        ("a.json", "[" * 20_000, "nested objects and lists"),
        ("a.yaml", "a: [1, 2\nb: 3\n", r"as YAML: .* \(line \d\)"),
        ("a.yaml", "a:\n\t- tab\n", r"\(line 2\)"),
        ("a.yaml", "{% if x %}\na: 1\n", "as YAML"),
        ("a.yaml", "a: \x07bell\n", r"U\+0007"),
        ("a.yaml", "[" * 5000, "nested mappings and lists"),
        ("a.yaml", "# nothing but this\n", "no value"),
    ],
)
def test_a_broken_file_is_text_with_a_warning(name: str, source: str, problem: str) -> None:
    found = parsed(source, name)
    (warning,) = found.warnings
    assert warning.message.startswith(f"'{name}' was read as text, not ")
    assert re.search(problem, warning.message)
    assert "\n".join(block.text for block in found.blocks) == source.strip("\n")
    assert all(block.key_path is None for block in found.blocks)
    assert "".join(d.text for d in chunks(source, name)).split() == source.split()


def test_a_file_too_large_to_be_taken_apart_is_text_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((json_file, "a.json"), (yaml_file, "a.yaml")):
        monkeypatch.setattr(module, "MAX_CHARS", 10)
        found = parsed('{"key": "value"}', name)
        assert "more than 10 characters: split the file" in found.warnings[0].message


LENIENT = """\
// Settings.
{
  "a": [1, 2, /* two */
        3,],
  b: 'it''s', // bare
  "c": +.5, "d": NaN
}
""".replace("''", "\\'")


def test_json_beyond_the_standard_is_read_and_reported() -> None:
    assert [d.place.key_path for d in chunks(LENIENT, "a.json5")] == ["a", None]
    assert parsed(LENIENT, "a.json5").warnings == ()
    (warning,) = parsed(LENIENT, "tsconfig.json").warnings
    assert "not strict JSON: a comment (line 1)" in warning.message
    rows = parsed('{"a": 1}\n{"a": 2}\n', "a.json")
    assert rows.meta["documents"] == 2
    assert "several values" in rows.warnings[0].message


def test_aliases_and_tags_are_kept_as_they_are_written() -> None:
    laughs = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert sum(len(d.text) for d in chunks(laughs, "a.yaml")) <= len(laughs)
    source = "base: &b {x: 1}\nuse:\n  <<: *b\n  ? [complex, key]\n  : !Ref value\n  *b : alias\n"
    assert parsed(source, "a.yaml").warnings == ()
    assert [d.place.key_path for d in chunks(source, "a.yaml")] == ["base", "use"]


def test_keys_that_stand_twice_lose_nothing() -> None:
    source = "a:\n  x: 1\na:\n  x: 2\n"
    assert "\n".join(d.text for d in chunks(source, "a.yaml")) == source.strip()


def test_values_below_the_depth_limit_stay_in_one_piece() -> None:
    source = '{"k":' * 200 + '"' + "deep " * 100 + '"' + "}" * 200
    found = chunks(source, "a.json")
    assert all((d.place.key_path or "").count("k") <= 32 for d in found)
    assert "".join(d.text for d in found).replace(" ", "") == source.replace(" ", "")


def test_offsets_are_characters_beyond_the_first_plane() -> None:
    source = "emoji: 😀😀\r\n名前:\r\n  x: 中文\r\n  y: 1\r\nlast: [1,\r\n 2]\r\n"
    assert places(chunks(source, "a.yaml"))[-2:] == [("名前", 2, 4), ("last", 5, 6)]


def test_the_blocks_of_a_large_file_are_bounded() -> None:
    many = json.dumps([{"id": n, "tags": {"a": {}, "b": [n]}} for n in range(30_000)])
    found = parsed(many, "a.json")
    assert len(found.blocks) < 40_000
    assert found.warnings == ()


VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["a", "b.c", "[0]"]), inner, max_size=5
        )
    ),
    max_leaves=40,
)


def check(source: str, name: str, budget: int, tokenizer: Tokenizer) -> list[DraftChunk]:
    """Every filled line is held, places are exact, the budget kept, and twice is the same."""
    text = decode(source.encode()).text
    found = chunks(source, name, budget, tokenizer)
    lines = Lines(text)
    held: set[int] = set()
    last = 0
    for draft in found:
        place = draft.place
        assert draft.text == text[place.offset_start : place.offset_end]
        assert draft.text.strip()
        assert draft.content_hash == content_hash(draft.text)
        assert place.offset_start >= last
        last = place.offset_end
        assert place.line_start == lines.at(place.offset_start)
        assert place.line_end == lines.at(place.offset_end - 1)
        assert draft.token_count <= budget
        assert [draft.token_count] == tokenizer.count([draft.embed_text])
        held.update(range(place.offset_start, place.offset_end))
    assert all(at in held for at, char in enumerate(text) if not char.isspace())
    assert found == chunks(source, name, budget, tokenizer)
    return found


BUDGETS = st.integers(16, 120)
TOKENIZERS = st.sampled_from([WordPieceTokenizer(), CharacterTokenizer()])


@settings(max_examples=150, deadline=None)
@given(VALUES, BUDGETS, TOKENIZERS, st.sampled_from([None, 2]), st.booleans())
def test_json_of_any_shape_is_held_completely(
    value: Any, budget: int, tokenizer: Tokenizer, indent: int | None, ascii_only: bool
) -> None:
    source = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parsed(source, "a.json").warnings == ()
    check(source, "a.json", budget, tokenizer)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), BUDGETS, TOKENIZERS, st.booleans())
def test_yaml_of_any_shape_is_held_completely(
    values: list[Any], budget: int, tokenizer: Tokenizer, flow: bool
) -> None:
    source = yaml.safe_dump_all(
        values, default_flow_style=flow, allow_unicode=True, sort_keys=False
    )
    assert parsed(source, "a.yaml").warnings == ()
    check(source, "a.yaml", budget, tokenizer)


ROWS = st.sampled_from(
    [
        *(
            "a: 1",
            "  b:",
            "    - c",
            "- d",
            "# note",
            "---",
            "...",
            "",
            "k: |",
            "  text",
            "x: &x [1, 2]",
        ),
        *(
            "y: *x",
            "{",
            "}",
            '"q": [',
            "],",
            "1,",
            "// c",
            "\t",
            "? z",
            ": w",
            "!t v",
            '"s"',
            "k: >-",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=20).filter(lambda rows: any(map(str.strip, rows))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["a.yaml", "a.json"]),
    BUDGETS,
)
def test_what_is_half_broken_is_held_completely(
    rows: list[str], end: str, name: str, budget: int
) -> None:
    check(end.join(rows), name, budget, WordPieceTokenizer())
