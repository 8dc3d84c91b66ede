"""The public surfaces differ from those of version 0.1 by what the committed list explains, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import yaml

from scripts.surfaces import CHANGES, Change, Changes, compare, leaves, read_dump, renamed, surface
from tests.support import REPOSITORY

BEFORE = REPOSITORY / "tests" / "data" / "surfaces_0.1.json.gz"


def committed() -> Changes:
    return Changes.model_validate(yaml.safe_load(Path(CHANGES).read_text("utf-8")))


def test_every_difference_from_version_0_1_is_in_the_list() -> None:
    changes = committed()
    lines = compare(renamed(read_dump(BEFORE), changes.schemas), surface(), changes.leaves)
    assert [line for line in lines if line.startswith(("UNEXPLAINED", "UNUSED"))] == []


def test_a_difference_without_an_entry_and_an_entry_without_a_difference_are_printed() -> None:
    before = dict(leaves({"paths": {"/v1/search": {"get": {"summary": "Search."}}}}, "openapi"))
    after = dict(leaves({"paths": {"/v1/search": {"get": {"summary": "Find."}}}}, "openapi"))
    unused = Change(path="cli/.*", kind="reworded", why="No command changed.")
    assert compare(before, after, [unused]) == [
        "UNEXPLAINED\topenapi/paths/~v1~search/get/summary\t'Search.' -> 'Find.'",
        "UNUSED\tcli/.*\tNo command changed.",
    ]


def test_a_renamed_schema_is_compared_under_its_new_name() -> None:
    path = "openapi/components/schemas/Class/properties/n/type"
    before = {path: "integer", "x/$ref": "#/components/schemas/Class"}
    assert renamed(before, {"Class": "SizeClass"}) == {
        path.replace("Class", "SizeClass"): "integer",
        "x/$ref": "#/components/schemas/SizeClass",
    }


def test_the_rule_for_help_texts_does_not_hide_a_new_option_or_command() -> None:
    after = dict(leaves({"--top": {"help": "Maximum.", "default": "10"}}, "cli/find/parameters"))
    after |= dict(leaves({"help": "Find.", "parameters": {}}, "cli/locate"))
    lines = compare({}, after, committed().leaves)
    unexplained = [line.split("\t")[1] for line in lines if line.startswith("UNEXPLAINED")]
    assert unexplained == ["cli/find/parameters/--top/default", "cli/locate/parameters"]
