"""Words at one edit, against the distance as its recurrence reads."""

from __future__ import annotations

from hypothesis import given, strategies as st

from latent_core.bm25.spelling import one_edit, plain_words

WORD = st.text("abcxyz", min_size=5, max_size=8)
EDITS = st.lists(
    st.tuples(st.sampled_from(["insert", "delete", "substitute", "transpose"]), st.integers(0, 8), st.sampled_from("abcz")),
    max_size=2,
)  # fmt: skip


def distance(one: str, other: str) -> int:
    """Optimal string alignment: insertions, deletions, substitutions, exchanges of neighbours."""
    rows = [[max(i, j) if not i * j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]  # fmt: skip
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            same = one[i - 1] == other[j - 1]
            rows[i][j] = min(
                rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (not same)
            )
            if i > 1 and j > 1 and (one[i - 2], one[i - 1]) == (other[j - 1], other[j - 2]):
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def edited(word: str, edits: list[tuple[str, int, str]]) -> str:
    for kind, at, letter in edits:
        at = min(at, len(word) - 2)
        match kind:
            case "insert":
                word = word[:at] + letter + word[at:]
            case "delete":
                word = word[:at] + word[at + 1 :]
            case "substitute":
                word = word[:at] + letter + word[at + 1 :]
            case _:
                word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word


@given(word=WORD, edits=EDITS)
def test_a_word_is_at_one_edit_exactly_if_the_distance_is_one(
    word: str, edits: list[tuple[str, int, str]]
) -> None:
    other = edited(word, edits)
    assert (other in one_edit(word)) == (distance(word, other) == 1)


@given(word=WORD)
def test_every_word_at_one_edit_is_listed_once_and_none_at_two(word: str) -> None:
    words = one_edit(word)
    assert len(set(words)) == len(words) <= 53 * len(word) + 25
    assert {distance(word, one) for one in words} == {1}


def test_edits_take_the_letters_of_the_word_s_alphabet() -> None:
    assert "\u043c\u043e\u0440\u043e\u0437" in one_edit("\u043c\u043e\u0440\u043e\u0441")
    assert "\u03b8\u03b1\u03bb\u03b1\u03c3\u03c3\u03b1" in one_edit(
        "\u03b8\u03b1\u03bb\u03b1\u03c3\u03b1"
    )


def test_names_short_words_and_words_with_digits_are_not_corrected() -> None:
    query = "Harbuor lamp getUserNme user_naem v2beta1 GATAX os.pahts on-linne Stra\u00dfen caf\u00e9bar"
    assert plain_words(query) == {
        "harbuor": "Harbuor",
        "strassen": "Stra\u00dfen",
        "cafebar": "caf\u00e9bar",
    }
    assert plain_words("HARBUOR LAMP") == {"harbuor": "HARBUOR"}
    assert plain_words("\u5317\u4eac\u5927\u5b66\u6821\u56ed") == {}
