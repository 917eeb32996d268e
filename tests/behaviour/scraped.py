"""What ``/metrics`` shows, as a monitoring system reads it."""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from goqueue.observe.exposition import OPENMETRICS_TYPE

ACCEPT = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


def scrape(client: httpx.Client) -> Scraped:
    answer = client.get("/metrics", headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == OPENMETRICS_TYPE
    return Scraped(answer.text)


class Scraped:
    """One scrape, parsed strictly."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        self._values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(text):
            self.families[family.name] = family
            for sample in family.samples:
                series = self._values.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in series, sample
                series[labels] = sample.value

    def __call__(self, name: str, **labels: Any) -> float | None:
        """The value of one series; ``None`` if there is none with exactly these labels."""
        wanted = frozenset((label, str(value)) for label, value in labels.items())
        return self._values.get(f"goqueue_{name}", {}).get(wanted)

    def since(self, before: Scraped, name: str, **labels: Any) -> float:
        """By how much a series has grown."""
        return (self(name, **labels) or 0) - (before(name, **labels) or 0)

    def all(self, name: str, label: str, **others: Any) -> dict[str, float]:
        """The values of a family by one of its labels, of those that have these others."""
        found = {}
        for labels, value in self._values.get(f"goqueue_{name}", {}).items():
            given = dict(labels)
            if all(given[other] == str(wanted) for other, wanted in others.items()):
                assert given[label] not in found
                found[given[label]] = value
        return found
