"""The skill file is one that agents load, and speaks of the tools that exist."""

from __future__ import annotations

import re

import yaml

from latent_gateway.mcp.tools.registry import TOOLS
from tests.support import REPOSITORY

FOLDERS = [path.parent for path in (REPOSITORY / "docs" / "skills").glob("*/SKILL.md")]


def test_a_skill_has_the_head_that_agents_read() -> None:
    assert FOLDERS
    for folder in FOLDERS:
        _, head, body = (folder / "SKILL.md").read_text("utf-8").split("---\n", 2)
        fields = yaml.safe_load(head)
        assert fields["name"] == folder.name
        assert re.fullmatch("[a-z0-9-]{1,64}", fields["name"])
        assert 100 <= len(fields["description"]) <= 1024
        assert len(body.splitlines()) <= 500


def test_a_skill_names_every_tool_for_reading() -> None:
    needed = {"containers_list", "containers_describe", "containers_search"}
    needed |= {"documents_get", "page_image"}
    assert needed <= {tool.wire_name for tool in TOOLS}
    for folder in FOLDERS:
        assert needed <= set(re.findall("`([a-z_]+)`", (folder / "SKILL.md").read_text("utf-8")))
