"""Chapter: a Spark query that has run beside everything else, and what it found.

A JVM takes its time to start, so the query is started early: it reads the shipments as they come, through the crash,
and writes revenue by city and hour to a topic, exactly once.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from examples.tour.shop import BUSY, CITIES, FIRST_OF_NEXT_DAY, OPENS_AT, Shop, customer_of, make_order
from examples.tour.stage import NotSo, wait_until
from goqueue import from_json, to_json
from goqueue.model.errors import MissingDependency

TITLE = "Spark, over the same topics"
SETTINGS = {
    "topic": "shipments",
    "to": "revenue",
    "by": "$.city",
    "of": "$.cents",
    "time": "$.at",
    "window": "1h",
    # An hour's figures are final, and written, once there is an order that is so much later.
    "late": "12h",
    "trigger": "1 seconds",
}
_PATIENCE_S = 300.0
_CHART_HEIGHT = 6
_EIGHTHS = " ▁▂▃▄▅▆▇█"

Window = tuple[str, datetime]
"""A city, and when the hour begins."""


@dataclass(frozen=True)
class Takings:
    """Of one window, or of several together."""

    orders: int = 0
    cents: int = 0

    def __add__(self, other: Takings) -> Takings:
        return Takings(self.orders + other.orders, self.cents + other.cents)


def missing() -> str:
    """What has to be installed before Spark can run; nothing if all is there."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pandas", "pyarrow", "yaml")):
        return "Spark is not installed: pip install 'goqueue[spark]'"
    from goqueue.spark.startup.spark_session import check_java

    try:
        check_java()
    except MissingDependency as error:
        return str(error)
    return ""


class Revenue:
    """``goqueue pipeline run rollup …``, in the background."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._folder = shop.processes.folder / "spark"
        self._folder.mkdir()
        self._checkpoint = self._folder / "checkpoint"
        java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={self._folder}"
        self._process = shop.processes.start(
            "goqueue",
            *("pipeline", "run", "rollup", "--json", "--master", "local[2]"),
            *(f"--set={name}={value}" for name, value in SETTINGS.items()),
            *("--brokers", shop.broker.address, "--checkpoint", str(self._checkpoint)),
            *("--conf", f"spark.driver.extraJavaOptions={java}", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", "spark.driver.memory=1g", "--conf", f"spark.sql.warehouse.dir={self._folder}"),
            log="spark.log",
            cwd=self._folder,
        )

    def wait_until_it_reads(self) -> None:
        """Until its first micro-batch is done."""
        self._wait_for(lambda: any(self._checkpoint.glob("*/commits/0")), "Spark has read the first shipments")

    def wait_for_windows(self, number: int) -> None:
        """Until it has written so many."""
        self._wait_for(lambda: len(self.written()) >= number, f"Spark has written {number} windows")

    def stop(self) -> dict[str, Any]:
        """Let it finish its micro-batch, and return its summary."""
        [(status, told)] = self._shop.processes.stop(self._process)
        if status != 0:
            raise NotSo(f"the pipeline ended with {status}: {self._errors()}")
        summary: dict[str, Any] = json.loads(told)
        return summary

    def written(self) -> dict[Window, list[Takings]]:
        """What it has written of each window: one figure, if all is well."""
        found: dict[Window, list[Takings]] = defaultdict(list)
        if "revenue" in self._shop.client.list_topics():
            for record in self._shop.client.read("revenue", deserializer=from_json):
                row = record.value
                window = (row["city"], datetime.fromisoformat(row["start"]).astimezone(UTC))
                found[window].append(Takings(row["count"], round(row["cents_sum"])))
        return found

    def _wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        def is_so_or_never() -> bool:
            if self._process.poll() is not None:
                raise NotSo(f"the pipeline ended with {self._process.returncode}: {self._errors()}")
            return is_so()

        wait_until(is_so_or_never, what, _PATIENCE_S)

    def _errors(self) -> str:
        return (self._shop.processes.folder / "spark.log").read_text()[-2_000:]


def show(shop: Shop) -> None:
    if shop.spark is None:
        shop.stage.chapter(TITLE, "Topics are DataFrames, both ways, in batches and as streams, exactly once.")
        shop.stage.say(f"[yellow]Left out.[/] {missing() or 'It was asked for: --no-spark.'}")
        return
    shop.stage.chapter(
        TITLE,
        "Since the first orders came in a query has been reading shipments as they were committed, through the crash, "
        "and it writes the revenue of each city and hour to a topic, exactly once. Topics are DataFrames: no connector "
        "to set up, nothing to export. (Elsewhere: a connector for Kafka, which writes at least once.)",
    )
    settings = [f"--set {shlex.quote(f'{name}={value}')}" for name, value in SETTINGS.items()]
    command = [f"$ goqueue pipeline run rollup {' '.join(settings[:3])} \\", f"    {' '.join(settings[3:])}"]
    shop.stage.lines(command, "bold")
    close_the_day(shop)
    expected = takings_by_window(shop)
    shop.spark.wait_for_windows(len(expected))
    numbers = shop.spark.stop()["numbers"]
    # Read when it has ended: what it might have written twice is there by now.
    written = shop.spark.written()
    draw(shop, {window: sum(all_of_it, Takings()) for window, all_of_it in written.items()})
    check(shop, written, expected)
    shop.stage.so(
        numbers["messages_read"] == len(shop.orders),
        f"Spark has read {numbers['messages_read']:,} shipments, each once, and none that was aborted; the last "
        "one is of the next day, and ends this one's last hour",
        f"Spark's summary is {numbers}",
    )


def close_the_day(shop: Shop) -> None:
    """The first order of the next day tells that the hours of this one are complete."""
    order = make_order(FIRST_OF_NEXT_DAY) | {"at": (OPENS_AT + timedelta(days=1)).isoformat()}
    with shop.client.producer(serializer=to_json) as producer:
        stored = producer.send("orders", order, key=customer_of(FIRST_OF_NEXT_DAY)).result()
    shop.sent(order, (stored.partition, stored.offset))
    shop.shipments.wait_for({FIRST_OF_NEXT_DAY})


def takings_by_window(shop: Shop) -> dict[Window, Takings]:
    """Added up here, from the orders of this day that were sent."""
    found: dict[Window, Takings] = defaultdict(Takings)
    for order in shop.orders.values():
        if order["order"] != FIRST_OF_NEXT_DAY:
            hour = datetime.fromisoformat(order["at"]).replace(minute=0, second=0)
            found[order["city"], hour] += Takings(1, order["cents"])
    return dict(found)


def check(shop: Shop, written: dict[Window, list[Takings]], expected: dict[Window, Takings]) -> None:
    wrong = {window for window in written.keys() | expected.keys() if written.get(window) != [expected.get(window)]}
    total = sum(expected.values(), Takings())
    shop.stage.so(
        not wrong,
        f"{len(expected)} windows are in topic 'revenue', once each: {total.orders:,} orders, "
        f"{euros(total.cents)}, as were sent",
        f"of {len(wrong)} windows the figures are not those of the orders that were sent, or are there twice; one of "
        f"them: {min(wrong, default=None)}",
    )


def draw(shop: Shop, takings: dict[Window, Takings]) -> None:
    total = sum(takings.values(), Takings())
    rows = []
    for city in CITIES:
        of_city = sum((each for (name, _), each in takings.items() if name == city), Takings())
        share = of_city.cents / total.cents
        bar = "█" * round(share * 60)
        rows.append([city, f"{of_city.orders:,}", euros(of_city.cents), f"{share:.1%}", bar])
    rows.append(["all", f"{total.orders:,}", euros(total.cents), "", ""])
    shop.stage.table(["city", "orders", "revenue", "share", ""], rows, ["orders", "revenue", "share"])
    hours = [OPENS_AT + timedelta(hours=number) for number in range(len(BUSY))]
    by_hour = [sum(each.cents for (_, start), each in takings.items() if start == hour) for hour in hours]
    shop.stage.lines(chart([f"{hour:%H}h" for hour in hours], by_hour))


def chart(titles: list[str], values: list[int]) -> list[str]:
    """A column for each value, in eighths of a line."""
    highest = max(values)
    heights = [round(value / highest * _CHART_HEIGHT * 8) for value in values]
    lines = []
    for line in reversed(range(_CHART_HEIGHT)):
        columns = [_EIGHTHS[min(8, max(0, height - 8 * line))] * 5 for height in heights]
        label = euros(highest) if line == _CHART_HEIGHT - 1 else ""
        lines.append(f"{label:>12} │ " + "  ".join(columns).rstrip())
    return [
        *lines,
        f"{'revenue/hour':>12} └─" + "──".join("─" * 5 for _ in titles),
        " " * 15 + "  ".join(f"{each:^5}" for each in titles),
    ]


def euros(cents: int) -> str:
    return f"{cents / 100:,.2f} €"
