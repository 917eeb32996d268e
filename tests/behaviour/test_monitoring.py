"""What is in ``deploy``: a real Prometheus scrapes a real broker, evaluates the rules and answers the dashboards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from doubles.prometheus import NotAvailable, Prometheus, Tools, find_tools, running_prometheus

from behaviour.waiting import until
from goqueue.testing import running_broker

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/goqueue-rules.yml"
RULE_TESTS = ROOT / "deploy/prometheus/goqueue-rules-test.yml"
CONFIG = ROOT / "deploy/prometheus/prometheus.yml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
PUBLISHED = 120
PATIENCE_S = 60.0
"""A broker that does not answer within a second, on a busy machine, is away until Prometheus looks again."""
_METRIC = re.compile(r"\b(?:goqueue|process|python)_[a-z_]+\b")
# They have a series for each sink that took or refused something, and so none at first.
_SILENT_AT_FIRST = {"goqueue_trace_dropped_total", "goqueue_trace_spans_exported_total"}
_CHOSEN = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$topic": ".*", "$group": ".*"}


def every_alert() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def panels(file: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


def questions(file: Path) -> list[tuple[str, str]]:
    """All PromQL of a dashboard (of its panels, its marks and its variables) with its legend, variables filled in."""
    page = json.loads(file.read_text())
    found = [(each["expr"], each["legendFormat"]) for panel in panels(file) for each in panel["targets"]]
    found += [(mark["expr"], mark["titleFormat"]) for mark in page["annotations"]["list"]]
    for each in page["templating"]["list"]:
        if each["type"] == "query":
            # label_values(…, label) is Grafana's own; what is PromQL in it is the first argument.
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", each["definition"])
            assert asked, each["definition"]
            found.append((asked[1], f"{{{{{asked[2]}}}}}"))
    return [(filled_in(expression), legend) for expression, legend in found]


def filled_in(expression: str) -> str:
    for name, value in _CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


@pytest.fixture(scope="module")
def tools() -> Tools:
    try:
        return find_tools()
    except NotAvailable as reason:
        pytest.skip(str(reason))


@dataclass(frozen=True)
class Watched:
    prometheus: Prometheus
    shown: frozenset[str]
    """The names of all series of the broker."""
    declared: frozenset[str]
    """The names of all metrics, of those without series, too."""
    full_disk: str
    """Another broker, whose disk has less room than it wants; named as Prometheus names it."""


def keep_busy(url: str) -> None:
    """Something of everything: without it there would be no series for it."""
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:

        def post(path: str, body: dict[str, Any]) -> Any:
            answer = client.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        post("/topics", {"name": "parcels", "num_partitions": 2})
        post("/topics/parcels/messages", {"messages": [{"value": f"{n}"} for n in range(PUBLISHED)]})
        post("/topics/parcels/messages", {"messages": [{"value": "later", "delay": "1h"}]})
        client.get("/topics/parcels/partitions/0/messages")
        member = post("/groups/packers/join", {"client_id": "c", "topics": ["parcels"]})["member_id"]
        polled = client.get("/groups/packers/poll", params={"member_id": member, "max_messages": 10}).json()
        post("/messages/ack", {"receipt_handle": polled["messages"][0]["receipt_handle"]})
        post("/messages/reject", {"receipt_handle": polled["messages"][1]["receipt_handle"], "reason": "no"})
        dead_letters = "/topics/parcels/dead-letters"
        until(lambda: client.get(dead_letters).json().get("messages"))
        post("/topics/parcels/redrive", {})
        client.get("/no/such/path")


@pytest.fixture(scope="module")
def watched(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The configuration and the rules as they are delivered, but for addresses and with a shorter patience."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / RULES.name).write_text(changed(r"\bfor: \d+m", "for: 0s", RULES.read_text()))
    with ExitStack() as running:
        broker = running.enter_context(running_broker())
        full = running.enter_context(running_broker(settings={"storage.min_free_bytes": "16TiB"}))
        targets = f'"127.0.0.1:{broker.http_port}", "127.0.0.1:{full.http_port}"'
        config = changed(r'"127\.0\.0\.1:8080"', targets, CONFIG.read_text())
        config = changed(r"(scrape_interval|scrape_timeout|evaluation_interval): \d+s", r"\1: 1s", config)
        (folder / CONFIG.name).write_text(config)
        prometheus = running.enter_context(running_prometheus(tools, folder / CONFIG.name))
        keep_busy(broker.url)
        text = httpx.get(f"{broker.url}/metrics", timeout=60.0, trust_env=False).text
        shown = re.findall(r"^([a-z_]+)(?=[{ ])", text, re.MULTILINE)
        declared = re.findall(r"^# TYPE ([a-z_]+) ", text, re.MULTILINE)
        # Both brokers are up, and a rate takes two looks at what is there since the last of all this was done.
        redriven = 'goqueue_messages_redriven_total{topic="parcels"}'
        until(lambda: prometheus.value(redriven) == 1, PATIENCE_S)
        seen_at = prometheus.value(f"timestamp({redriven})")
        assert seen_at is not None
        until(lambda: (prometheus.value(f"timestamp({redriven})") or 0.0) > seen_at, PATIENCE_S)
        until(lambda: prometheus.value("count(rate(process_cpu_seconds_total[1m]))") == 2.0, PATIENCE_S)
        yield Watched(prometheus, frozenset(shown), frozenset(declared), f"127.0.0.1:{full.http_port}")


def answered(prometheus: Prometheus, expression: str) -> list[dict[str, Any]]:
    """What it answers as soon as there is something; not there are those that it could not reach a moment ago."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := prometheus.query(expression)):
        assert time.monotonic() < deadline, f"there is no answer to {expression}"
    return found


