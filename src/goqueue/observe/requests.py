"""How many requests there were, how they ended and how long they took."""

from __future__ import annotations

from goqueue.observe.exposition import OTHER, Figures, labelled
from goqueue.observe.histogram import Histogram

TOTAL = "goqueue_requests_total"
SECONDS = "goqueue_request_seconds"
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Endpoint:
    """One thing that can be asked for."""

    __slots__ = ("by_code", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_code: dict[int | str, int] = {}
        self.seconds = Histogram(BOUNDS_S)

    def count(self, code: int | str) -> None:
        self.by_code[code] = self.by_code.get(code, 0) + 1

    def done(self, code: int | str, seconds: float) -> None:
        self.by_code[code] = self.by_code.get(code, 0) + 1
        self.seconds.observe(seconds)


class Requests:
    """Of one api. There are as many endpoints as routes or methods: callers must not name anything else."""

    def __init__(self, api: str) -> None:
        self.api = api
        self._endpoints: dict[object, Endpoint] = {}
        self.other = self.endpoint(OTHER, OTHER)
        """For what is nothing that can be asked for."""

    def find(self, key: object) -> Endpoint | None:
        return self._endpoints.get(key)

    def endpoint(self, key: object, name: str) -> Endpoint:
        """The one that ``find`` finds by this key. Several keys may stand for one name."""
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
