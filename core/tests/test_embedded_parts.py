"""The text by which a chunk is embedded, as it is stored."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from latent_core.domain.chunk import embedded_parts


@given(st.text(), st.text())
@example("", "a picture")
@example("text", "text")
@example("a", "aa")
def test_both_parts_give_the_text_back_and_only_one_is_stored(head: str, text: str) -> None:
    assert embedded_parts(text, head + text) == (None, head)
    whole, part = embedded_parts(text, head)
    assert (whole is None) is not (part is None)
    assert head == (whole if part is None else part + text)
