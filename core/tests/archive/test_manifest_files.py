"""Manifest files: every error names file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.yaml_reader import MAX_MANIFEST_BYTES, load_manifest, read_manifest


def test_five_lines_are_a_manifest(tmp_path: Path) -> None:
    file = tmp_path / "art.yaml"
    file.write_text(
        "id: art\nname: Kunst für alle\ntheme: art\ndims: 384\nembedder: local\n", encoding="utf-8"
    )
    manifest = load_manifest(file)
    assert (manifest.id, manifest.name, manifest.dims) == ("art", "Kunst für alle", 384)


def test_a_date_stays_the_text_that_was_written() -> None:
    source = "id: a\nname: b\nmetadata:\n  custom_schema:\n    since: [2024-01-31]\n"
    assert read_manifest(source).metadata.custom_schema == {"since": ["2024-01-31"]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", "m.yaml: is empty"),
        ("- a\n", "m.yaml: a manifest is a mapping of keys, not list"),
        ("id: a\nname: b\nid: c\n", "m.yaml, line 3: key 'id' is already defined on line 1"),
        (
            "id: a\nname: b\npdf:\n  max_pages: 3\n  max_pages: 4\n",
            "m.yaml, line 5: key 'pdf.max_pages' is already defined on line 4",
        ),
        (
            "id: a\nname: b\nchunkr: {}\n",
            "m.yaml, line 3: unknown key 'chunkr'; did you mean 'chunker'?",
        ),
        (
            "id: a\nname: b\nretrieval:\n  fusion:\n    kk: 1\n",
            "m.yaml, line 5: unknown key 'retrieval.fusion.kk'; did you mean 'k'?",
        ),
        (
            "id: a\nname: b\nmodalities:\n  - text\n  - smell\n",
            "m.yaml, line 5: modalities.1: Input should be",
        ),
        ("id: a\nname: [b\n", "m.yaml, line 3: while parsing a flow sequence"),
        ("id: a\n\tname: b\n", "m.yaml, line 2: while scanning"),
        ("id: a\n---\nid: b\n", "m.yaml, line 2: expected a single document"),
        (
            "id: &x a\nname: *x\n",
            "m.yaml: manifests must not use YAML aliases; write the value on line 1 out in full",
        ),
        ("id: !!python/object:os.system a\n", "m.yaml, line 1: could not determine a constructor"),
        ("id: !!int a\nname: b\n", "m.yaml: is not YAML"),
        ("[" * 50_000, "m.yaml: is nested too deeply"),
        (b"id: \xff\xfe\n", "m.yaml: is not YAML"),
        ("id: a\0\n", "m.yaml: is not YAML"),
    ],
)
def test_what_is_wrong_is_named_by_file_line_and_key(source: str | bytes, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_manifest(source, where="m.yaml")
    assert caught.value.message.startswith(expected)
    assert "\n" not in caught.value.message


def test_a_short_file_that_unfolds_into_gigabytes_is_refused_at_once() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    with pytest.raises(Invalid, match="must not use YAML aliases"):
        read_manifest("id: a\nname: b\nmetadata: {custom_schema: {}}\n" + "\n".join(rows))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nothing\.yaml: cannot be read: No such file"):
        load_manifest(tmp_path / "nothing.yaml")
    with pytest.raises(Invalid, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_bytes(b"#" * (MAX_MANIFEST_BYTES + 1))
    with pytest.raises(Invalid, match="at most"):
        load_manifest(file)
