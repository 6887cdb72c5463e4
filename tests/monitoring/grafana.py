"""A dashboard as the JSON that Grafana's provisioning reads. Pure.

Leaves which panels there are to `boards`.

Format: schema version 39. The variables `datasource`, `cluster` and `instance` choose the series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SCHEMA_VERSION: Final = 39
WIDTH: Final = 24
PANELS_PER_ROW: Final = 3
PANEL_HEIGHT: Final = 8
STAT: Final = "stat"
SERIES: Final = "timeseries"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing."""

    title: str
    description: str
    unit: str
    """Grafana's name of the unit: `short`, `bytes`, `Bps`, `s`, `percentunit`, `ops`."""
    queries: tuple[tuple[str, str], ...]
    """Each query in PromQL, with the legend of its series."""
    kind: str = SERIES


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    panels: Sequence[Panel]


def dashboard(board: Board) -> Json:
    """Return the JSON of a dashboard."""
    return {
        "id": None,
        "uid": board.uid,
        "title": board.title,
        "tags": ["quire"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _variables() -> list[Json]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    chosen: Json = {
        "type": "query",
        "datasource": source,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
    }
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {**chosen, "name": "cluster", "query": "label_values(process_start_time_seconds, cluster)"},
        {
            **chosen,
            "name": "instance",
            "query": 'label_values(process_start_time_seconds{cluster=~"$cluster"}, instance)',
        },
    ]


def _panel(number: int, panel: Panel) -> Json:
    width = WIDTH // PANELS_PER_ROW
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "h": PANEL_HEIGHT,
            "w": width,
            "x": number % PANELS_PER_ROW * width,
            "y": number // PANELS_PER_ROW * PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
