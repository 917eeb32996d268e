"""Request metrics: counts by result, and durations."""

from __future__ import annotations

from goqueue.observe.exposition import OTHER, Figures, labelled
from goqueue.observe.histogram import Histogram

TOTAL = "goqueue_requests_total"
SECONDS = "goqueue_request_seconds"
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Endpoint:
    """Metrics of one route or method."""

    __slots__ = ("by_code", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_code: dict[int | str, int] = {}
        self.seconds = Histogram(BOUNDS_S)

    def count(self, code: int | str) -> None:
        self.by_code[code] = self.by_code.get(code, 0) + 1

    def done(self, code: int | str, seconds: float) -> None:
        self.count(code)
        self.seconds.observe(seconds)


class Requests:
    """Metrics of one API. There is one endpoint per route or method: callers must not use other names."""

    def __init__(self, api: str) -> None:
        self.api = api
        self._endpoints: dict[object, Endpoint] = {}
        self.other = self.endpoint(OTHER, OTHER)
        """Requests that match no route or method."""

    def find(self, key: object) -> Endpoint | None:
        return self._endpoints.get(key)

    def endpoint(self, key: object, name: str) -> Endpoint:
        """Create the endpoint that ``find`` returns for ``key``. Several keys may share one name."""
        found = next((each for each in self._endpoints.values() if each.name == name), None) or Endpoint(name)
        self._endpoints[key] = found
        return found

    def add_to(self, figures: Figures) -> None:
        for endpoint in dict.fromkeys(self._endpoints.values()):
            if not endpoint.by_code:
                continue
            labels = labelled(("api", "endpoint"), (self.api, endpoint.name))
            for code, count in list(endpoint.by_code.items()):
                figures.add(TOTAL, count, f'{labels},code="{code}"')
            figures.add_histogram(SECONDS, endpoint.seconds, labels)
