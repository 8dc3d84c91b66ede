"""Edits of JSON with comments: one entry changes, and every other byte stays."""

from __future__ import annotations

import json
import random

import pytest

from latent_cli.connect import jsonc, toml_text
from latent_core.domain.errors import Invalid

PATH = ("servers", "latent")
VALUE = {"url": "http://127.0.0.1:7801/mcp", "headers": {"Authorization": "Bearer x"}}

FILES = [
    "",
    "\n",
    "{}",
    "{ }\n",
    '{"servers": {}}',
    '{"a": 1}',
    '{"servers": {"b": {"url": "http://x//y"}}, "z": [1, 2]}\n',
    '{\n  "a": 1,\n  "servers": {\n    "b": {}\n  }\n}\n',
    '{\n\t"servers": {\n\t\t"b": {},\n\t},\n}\n',
    '{\r\n    "servers": {\r\n        "b": {} // the first\r\n    }\r\n}\r\n',
    '// settings\n{\n  /* none */\n  "servers": {\n    "b": {} // last, with a } and "quotes\n    // more\n  },\n}\n',
    "// only a comment\n",
    '{\n  "servers": {\n    // none yet\n  }\n}',
    '\ufeff{\n  "a": "\\u00e4\\"//"\n}\n',
]


@pytest.mark.parametrize("text", FILES)
def test_an_entry_is_added_and_taken_out_and_nothing_else_changes(text: str) -> None:
    before = jsonc.parse(text)
    created = sum(jsonc.value_at(text, PATH[:depth]) is None for depth in (1,))
    edited = jsonc.with_entry(text, PATH, VALUE)
    expected = {**(before or {}), "servers": {**(before or {}).get("servers", {}), "latent": VALUE}}
    assert jsonc.parse(edited) == expected
    assert list(jsonc.parse(edited)) == list(expected)
    again = jsonc.without_entry(edited, PATH, created=created)
    assert jsonc.parse(again) == (before if before is not None else {})
    if before is not None:
        assert again == text.replace("{ }", "{}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n  "servers": {\n    "latent": {},\n    "b": 1\n  }\n}',
            '{\n  "servers": {\n    "b": 1\n  }\n}',
        ),
        (
            '{\n  "servers": {\n    "b": 1, // one\n    // ours\n    "latent": {} // new\n  }\n}',
            '{\n  "servers": {\n    "b": 1 // one\n    // ours\n    // new\n  }\n}',
        ),
        ('{"servers": {"latent": {}, "b": 1}}', '{"servers": {"b": 1}}'),
        ('{"servers": { // c\n"latent": {}, "b": 1}}', '{"servers": { // c\n"b": 1}}'),
        ('{"servers": {"b": 1, "latent": 2, "latent": 3}}', '{"servers": {"b": 1}}'),
    ],
)
def test_comments_and_order_around_a_removed_entry_stay(before: str, after: str) -> None:
    assert jsonc.without_entry(before, PATH) == after


def test_an_existing_entry_is_replaced_in_its_place() -> None:
    text = '{\n  "servers": {\n    "latent": {"url": "old"}, // ours\n    "b": 1\n  }\n}\n'
    edited = jsonc.with_entry(text, PATH, {"url": "new"})
    assert edited == text.replace('{"url": "old"}', '{\n      "url": "new"\n    }')


def test_an_item_is_added_to_an_array_and_taken_out() -> None:
    text = '{\n  "hooks": {\n    "SessionStart": [\n      {"hooks": []}\n    ]\n  }\n}\n'
    edited = jsonc.with_item(text, ("hooks", "SessionStart"), {"a": 1})
    assert jsonc.value_at(edited, ("hooks", "SessionStart")) == [{"hooks": []}, {"a": 1}]
    assert jsonc.without_item(edited, ("hooks", "SessionStart"), {"a": 1}) == text
    new = jsonc.with_item("{}\n", ("hooks", "SessionStart"), {"a": 1})
    assert jsonc.without_item(new, ("hooks", "SessionStart"), {"a": 1}, created=2) == "{}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "a": 1,\n "b" 2}', "line 3 is not valid JSON"),
        ('{"a": nope}', "line 1 is not valid JSON"),
        ('{"a": 1', "line 1 is not valid JSON"),
        ('{"a": 1} x', "line 1 is not valid JSON"),
        ('{"a": "b\n"}', "line 1 is not valid JSON"),
        ("[" * 300, "nested deeper than 200 levels"),
        ("[]", "it is not an object"),
        ('{"servers": []}', "'servers' is not an object"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        jsonc.with_entry(text, PATH, VALUE)


def test_plain_json_in_any_layout_reads_as_before_plus_the_entry() -> None:
    chance = random.Random(7)

    def value(depth: int) -> object:
        kind = chance.randrange(6 if depth < 4 else 4)
        if kind == 4:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        if kind == 5:
            return {f"k{n}": value(depth + 1) for n in range(chance.randrange(4))}
        return (None, True, -1.5e3, 'a"//{')[kind]

    for _ in range(300):
        data = {f"k{n}": value(0) for n in range(chance.randrange(4))}
        text = json.dumps(data, indent=chance.choice([None, 0, 1, 2, "\t"]))
        path = (chance.choice(["k9", "servers"]), "latent")
        edited = jsonc.with_entry(text, path, VALUE)
        assert jsonc.parse(edited) == {**data, path[0]: {"latent": VALUE}}
        assert json.loads(edited) == jsonc.parse(edited)
        assert json.loads(jsonc.without_entry(edited, path, created=1)) == data


TOML = """# mine
model = "o"

[mcp_servers.other]  # theirs
command = "x"
"""
TOML_PATH = ("mcp_servers", "latent")


@pytest.mark.parametrize("text", ["", "a = 1", TOML, TOML.replace("\n", "\r\n"), TOML + "# end\n"])
def test_a_table_is_added_to_toml_and_taken_out(text: str) -> None:
    value = {"url": "u", "http_headers": {"Authorization": "Bearer x"}}
    edited = toml_text.with_entry(text, TOML_PATH, value)
    assert toml_text.value_at(edited, TOML_PATH) == value
    assert edited.startswith(text)
    assert toml_text.without_entry(edited, TOML_PATH).rstrip("\r\n") == text.rstrip("\r\n")


def test_what_follows_a_table_stays_with_its_comment() -> None:
    edited = toml_text.with_entry(TOML, TOML_PATH, {"url": "u"})
    edited += "[mcp_servers.latent.env]\nA = '1'\n\n# next\n[last]\nb = [\n  1,\n]\n"
    assert toml_text.without_entry(edited, TOML_PATH) == TOML + "\n# next\n[last]\nb = [\n  1,\n]\n"


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { other = { url = 'x' } }\n",
        "a = '''\n[mcp_servers.latent]\n'''\n[mcp_servers]\nlatent = { url = 'x' }\n",
        "a = \n",
    ],
)
def test_toml_that_is_not_valid_or_written_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        toml_text.with_entry(toml_text.without_entry(text, TOML_PATH), TOML_PATH, {"url": "u"})
