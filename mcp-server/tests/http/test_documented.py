"""What people look up: every key of a manifest, every metric and every line of the log that the documents name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel

from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.manifest.model import SANITIZE_RULES, Manifest
from latent_core.telemetry.metrics import Metrics
from latent_core.telemetry.resources import ResourceCollector
from latent_gateway.middleware.requests import RequestMetrics
from tests.support import REPOSITORY

CONTAINERS = (REPOSITORY / "docs" / "containers.md").read_text("utf-8")
OBSERVABILITY = (REPOSITORY / "docs" / "observability.md").read_text("utf-8")


def keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{above}{name}.")
        else:
            yield above + name


def documented_keys() -> set[str]:
    """First cells of the table; `.k` belongs to what stands before it."""
    found: set[str] = set()
    table = CONTAINERS.split("## Keys of a manifest")[1].split("\n## ")[0]
    for line in table.splitlines():
        names = re.findall(r"`([a-z_.]+)`", line.split("|")[1]) if line.startswith("| `") else []
        for name in names:
            found.add(names[0].rpartition(".")[0] + name if name.startswith(".") else name)
    return found


def test_every_manifest_key_is_documented_and_no_other() -> None:
    assert documented_keys() == set(keys(Manifest))
    assert not [rule for rule in SANITIZE_RULES if rule not in CONTAINERS]


def test_the_golden_queries_that_are_shown_are_golden_queries() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", CONTAINERS, re.DOTALL)
    read: GoldenSet = parse_golden(orjson.loads(shown))
    assert [len(query.expect_docs) for query in read.queries] == [1, 0]


def test_every_metric_is_documented_and_no_other() -> None:
    metrics = Metrics()
    RequestMetrics(metrics)
    metrics.registry.register(ResourceCollector(dict, REPOSITORY))
    ours: list[Metric] = [m for m in metrics.registry.collect() if m.name.startswith("latent_")]
    names = {f"{m.name}_total" if m.type == "counter" else m.name for m in ours}
    assert set(re.findall(r"`(latent_[a-z_]+)`", OBSERVABILITY)) == names


def test_every_documented_log_event_is_written_somewhere() -> None:
    table = OBSERVABILITY.split("| `msg` | meaning |")[1].split("\n## ")[0]
    documented = [
        name
        for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]
    packages = [REPOSITORY / part / "src" for part in ("core", "mcp-server", "workers")]
    sources = "".join(
        file.read_text("utf-8") for folder in packages for file in folder.rglob("*.py")
    )
    assert len(documented) > 10
    assert not [name for name in documented if f'"{name}"' not in sources]
