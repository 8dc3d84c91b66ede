"""``ingest.meta_from_path``: what a pattern takes of a path."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import parse_manifest
from latent_core.domain.manifest.path_meta import PathRule, path_meta, path_of


@pytest.mark.parametrize(
    ("pattern", "path", "meta"),
    [
        ("{city}.md", "berlin.md", {"city": "berlin"}),
        ("{city}.md", "europe/north/oslo.md", {"city": "oslo"}),
        ("/{city}.md", "europe/oslo.md", {}),
        ("{city}.md", "berlin.txt", {}),
        ("{city}.md", ".md", {}),
        ("{year}/{quarter}/*.pdf", "2024/q3/report.pdf", {"year": "2024", "quarter": "q3"}),
        ("{year}/{quarter}/*.pdf", "2024/q3/drafts/report.pdf", {}),
        ("**/{year}/*.pdf", "a/b/2024/x.pdf", {"year": "2024"}),
        ("{lang}/**/{page}.md", "de/a/b/index.md", {"lang": "de", "page": "index"}),
        ("{lang}/**/{page}.md", "de/index.md", {"lang": "de", "page": "index"}),
        ("{lang}/**/{page}.md", "index.md", {}),
        ("{day}_{title}.md", "2024-01-31_a_b.md", {"day": "2024-01-31", "title": "a_b"}),
        ("v{major}.{minor}-*.md", "v1.2-x.md", {"major": "1", "minor": "2"}),
        ("*-{n}.md", "-7.md", {"n": "7"}),
        ("{größe}", "", {}),
    ],
)
def test_a_pattern_takes_what_its_names_stand_for(
    pattern: str, path: str, meta: dict[str, str]
) -> None:
    if "ö" in pattern:
        with pytest.raises(ValueError, match="is not a name"):
            PathRule.of(pattern)
        return
    assert PathRule.of(pattern).meta(path) == meta


@pytest.mark.parametrize(
    ("pattern", "summary"),
    [
        ("*.md", "names no field"),
        ("{a}{b}.md", "put a literal character between two wildcards"),
        ("{a}*.md", "put a literal character between two wildcards"),
        ("{a}/{a}.md", "names the field 'a' twice"),
        ("{a.md", "unbalanced brace"),
        ("{}.md", "'{}' is not a name"),
        ("{a}//b", "an empty part"),
        ("**/{a}/**/b", "more than one **"),
        ("{a}/**", "ends in **"),
        ("x**/{a}", "must be a whole part between slashes"),
        ("{a}\n", "control character"),
        ("{a}" + "x" * 500, "1 to 500 characters"),
        ("/".join(f"{{a{n}}}" for n in range(17)), "names 17 fields; the limit is 16"),
    ],
)
def test_a_pattern_that_is_none_is_named_in_the_manifest(pattern: str, summary: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_manifest({"id": "a", "name": "A", "ingest": {"meta_from_path": pattern}})
    assert "ingest.meta_from_path: " in caught.value.message
    assert summary in caught.value.message


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///root/a/b.md", "a/b.md"),
        ("file:///b.md", "b.md"),
        ("https://example.org/2024/x.html?q=1", "2024/x.html"),
        ("https://example.org", ""),
        ("https://[broken", ""),
        ("urn:isbn:123", "isbn:123"),
    ],
)
def test_a_pattern_sees_the_path_below_the_root(uri: str, path: str) -> None:
    assert path_of(uri) == path


_LITERAL = st.text("ab-.", max_size=3)
_SEGMENT = st.lists(st.sampled_from(["{}", "*", "a", "-", "."]), min_size=1, max_size=5)


@st.composite
def _patterns(draw: Any) -> tuple[str, re.Pattern[str]]:
    """A pattern, and the regular expression that says the same."""
    count, written, meant = 0, [], []
    for tokens in draw(st.lists(_SEGMENT, min_size=1, max_size=3)):
        part, expression, wild = "", "", False
        for token in tokens:
            if token in ("{}", "*"):
                if wild:
                    continue
                name = f"n{count}"
                count += token == "{}"
                part += f"{{{name}}}" if token == "{}" else "*"
                expression += f"(?P<{name}>[^/]+?)" if token == "{}" else "[^/]*?"
            else:
                part += token
                expression += re.escape(token)
            wild = token in ("{}", "*")
        written.append(part)
        meant.append(expression)
    pattern = "/".join(written)
    return "/" + pattern + "{last}.md", re.compile("/".join(meant) + r"(?P<last>[^/]+?)\.md")


@given(_patterns(), st.text("ab-./", max_size=14).map(lambda path: path + ".md"))
def test_a_pattern_means_what_the_lazy_regular_expression_means(
    pattern: tuple[str, re.Pattern[str]], path: str
) -> None:
    written, expression = pattern
    if re.search(r"[*}]\{last\}", written):
        return  # two wildcards side by side are refused
    found = expression.fullmatch(path)
    assert PathRule.of(written).meta(path) == (found.groupdict() if found else {})


def test_a_path_that_almost_fits_in_many_ways_is_judged_at_once() -> None:
    """Each wildcard is tried once: 16 of them on 100,000 characters would take an age otherwise."""
    pattern = "a".join(f"{{n{n}}}" for n in range(16)) + ".md"
    assert path_meta(pattern, "file:///root/" + "a" * 100_000 + ".txt") == {}
    assert len(path_meta(pattern, "file:///root/" + "a" * 100_000 + ".md")) == 16
