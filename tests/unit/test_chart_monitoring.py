"""Dashboards and alerts ask for nothing that nobody tells."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from outbox_operator.metrics import Metrics as OperatorMetrics
from outbox_relay.metrics import Metrics as RelayMetrics
from outbox_worker.metrics import Metrics as WorkerMetrics
from tests.chart.helm import CHART

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
GROUPS = yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]

FROM_PROMETHEUS = {"namespace", "pod", "container", "job"}
"""The labels that Prometheus gives to all that it reads from pods."""
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
_NAME = re.compile(r"\b(?:outbox|process)_[a-z_]+\b")
_SELECTED = re.compile(r"\b((?:outbox|process)_[a-z_]+)\{([^}]*)\}")
_GROUPED = re.compile(r"by \(([^)]*)\) \(")
_USED = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")


def _metrics() -> dict[str, set[str]]:
    """The labels of each series that the programs expose, by its name."""
    RelayMetrics("dashboards")
    WorkerMetrics("dashboards", "dashboards")
    registry = CollectorRegistry()
    OperatorMetrics(registry)
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    found = {each.name: set(each.labels) for each in samples if each.name.startswith("process_")}
    for collector in {*registry._collector_to_names, *REGISTRY._collector_to_names}:
        if isinstance(collector, MetricWrapperBase):
            kind = str(collector._type)
            labels = {*collector._labelnames, *(["le"] if kind == "histogram" else [])}
            found |= {f"{collector._name}{suffix}": labels for suffix in SUFFIXES[kind]}
    return found


KNOWN = _metrics()


def _expressions(dashboard: Path) -> Iterator[tuple[str, str]]:
    """Each expression with the legend of its line."""
    page = json.loads(dashboard.read_text())
    for panel in page["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in page["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


def _check(expression: str, texts: str) -> None:
    """That its metrics and their labels are told, and what `texts` shows of its result is in that."""
    names = set(_NAME.findall(expression))
    assert names, f"{expression} asks for nothing"
    assert names <= KNOWN.keys(), f"nobody tells {names - KNOWN.keys()}"
    labels = set.intersection(*(KNOWN[name] for name in names)) | FROM_PROMETHEUS
    for name, matchers in _SELECTED.findall(expression):
        selected = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", matchers))
        assert selected <= KNOWN[name] | FROM_PROMETHEUS, f"{name} has no labels {selected}"
    left = labels
    for grouped in _GROUPED.findall(expression):
        by = {label.strip() for label in grouped.split(",")}
        assert by <= labels, f"{expression}: {by - labels} is no label"
        left = by
    assert set(_USED.findall(texts)) <= left, f"{texts}: {expression} leaves {left}"
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "{}", "[]"))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_what_is_told(dashboard: Path) -> None:
    expressions = list(_expressions(dashboard))
    assert len(expressions) > 5
    for expression, legend in expressions:
        _check(expression, legend)


def test_the_dashboards_show_every_metric_of_ours() -> None:
    shown = {
        name
        for path in DASHBOARDS
        for expression, _ in _expressions(path)
        for name in _NAME.findall(expression)
    }
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in KNOWN if name.startswith("outbox_")}
    missing = families - {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    assert not missing, f"no dashboard shows {missing}"


def test_dashboards_have_addresses_of_their_own_and_panels_that_do_not_overlap() -> None:
    pages = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({page["uid"] for page in pages}) == len(pages) == 3
    for page in pages:
        taken = [
            (x, y)
            for panel in page["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(taken) == len(set(taken))
        assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_asks_for_what_is_told_and_says_what_to_do(alert: dict[str, Any]) -> None:
    annotations = alert["annotations"]
    _check(alert["expr"], " ".join(annotations.values()))
    assert annotations.keys() == {"summary", "description", "runbook"}
    assert len(annotations["runbook"]) > 40
    assert alert["labels"]["severity"] in ("warning", "critical")


def test_alerts_have_names_of_their_own() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names)) > 8
