"""Alerts and the dashboard: every rule is tested by promtool, has an entry in the runbook and says what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml

from latent_core.domain.job import Outcome
from tests.support import REPOSITORY

DASHBOARD = REPOSITORY / "docker" / "grafana" / "dashboards" / "latent.json"
ALERTS = REPOSITORY / "docker" / "alerts.yml"
ALERT_TESTS = REPOSITORY / "docker" / "alerts_test.yml"
RUNBOOK = REPOSITORY / "docs" / "runbook.md"
LABEL_OF_TEXT = re.compile(r"\$labels\.(\w+)")


def expressions() -> Iterator[tuple[str, str]]:
    """Where it is, and the query."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield f"panel '{panel['title']}'", target["expr"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]


def alerts() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expected_samples() -> dict[str, list[list[str]]]:
    """The labels of the series that fire, per alert and test of ``alerts_test.yml``."""
    found = defaultdict(list)
    for test in yaml.safe_load(ALERT_TESTS.read_text("utf-8"))["tests"]:
        for one in test["promql_expr_test"]:
            match = re.fullmatch(r'ALERTS\{alertname="(\w+)", alertstate="firing"\}', one["expr"])
            assert match is not None, one
            assert test["name"].startswith(f"{match[1]}: ")
            found[match[1]].append([sample["labels"] for sample in one["exp_samples"]])
    return found


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("check", "config", "--syntax-only", "docker/prometheus.yml")


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", str(ALERT_TESTS))


def test_every_alert_has_a_situation_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    found = expected_samples()
    assert set(found) == {rule["alert"] for rule in alerts()}
    for alert, situations in found.items():
        assert any(situations), f"{alert} never fires"
        assert not all(situations), f"{alert} always fires"


def test_every_alert_says_what_it_means_what_to_do_and_where_to_read_on() -> None:
    fired = expected_samples()
    for rule in alerts():
        texts = rule["annotations"]
        assert set(texts) == {"summary", "description", "runbook"}, rule["alert"]
        assert len(re.findall(r"[^.]{20,}\.", texts["description"])) >= 2, "a cause and a remedy"
        assert texts["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        labels = set(re.findall(r"(\w+)=", str(fired[rule["alert"]])))
        used = {label for text in texts.values() for label in LABEL_OF_TEXT.findall(text)}
        assert used <= labels, f"{rule['alert']} has no label {used - labels}"


def test_every_alert_has_its_entry_in_the_runbook_and_every_entry_of_an_alert_is_one() -> None:
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    camel = {heading for heading in headings if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", heading)}
    assert camel == {rule["alert"] for rule in alerts()}


def test_alerts_and_runbook_know_how_attempts_end_by_the_names_that_are_counted() -> None:
    outcomes = set(get_args(Outcome))
    expressions_used = [
        name
        for _, expression in expressions()
        for names in re.findall(r'outcome=~?"([^"]*)"', expression)
        for name in names.split("|")
    ]
    assert {"done", "failed", "lost"} <= set(expressions_used) <= outcomes
    documented_names = RUNBOOK.read_text("utf-8")
    assert not [name for name in outcomes if f"`{name}`" not in documented_names]