def changed(pattern: str, replacement: str, text: str) -> str:
    text, count = re.subn(pattern, replacement, text)
    assert count, f"{pattern} does not occur"
    return text


def test_promtool_accepts_the_configuration_and_the_rules(tools: Tools) -> None:
    for command in (("check", "config", CONFIG), ("check", "rules", RULES)):
        ran = tools.check(*command)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_fires_when_it_should_and_only_then(tools: Tools) -> None:
    ran = tools.check("test", "rules", RULE_TESTS)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    asked = [
        case for each in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in each.get("promql_expr_test", ())
    ]
    fires = {alert for case in asked for alert in re.findall(r'alertname="(\w+)"', case["expr"]) if case["exp_samples"]}
    silent = {
        alert for case in asked for alert in re.findall(r'alertname="(\w+)"', case["expr"]) if not case["exp_samples"]
    }
    assert {rule["alert"] for rule in every_alert()} == fires == silent


def test_every_alert_says_what_to_do_and_has_its_section_in_the_documentation() -> None:
    alerts = every_alert()
    assert Counter(rule["alert"] for rule in alerts).most_common(1)[0][1] == 1
    sections = set(re.findall(r"^### (\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE))
    assert sections == {rule["alert"] for rule in alerts}
    for rule in alerts:
        notes = rule["annotations"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
        assert notes["summary"] and notes["description"], rule["alert"]
        assert len(notes["runbook"]) > 40 and "\n" not in notes["runbook"], rule["alert"]
        assert notes["runbook_url"] == f"docs/alerts.md#{rule['alert'].lower()}"


def test_prometheus_scrapes_the_broker_and_sees_what_was_published(watched: Watched) -> None:
    """One was redriven and counts again; one was acked and one rejected."""

    def health() -> list[tuple[str, str]]:
        targets = watched.prometheus.ask("targets")["activeTargets"]
        return [(target["health"], target["lastError"]) for target in targets]

    until(lambda: health() == [("up", "")] * 2, PATIENCE_S)
    for expression, expected in (
        ('sum(goqueue_messages_published_total{topic="parcels"})', PUBLISHED + 1),
        ('goqueue_messages_acked_total{group="packers", topic="parcels"}', 1),
        ('sum(goqueue_group_lag_messages{group="packers"})', PUBLISHED + 1 - 2),
    ):
        (answer,) = answered(watched.prometheus, expression)
        assert float(answer["value"][1]) == expected, expression


def test_every_rule_is_evaluated_without_an_error(watched: Watched) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in watched.prometheus.ask("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()), PATIENCE_S)
    assert {rule["name"]: rule.get("lastError") for rule in rules() if rule["health"] != "ok"} == {}
    assert {rule["name"] for rule in rules() if rule["type"] == "alerting"} == {each["alert"] for each in every_alert()}


def test_an_alert_fires_for_the_broker_that_it_is_about_and_says_so(watched: Watched) -> None:
    def firing() -> dict[str, str]:
        """What is said, by broker."""
        return {
            each["labels"]["instance"]: each["annotations"]["summary"]
            for each in watched.prometheus.ask("alerts")["alerts"]
            if each["labels"]["alertname"] == "GoQueueNotReady" and each["state"] == "firing"
        }

    expected = {watched.full_disk: f"GoQueue at {watched.full_disk} takes no messages"}
    until(lambda: firing() == expected, PATIENCE_S)


@pytest.mark.parametrize("file", [*DASHBOARDS, RULES], ids=lambda file: file.name)
def test_every_metric_that_is_asked_for_is_one_that_a_broker_shows(file: Path, watched: Watched) -> None:
    text = file.read_text() if file == RULES else "\n".join(expression for expression, _ in questions(file))
    used = set(_METRIC.findall(text))
    assert used
    assert used - watched.shown - (_SILENT_AT_FIRST & watched.declared) == set()


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.name)
def test_every_question_of_a_dashboard_is_answered(file: Path, watched: Watched) -> None:
    """Also a filter on a label that does not exist is understood, and answered with nothing."""
    for expression, legend in questions(file):
        assert "$" not in expression, f"nothing fills in a variable of {expression}"
        may_be_empty = any(each in expression for each in ("ALERTS{", "> 0", *_SILENT_AT_FIRST))
        answer = watched.prometheus.query(expression) if may_be_empty else answered(watched.prometheus, expression)
        for series in answer:
            missing = set(re.findall(r"\{\{(\w+)\}\}", legend)) - series["metric"].keys()
            assert not missing, f"the legend of {expression} names {missing}"


def test_dashboards_are_those_that_the_generator_makes() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools/make_dashboards.py", "--check"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr


def test_there_is_a_dashboard_for_each_concern() -> None:
    assert [file.stem for file in DASHBOARDS] == ["consumers", "delivery", "overview", "storage"]
    pages = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len({page["uid"] for page in pages}) == len({page["title"] for page in pages}) == len(pages)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.name)
def test_every_panel_has_a_place_a_unit_and_says_how_to_read_it(file: Path) -> None:
    page = json.loads(file.read_text())
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])
    variables = {each["name"] for each in page["templating"]["list"]}
    assert "datasource" in variables
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, f"{panel['title']} lies upon another"
        taken |= cells
    for panel in panels(file):
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval", "__range"}
            assert used <= variables, f"{panel['title']} asks for {used - variables}"
