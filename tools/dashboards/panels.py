"""The parts that Grafana dashboards are made of: panels, rows, variables, and how they are laid out.

A query is PromQL with its legend. ``@broker``, ``@topic``, ``@group`` and ``@both`` in its braces stand for what is
chosen at the top of the dashboard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Query = tuple[str, str]
Steps = tuple[tuple[float | None, str], ...]

SCHEMA_VERSION = 39
WIDTH = 24
PER_SECOND = "[$__rate_interval]"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_CHOSEN = {
    "@both": 'instance=~"$instance", group=~"$group", topic=~"$topic"',
    "@group": 'instance=~"$instance", group=~"$group"',
    "@topic": 'instance=~"$instance", topic=~"$topic"',
    "@broker": 'instance=~"$instance"',
}
PLAIN: Steps = ((None, "text"),)
BAD_ABOVE_0: Steps = ((None, "green"), (1, "red"))


@dataclass(frozen=True)
class Panel:
    """``unit`` is Grafana's name of it. ``description`` says how to read the panel, and what is bad."""

    kind: str
    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    steps: Steps = PLAIN
    options: Json = field(default_factory=dict)
    custom: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        thresholds = {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in self.steps]}
        defaults = {"unit": self.unit, "thresholds": thresholds, "custom": self.custom, **self.defaults}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": self.options,
            "targets": [self._target(place, query) for place, query in enumerate(self.queries)],
            "transformations": list(self.transformations),
        }

    def _target(self, place: int, query: Query) -> Json:
        expression, legend = query
        return {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": chosen(expression),
            "legendFormat": legend,
            "editorMode": "code",
            "instant": self.kind in {"stat", "table"},
            "range": self.kind not in {"stat", "table"},
            "format": {"table": "table", "heatmap": "heatmap"}.get(self.kind, "time_series"),
        }


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def chosen(expression: str) -> str:
    for short, full in _CHOSEN.items():
        expression = expression.replace(short, full)
    return expression


def rate(metric: str, labels: str, by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{labels}}}{PER_SECOND}))"


def percentiles(metric: str, labels: str = "@broker") -> tuple[Query, ...]:
    spread = rate(f"{metric}_bucket", labels, "le")
    return tuple((f"histogram_quantile({share}, {spread})", name) for share, name in ((0.5, "p50"), (0.99, "p99")))


def lines(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    width: int = 8,
    stacked: bool = False,
    least: float | None = 0,
) -> Panel:
    """Curves over time."""
    return Panel(
        "timeseries",
        title,
        unit,
        description,
        queries,
        width,
        8,
        options={
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "calcs": ["lastNotNull", "max"],
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        custom={
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        },
        defaults={} if least is None else {"min": least},
    )


def figure(
    title: str,
    unit: str,
    description: str,
    query: str,
    *,
    steps: Steps = PLAIN,
    words: dict[str, str] | None = None,
    decimals: int | None = None,
) -> Panel:
    """One number; ``words`` replace some values."""
    defaults: Json = {} if decimals is None else {"decimals": decimals}
    if words:
        options = {value: {"text": text, "index": place} for place, (value, text) in enumerate(words.items())}
        defaults["mappings"] = [{"type": "value", "options": options}]
    return Panel(
        "stat",
        title,
        unit,
        description,
        ((query, ""),),
        3,
        4,
        steps=steps,
        options={
            "colorMode": "value" if steps == PLAIN else "background",
            "graphMode": "none",
            "justifyMode": "center",
            "textMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        defaults=defaults,
    )


def heat(title: str, description: str, metric: str, labels: str = "@broker", width: int = 12) -> Panel:
    """How the seconds of a histogram are spread, over time."""
    query = f"sum by (le) (increase({metric}_bucket{{{labels}}}[$__rate_interval]))"
    return Panel(
        "heatmap",
        title,
        "s",
        description,
        ((query, "{{le}}"),),
        width,
        8,
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"unit": "s", "axisPlacement": "left", "reverse": False},
        },
    )


def table(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    by: str,
    units: dict[str, str] | None = None,
    width: int = 24,
) -> Panel:
    """A line for each value of the label ``by``, a column for each query; ``units`` are of columns that differ."""
    columns = {f"Value #{chr(ord('A') + place)}": name for place, (_, name) in enumerate(queries)}
    if len(queries) == 1:
        columns["Value"] = queries[0][1]
    return Panel(
        "table",
        title,
        unit,
        description,
        queries,
        width,
        8,
        options={"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
        custom={"align": "auto", "filterable": True},
        overrides=tuple(
            {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": other}]}
            for name, other in (units or {}).items()
        ),
        transformations=(
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": {by: 0}, "renameByName": columns},
            },
        ),
    )


def variable(name: str, query: str) -> Json:
    """A choice at the top, filled from a label's values."""
    return {
        "type": "query",
        "name": name,
        "label": name,
        "datasource": DATASOURCE,
        "query": {"query": chosen(query), "refId": name},
        "definition": chosen(query),
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


BROKERS = variable("instance", "label_values(goqueue_build_info, instance)")
TOPICS = variable("topic", "label_values(goqueue_topic_partitions{@broker}, topic)")
GROUPS = variable("group", "label_values(goqueue_group_members{@broker}, group)")
_SOURCE = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "refresh": 1}


def _mark(name: str, color: str, expression: str, title: str) -> Json:
    """A vertical line where something happened."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": color,
        "expr": chosen(expression),
        "step": "60s",
        "titleFormat": title,
        "textFormat": "{{instance}}",
    }


def dashboard(uid: str, title: str, description: str, variables: list[Json], rows: list[Row]) -> Json:
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["goqueue"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "GoQueue",
                "tags": ["goqueue"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {
            "list": [
                _mark("Alerts", "red", 'ALERTS{alertname=~"GoQueue.*", alertstate="firing", @broker}', "{{alertname}}"),
                _mark("Starts", "blue", "changes(process_start_time_seconds{@broker}[1m]) > 0", "started"),
            ]
        },
        "templating": {"list": [_SOURCE, *variables]},
        "panels": _laid_out(rows),
    }


def _laid_out(rows: list[Row]) -> list[Json]:
    """From left to right; what does not fit begins a new line, and so does a row."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(panel.json(len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed
