"""``python -m examples.tour``: the whole tour."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from examples.tour import crash, ending, exactly_once, later_and_first, orders, spark, traces, workers
from examples.tour.processes import Broker, Processes
from examples.tour.shop import Shop
from examples.tour.stage import NotSo, Stage
from goqueue import Client, GoQueueError

Chapter = Callable[[Shop], None]


def start_spark(shop: Shop) -> None:
    """No chapter: a JVM takes its time, and has it while the others are shown."""
    if not spark.missing():
        shop.spark = spark.Revenue(shop)
        shop.stage.say(f"(Meanwhile Spark is starting, for chapter {SPARK_CHAPTER}.)")


CHAPTERS: list[Chapter] = [
    orders.show,
    workers.show,
    later_and_first.show,
    traces.show,
    exactly_once.show,
    crash.show,
    spark.show,
    ending.show,
]
SPARK_CHAPTER = CHAPTERS.index(spark.show) + 1


def run(chapters: Sequence[Chapter], stage: Stage, processes: Processes) -> int:
    """Show the chapters one after the other; 1 if what one of them shows is not so. Nothing is left behind."""
    began = time.perf_counter()
    stage.title("GoQueue, the tour", "a day in a shop, on a real broker in a temporary folder")
    shop = None
    try:
        broker = Broker(processes)
        shop = Shop(stage, processes, broker, Client(broker.address, max_backoff_ms=200))
        for chapter in chapters:
            chapter(shop)
    except (NotSo, GoQueueError) as error:
        stage.failed(error)
        return 1
    finally:
        if shop is not None:
            shop.close_client()
        processes.clear_up()
    left_out = "" if shop.spark is not None else ", without Spark"
    stage.end(
        f"[bold]{stage.checked} checks in {time.perf_counter() - began:.0f} s{left_out}[/]; nothing is left behind. "
        "Go on: [bold]make run[/] starts a broker for you, README.md leads through the rest."
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="A tour of GoQueue that checks what it shows.")
    parser.add_argument("--no-spark", action="store_true", help="leave out the chapter that needs Spark and a JDK")
    given = parser.parse_args()
    processes = Processes()
    processes.clear_up_on_signals()
    chapters = CHAPTERS if given.no_spark else [orders.show, start_spark, *CHAPTERS[1:]]
    return run(chapters, Stage(), processes)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # At once: a client whose broker has gone would wait for it.
    os._exit(status)
