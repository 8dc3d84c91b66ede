"""Which files of a dropped folder are sent, and how much script that takes."""

from __future__ import annotations

from typing import Any, Final

from latent_gateway.console.adding.selection import skipped
from latent_gateway.console.frame.view import NAMES, asset

PATHS: Final = (
    "site/index.md",
    "site/.env",
    "site/node_modules/lib/readme.md",
    "site/build/out.md",
    "site/film.mov",
    "site/drafts/one.md",
    "site/drafts/keep.md",
    "site/docs/old/two.md",
    "site/docs/secret.txt",
)


def test_the_rules_of_the_folder_decide_what_is_sent() -> None:
    rules = {
        "site/.gitignore": "secret.txt\n",
        "site/.latentignore": "drafts/*\n!drafts/keep.md\n!build/out.md\n# a comment\n",
        "site/docs/.latentignore": "/old/\n",
    }
    found = {one.path: one.reason for one in skipped(PATHS, rules)}
    assert set(PATHS) - set(found) == {"site/index.md", "site/drafts/keep.md", "site/build/out.md"}
    assert found["site/drafts/one.md"] == "named in .latentignore"
    assert found["site/film.mov"] == "no parser reads QuickTime files"
    without = {one.path for one in skipped(PATHS, {})}
    assert set(PATHS) - without == {
        "site/index.md",
        "site/drafts/one.md",
        "site/drafts/keep.md",
        "site/docs/old/two.md",
        "site/docs/secret.txt",
    }


def test_a_rule_of_an_inner_folder_says_nothing_of_others() -> None:
    rules: dict[str, Any] = {"a/b/.latentignore": "*.md\n"}
    found = {one.path for one in skipped(["a/x.md", "a/b/y.md", "a/b/c/z.md", "a/b/q.txt"], rules)}
    assert found == {"a/b/y.md", "a/b/c/z.md"}


def test_the_script_stays_small() -> None:
    assert "adding.js" in NAMES
    assert len(asset("adding.js").content) <= 14_300
