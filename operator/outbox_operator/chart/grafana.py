"""Dashboards as Grafana reads them."""

from dataclasses import dataclass
from typing import Any, Literal

_ROW_WIDTH = 24
_HEIGHT = 8
_SCHEMA_VERSION = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression."""

    expression: str
    """PromQL."""
    legend: str
    """What a line is called, with {{label}} for its labels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph."""

    title: str
    """What it shows."""
    meaning: str
    """What to make of it."""
    queries: tuple[Query, ...]
    """Its lines."""
    unit: str = "short"
    """Grafana's name of the unit."""
    kind: Literal["timeseries", "stat"] = "timeseries"
    """A graph, or a number."""
    width: int = 8
    """Of 24."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What can be chosen at the top."""

    name: str
    """The variable."""
    metric: str
    """The metric whose label it is."""
    label: str
    """The label."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels."""

    uid: str
    """What its address ends in."""
    title: str
    """Its title."""
    choices: tuple[Choice, ...]
    """What can be chosen."""
    panels: tuple[Panel, ...]
    """What is on it, in rows."""

    def manifest(self) -> dict[str, Any]:
        """Grafana's JSON."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["outbox"],
            "schemaVersion": _SCHEMA_VERSION,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": [_datasource(), *map(_variable, self.choices)]},
            "panels": self._placed(),
        }

    def _placed(self) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = []
        x = y = 0
        for number, panel in enumerate(self.panels, start=1):
            if x + panel.width > _ROW_WIDTH:
                x, y = 0, y + _HEIGHT
            position = {"x": x, "y": y, "w": panel.width, "h": _HEIGHT}
            placed.append({"id": number, **_panel(panel), "gridPos": position})
            x += panel.width
        return placed


def _panel(panel: Panel) -> dict[str, Any]:
    shown = {
        "timeseries": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}},
    }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": shown[panel.kind],
        "targets": [
            {"refId": chr(ord("A") + number), "expr": query.expression, "legendFormat": query.legend}
            for number, query in enumerate(panel.queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(choice: Choice) -> dict[str, Any]:
    query = f"label_values({choice.metric}, {choice.label})"
    return {
        "name": choice.name,
        "label": choice.name.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": choice.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
