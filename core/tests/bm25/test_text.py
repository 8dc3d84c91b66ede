"""What text and data from outside may hold."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter, ValidationError

from latent_core.domain.text import MAX_META_BYTES, Meta, Text, trouble, unsound

TEXT = TypeAdapter[str](Text)
META = TypeAdapter[dict[str, Any]](Meta)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize("value", ["a\x00b", "a\nb", "a\tb", "\x7f", "\ud800"])
def test_control_characters_and_half_characters_are_no_text(value: str) -> None:
    with pytest.raises(ValidationError):
        TEXT.validate_python(value)


@pytest.mark.parametrize("value", ["", "Grüße 🎨", "notes/a b.md", "\u200b"])
def test_everything_else_is_text(value: str) -> None:
    assert TEXT.validate_python(value) == value


def test_layout_is_allowed_where_a_text_has_lines() -> None:
    assert trouble("a\n\tb\r\n", layout=True) is None
    assert trouble("a\x0bb", layout=True) is not None


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"a": "x\x00y"}, "'a' must not contain the control character"),
        ({"a": ["\ud800"]}, "'a.0' must not contain the lone surrogate"),
        ({"\x00": 1}, "a key must not contain"),
        ({"a": {"b": 2**64}}, "'a.b' must not contain an integer"),
        ({"a": -(2**63) - 1}, "an integer of more than 64 bits"),
        ({"a": float("nan")}, "not finite"),
        (nested(65), "nested deeper than 64"),
        (nested(100_000), "nested deeper than 64"),
        ({"a": "x" * MAX_META_BYTES}, "at most 65536 bytes"),
    ],
)
def test_meta_that_cannot_be_stored_is_refused_and_the_place_named(
    meta: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        META.validate_python(meta)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_what_is_sound_survives_the_way_through_json(value: Any) -> None:
    if unsound(value) is None:
        assert orjson.loads(orjson.dumps(value)) == value == json.loads(json.dumps(value))
    assert unsound(nested(64)) is None
