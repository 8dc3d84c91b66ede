"""What hides in a text never reaches a model."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import Invalid
from latent_gateway.mcp.cleaning import cleaned, visible
from latent_gateway.mcp.results import ToolResult, answered, failed

TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Passage(ToolResult):
    text: str
    meta: dict[str, Any]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a{TAGS}b", "ab"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x9b2J\x07\x00bell", "2Jbell"),
        ("user\u202etxt.exe\u2066x\u2069", "usertxt.exex"),
        ("one\r\ntwo\rthree\tfour\n", "one\ntwo\nthree\tfour\n"),
        ("naïve שלום עולם 👩\u200d🔬 \u200eok", "naïve שלום עולם 👩\u200d🔬 \u200eok"),
    ],
)
def test_only_what_people_see_remains(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_answers_and_errors_are_cleaned_in_both_forms() -> None:
    result = answered(Passage(text=f"a{TAGS}\x1b", meta={f"k{TAGS}": [f"v\u202e{TAGS}"]}))
    assert result.structured_content == {"text": "a", "meta": {"k": ["v"]}}
    (block,) = result.content
    assert orjson.loads(getattr(block, "text", "")) == result.structured_content
    (block,) = failed(Invalid(f"no\x1b{TAGS}")).content
    assert getattr(block, "text", "") == "INVALID: no"


@given(JSON)
def test_cleaning_twice_changes_nothing_more(value: Any) -> None:
    assert cleaned(cleaned(value)) == cleaned(value)
