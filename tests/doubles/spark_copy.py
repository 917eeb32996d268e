"""A Spark query in a process of its own: it copies the topic ``in`` to the topic ``out`` until it is told to stop.

python spark_copy.py MASTER BROKER FOLDER

The checkpoint is in the folder. When a file ``stop`` is there, the query copies what is left and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from goqueue.spark import session

MESSAGES_PER_BATCH = 60
_LOOK_EVERY_S = 0.1
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(master: str, broker: str, folder: Path) -> None:
    spark = session("copy", master, {**_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse")})
    copied = (
        spark.readStream.format("goqueue")
        .options(brokers=broker, topics="in", maxMessagesPerTrigger=str(MESSAGES_PER_BATCH))
        .load()
        .selectExpr("key", "value", "headers")
    )
    query = (
        copied.writeStream.format("goqueue")
        .options(brokers=broker, topic="out", checkpointLocation=str(folder / "checkpoint"))
        .start()
    )
    while not (folder / "stop").exists():
        # Raises what the query died of.
        query.awaitTermination(_LOOK_EVERY_S)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
