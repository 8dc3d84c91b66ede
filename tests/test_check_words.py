"""`scripts/check_words.py`: every rule finds what it is for, and lets plain words through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pytest

from scripts import check_words
from scripts.check_words import ALLOWED, RULES, check, main, parts, report, source_file

PRODUCT: Final = "core/src/latent_core/sample.py"

PLANTED: Final = [
    # rule, path, text, what the finding names
    ("identifier", PRODUCT, "told = 1", "told"),
    ("identifier", PRODUCT, "MOST_BYTES = 1", "MOST_BYTES"),
    ("identifier", PRODUCT, "def is_asked() -> None: ...", "is_asked"),
    ("identifier", PRODUCT, "def f(*, wanted: int) -> None: ...", "wanted"),
    ("identifier", PRODUCT, "class SearchTurns: ...", "SearchTurns"),
    ("identifier", PRODUCT, "self.room = 1", "room"),
    ("identifier", PRODUCT, "f(least=1)", "least"),
    ("identifier", PRODUCT, "import numpy as house", "house"),
    ("identifier", PRODUCT, "from latent_core.jobs import beside", "beside"),
    ("identifier", PRODUCT, "f = lambda visitor: 1", "visitor"),
    ("identifier", PRODUCT, "try: ...\nexcept ValueError as loose: ...", "loose"),
    ("identifier", PRODUCT, "match f():\n    case [*unseen]: ...", "unseen"),
    ("identifier", "tests/comeback.py", "", "module comeback"),
    (
        "identifier",
        "tests/test_a.py",
        "def test_a_turn_is_lent() -> None: ...",
        "test_a_turn_is_lent",
    ),
    ("sql", PRODUCT, 'Q = "SELECT ord FROM chunks"', "ord"),
    ("sql", PRODUCT, 'Q = "\\nDELETE FROM loose_postings"', "loose_postings"),
    ("sql", "migrations/versions/0001.py", 'T = "CREATE TABLE dead (said_at date)"', "said_at"),
    ("log-event", PRODUCT, 'logger.warning("a chore failed")', "a chore failed"),
    ("log-event", PRODUCT, "self._log.error(message)", "message"),
    ("log-event", PRODUCT, 'logger.log(10, f"{x}_failed")', "failed"),
    ("log-event", PRODUCT, 'logger.info("store_away")', "store_away"),
    ("phrase", PRODUCT, 'raise ValueError("the reader is told")', "is told"),
    ("phrase", PRODUCT, 'raise ValueError(f"{n} pages were left out")', "left out"),
    ("phrase", PRODUCT, '"""What is looked\nat here."""', "looked at"),
    ("phrase", "docs/a.md", "Nobody may read it.", "Nobody"),
    ("phrase", "core/.env.example", "# A setting that comes back", "comes back"),
    ("phrase", "mcp-server/src/latent_gateway/console/templates/a.html", "<p>anew</p>", "anew"),
    ("distributive", "docs/a.md", "It keeps one file a kind.", "one file a kind"),
    (
        "distributive",
        "docs/a.md",
        "About 80 distinct terms a passage.",
        "80 distinct terms a passage",
    ),
    ("distributive", PRODUCT, 'HELP = "two rows an item"', "two rows an item"),
    ("class-name", PRODUCT, "class Found: ...", "Found"),
    ("class-name", PRODUCT, "class _Kept: ...", "_Kept"),
    ("class-name", PRODUCT, "class Retrieved: ...", "Retrieved"),
    ("class-name", PRODUCT, "class Publishing: ...", "Publishing"),
    ("line-length", "docs/a.md", "word " * 25, "word"),
    ("line-length", "docs/a.md", f"| `key` | {'word ' * 25}|", "key"),
]

FINE: Final = [
    (PRODUCT, "from collections import Counter\nCounter().most_common(1)"),
    (PRODUCT, "code = ord('a')"),
    (PRODUCT, "record = keyword = household = almost = 1"),
    (PRODUCT, "Q = \"SELECT chunk_no -- most of them\\nFROM chunks WHERE state = 'away'\""),
    (PRODUCT, 'Q = "SELECT least(a, b) FROM chunks"'),
    (PRODUCT, 'logger.info("queue_maintenance_failed", extra={"cause": cause})'),
    (PRODUCT, "math.log(value)"),
    (PRODUCT, "class Unreachable(Exception): ...\nclass Closed(Unreachable): ..."),
    (PRODUCT, "class Embedding: ...\nclass FoundFile: ...\nclass Heading: ..."),
    (PRODUCT, 'raise ValueError("25 texts a second are sent")'),
    ("tests/test_a.py", 'raise ValueError("nobody may read it")'),
    ("docs/a.md", "The first one is a file. Two of them name a container. Take one at a time."),
    ("docs/a.md", f"Use `one row a term`.\n```\nnobody {'word ' * 40}\n```"),
    ("docs/a.md", f"[link]({'x' * 200})"),
    ("docs/a.md", f"| [link]({'x' * 200}) | `{'y' * 200}` | short |"),
    ("a.html", "<p>{# nobody #}{{ nobody }}</p>"),
]


@pytest.mark.parametrize(("rule", "path", "text", "named"), PLANTED)
def test_a_planted_word_is_found_by_its_rule(rule: str, path: str, text: str, named: str) -> None:
    found = [one for one in check([source_file(path, text)]) if one.rule == rule]
    assert found, "the rule finds nothing"
    assert any(named in one.text for one in found), found


@pytest.mark.parametrize(("path", "text"), FINE)
def test_plain_words_are_no_findings(path: str, text: str) -> None:
    assert check([source_file(path, text)]) == []


def test_every_rule_is_shown_to_find_something() -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)


def test_every_banned_part_is_found_in_both_spellings() -> None:
    for word in check_words.IDENTIFIER_PART.pattern.replace("turns?", "turn|turns").split("|"):
        for name in (f"a_{word}", f"{word}_b", f"One{word.title()}Two", word.upper()):
            assert check([source_file(PRODUCT, f"{name} = 1")], ["identifier"]), name


def test_every_banned_phrase_is_found_across_a_line_break() -> None:
    phrases = (
        "is told, are told, told of, nobody, whoever, who gets, with an end, as good as, comes back, goes by, "
        "stands at, looked at, left out, anew, afar, lacks what, is what it was"
    )
    for phrase in phrases.split(", "):
        broken = phrase.replace(" ", "\n")
        (found,) = check([source_file("docs/a.md", f"A text\nthat {broken} here.")], ["phrase"])
        assert found.line == 2, phrase


def test_a_finding_names_path_line_and_rule() -> None:
    (found,) = check([source_file("docs/a.md", "One.\n\nNobody.")])
    assert str(found).startswith("docs/a.md:3: phrase: ")


def test_names_are_split_at_underscores_and_capitals() -> None:
    assert parts("_HTTPServerTurn_of") == ["http", "server", "turn", "of"]


def test_only_the_given_rules_are_applied() -> None:
    file = source_file(PRODUCT, "class Found: ...\ntold = 1")
    assert {one.rule for one in check([file], ["class-name"])} == {"class-name"}


def test_the_report_counts_findings_by_rule() -> None:
    found = check([source_file(PRODUCT, "told = asked = 1")])
    assert report(found, RULES, as_json=False).endswith(
        "2 findings: identifier 2, sql 0, log-event 0, phrase 0, distributive 0, class-name 0, "
        "line-length 0"
    )
    assert json.loads(report(found, RULES, as_json=True))["counts"] == {"identifier": 2}


def test_the_allow_list_is_empty() -> None:
    assert not ALLOWED


@pytest.mark.parametrize(("text", "status"), [("told = 1", 1), ("message = 1", 0)])
def test_findings_decide_the_exit_status(
    text: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files: Sequence[check_words.CheckedFile] = [source_file(PRODUCT, text)]
    monkeypatch.setattr(check_words, "tracked", lambda _root: files)
    assert main(["core/src", "--rule", "identifier"]) == status
    assert main(["workers"]) == 0, "another part of the tree"
    assert "findings: " in capsys.readouterr().out
