"""The public surfaces as flat lists, and the comparison of two versions.

``dump`` writes the surfaces of this version: the OpenAPI document, the MCP tools, the trees of ``latent --help`` and
the schema of manifests, one entry per leaf. ``compare`` prints every difference between two dumps with the entry of
``scripts/surface_changes.yaml`` that explains it. It fails if a difference has no entry, or an entry no difference.

    python -m scripts.surfaces dump after.json.gz
    python -m scripts.surfaces compare tests/data/surfaces_0.1.json.gz after.json.gz
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import orjson
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field

from latent_cli.main import COMMANDS, module_of
from latent_core.domain.manifest.model import Manifest
from latent_gateway.app import ROUTERS
from latent_gateway.mcp.tools.registry import PAIR, TOOLS
from latent_gateway.mcp.tools.schema import schema_of
from latent_gateway.openapi import GatewayApi

CHANGES: Final = Path(__file__).with_name("surface_changes.yaml")

Surface = dict[str, Any]
"""Path of a leaf, such as ``openapi/paths/~/v1/jobs/get/summary``, to its value."""


class Change(BaseModel):
    """The reason why leaves differ. ``path`` is a regular expression that matches their whole paths."""

    model_config = ConfigDict(extra="forbid")

    path: str
    kind: Literal["renamed", "reworded", "deleted", "added"]
    why: str = Field(min_length=8)


class Changes(BaseModel):
    """The committed list."""

    model_config = ConfigDict(extra="forbid")

    schemas: dict[str, str]
    """Renamed models of the OpenAPI document, old name to new name. Their content is compared."""
    leaves: list[Change]


def openapi() -> Any:
    """The served document, as FastAPI generates it from the routes."""
    app = GatewayApi(title="Latent Containers", version="1")
    for module in ROUTERS:
        app.include_router(module.router)
    return app.openapi()


def mcp_tools() -> Any:
    """The tools for an owner, at all addresses."""
    return [
        {
            "name": tool.name,
            "mcpName": tool.wire_name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": schema_of(tool.arguments),
        }
        for tool in (*TOOLS, *PAIR)
    ]


def command_help() -> Any:
    """Every command with its help, arguments and options."""
    return {
        name: _command(typer.main.get_command(import_module(module_of(name)).app))
        for name in COMMANDS
    } | {"latent": {"commands": COMMANDS}}


def _command(command: Any) -> Any:
    parameters = {
        "/".join(one.opts) or one.name: {
            "also": one.secondary_opts,
            "help": getattr(one, "help", None),
            "default": str(one.default),
            "type": _type_of(one),
            "multiple": one.multiple,
            "required": one.required,
            "environment": getattr(one, "envvar", None),
        }
        for one in command.params
    }
    children = getattr(command, "commands", {})
    return {
        "help": command.help,
        "parameters": parameters,
        "commands": {name: _command(child) for name, child in children.items()},
    }


def _type_of(parameter: Any) -> str:
    """The Python type of a parameter, without its module, which is not public."""
    annotation = getattr(parameter.type_descriptor, "annotation", None)
    return getattr(annotation, "__name__", str(annotation))


def surface() -> Surface:
    """All leaves of all four surfaces."""
    documents = {
        "openapi": openapi(),
        "mcp": mcp_tools(),
        "cli": command_help(),
        "manifest": Manifest.model_json_schema(),
    }
    return dict(leaves(documents, ""))


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf below ``value`` with its path. List items are identified by name or text, else by index."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from leaves(child, f"{path}/{str(key).replace('/', '~')}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            named = child.get("name") if isinstance(child, dict) else child
            yield from leaves(child, f"{path}/{named if isinstance(named, str) else index}")
    else:
        yield path, value


def read_dump(path: Path) -> Surface:
    read: Surface = orjson.loads(gzip.decompress(path.read_bytes()))
    return read


def renamed(before: Surface, schemas: dict[str, str]) -> Surface:
    """``before`` with the new names of schemas, in paths and references."""
    name = re.compile(r"(?<=components/schemas/)\w+(?=/|$)")

    def new_name(text: str) -> str:
        return name.sub(lambda found: schemas.get(found[0], found[0]), text)

    return {
        new_name(path): new_name(value) if isinstance(value, str) else value
        for path, value in before.items()
    }


def compare(before: Surface, after: Surface, changes: list[Change]) -> list[str]:
    """One line per difference, and one per change that explains no difference."""
    lines: list[str] = []
    used: Counter[str] = Counter()
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, "(absent)"), after.get(path, "(absent)")
        if old == new:
            continue
        change = next((one for one in changes if re.fullmatch(one.path, path)), None)
        if change is not None:
            used[change.path] += 1
        lines.append(f"{change.kind if change else 'UNEXPLAINED'}\t{path}\t{old!r} -> {new!r}")
    return lines + [f"UNUSED\t{one.path}\t{one.why}" for one in changes if not used[one.path]]


def main() -> int:
    parser = argparse.ArgumentParser(description="Dump the public surfaces, or compare two dumps.")
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="Write this version's surfaces.")
    dump.add_argument("file", type=Path)
    comparison = commands.add_parser("compare", help="Print every difference of two dumps.")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path, nargs="?", help="Default: this version.")
    arguments = parser.parse_args()
    if arguments.command == "dump":
        packed = orjson.dumps(surface(), option=orjson.OPT_SORT_KEYS)
        arguments.file.write_bytes(gzip.compress(packed, mtime=0))
        return 0
    after = read_dump(arguments.after) if arguments.after else surface()
    changes = Changes.model_validate(yaml.safe_load(CHANGES.read_text("utf-8")))
    before = renamed(read_dump(arguments.before), changes.schemas)
    lines = compare(before, after, changes.leaves)
    for old, new in changes.schemas.items():
        print(f"renamed\tcomponents/schemas/{old}\t{new}")
    for line in lines:
        print(line)
    print(dict(Counter(line.split("\t", 1)[0] for line in lines)))
    return int(any(line.startswith(("UNEXPLAINED", "UNUSED")) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
