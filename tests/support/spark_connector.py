"""A Spark program that uses only Spark's own Kafka connector, as many existing programs do.

It runs as a separate program, because the connector's jars must be there when the JVM starts:
``python -m tests.support.spark_connector ADDRESS JARS SCRATCH``. It prints what it found as one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str, jars: str, scratch: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    spark = (
        builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )
    at = {"kafka.bootstrap.servers": address}
    found: dict[str, Any] = {}

    rows = spark.range(1000).selectExpr("cast(id as string) AS key", "concat('value-', id) AS value")
    rows.write.format("kafka").options(**at).option("topic", "numbers").save()

    everything = (
        spark.read.format("kafka").options(**at, subscribe="numbers", startingOffsets="earliest").load()
    )
    found["batch"] = everything.selectExpr("cast(key as string)", "cast(value as string)").distinct().count()
    found["partitions"] = sorted(row[0] for row in everything.select("partition").distinct().collect())

    # Here the connector asks the broker for the offset of a time.
    middle = everything.selectExpr("min(timestamp)").collect()[0][0]
    by_time = spark.read.format("kafka").options(**at, subscribe="numbers")
    by_time = by_time.option("startingTimestamp", str(int(middle.timestamp() * 1000)))
    found["by_time"] = by_time.load().count()

    stream = spark.readStream.format("kafka").options(
        **at, subscribePattern="num.*", startingOffsets="earliest"
    )
    copy = (
        stream.load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .options(**at, topic="copy", checkpointLocation=f"{scratch}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    copy.awaitTermination()
    copied = spark.read.format("kafka").options(**at, subscribe="copy").load()
    found["stream"] = copied.selectExpr("cast(key as string)").distinct().count()
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
