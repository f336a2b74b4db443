"""The queries on PyFlink: Flink's SQL, planned and run by its JVM, as the Nexmark benchmark writes them.

Where SQL has a better way than the benchmark's, it is taken: q7 is a top-1 of a window instead of a join.
Answers without a time get one, that of their latest event: their latency goes by it.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import EnvironmentSettings, StreamTableEnvironment
from tasks import SIDE_ROWS, Task, serve

TIME = "TIMESTAMP_LTZ(3)"
TABLES = {
    "person": f"""id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
        `dateTime` {TIME}, extra STRING""",
    "auction": f"""id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
        `dateTime` {TIME}, expires {TIME}, seller BIGINT, category BIGINT, extra STRING""",
    "bid": f"""auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` {TIME},
        extra STRING, p_time AS PROCTIME()""",
}
BID_OUT = f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {TIME}, extra STRING"
BID_ALL = f"""auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` {TIME},
    extra STRING"""
HOPS = "HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
COUNTS = f"""SELECT auction, count(*) AS num, window_start, window_end FROM TABLE({HOPS})
    GROUP BY auction, window_start, window_end"""
WINNING = """
    SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime, B.extra AS bid_extra
    FROM auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires"""


def tumble(table: str, time: str = "`dateTime`") -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))"


# The columns of the answer, those of its key if it changes, and the query.
QUERIES: dict[str, tuple[str, str, str]] = {
    "q0": (BID_OUT, "", "SELECT auction, bidder, price, `dateTime`, extra FROM bid"),
    "q1": (
        BID_OUT.replace("price BIGINT", "price DECIMAL(23, 3)"),
        "",
        "SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid",
    ),
    "q2": (
        f"auction BIGINT, price BIGINT, `dateTime` {TIME}",
        "",
        "SELECT auction, price, `dateTime` FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q3": (
        f"name STRING, city STRING, state STRING, id BIGINT, `dateTime` {TIME}",
        "",
        """SELECT P.name, P.city, P.state, A.id, GREATEST(A.`dateTime`, P.`dateTime`)
           FROM auction AS A JOIN person AS P ON A.seller = P.id
           WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    ),
    "q4": (
        f"category BIGINT, final DOUBLE, `dateTime` {TIME}",
        "category",
        f"""SELECT category, AVG(CAST(final AS DOUBLE)), MAX(latest) FROM (
              SELECT MAX(price) AS final, category, MAX(bid_dateTime) AS latest FROM ({WINNING})
              GROUP BY id, category
            ) GROUP BY category""",
    ),
    "q5": (
        f"auction BIGINT, num BIGINT, endtime {TIME}",
        "",
        f"""SELECT A.auction, A.num, A.window_end FROM ({COUNTS}) A
            JOIN (SELECT max(num) AS maxn, window_start, window_end FROM ({COUNTS})
                  GROUP BY window_start, window_end) M
            ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.num >= M.maxn""",
    ),
    "q7": (
        BID_OUT,
        "",
        f"""SELECT auction, bidder, price, `dateTime`, extra FROM (
              SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
              FROM {tumble("bid")}) WHERE place <= 1""",
    ),
    "q8": (
        f"id BIGINT, name STRING, starttime {TIME}",
        "",
        f"""SELECT P.id, P.name, P.window_start FROM (
              SELECT id, name, window_start, window_end FROM {tumble("person")}
              GROUP BY id, name, window_start, window_end
            ) P JOIN (
              SELECT seller, window_start, window_end FROM {tumble("auction")}
              GROUP BY seller, window_start, window_end
            ) A ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    ),
    "q9": (
        f"""id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
            `dateTime` {TIME}, expires {TIME}, seller BIGINT, category BIGINT, extra STRING, auction BIGINT,
            bidder BIGINT, price BIGINT, bid_dateTime {TIME}, bid_extra STRING""",
        "id",
        f"""SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category,
              extra, auction, bidder, price, bid_dateTime, bid_extra FROM (
              SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime ASC) AS place
              FROM ({WINNING})) WHERE place <= 1""",
    ),
    "q11": (
        f"bidder BIGINT, bid_count BIGINT, starttime {TIME}, endtime {TIME}",
        "",
        """SELECT bidder, count(*), window_start, window_end FROM TABLE(
             SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
           GROUP BY bidder, window_start, window_end""",
    ),
    "q12": (
        f"bidder BIGINT, bid_count BIGINT, starttime {TIME}, endtime {TIME}",
        "",
        f"""SELECT bidder, count(*), window_start, window_end FROM {tumble("bid", "p_time")}
            GROUP BY bidder, window_start, window_end""",
    ),
    # Bids need no state in this join: they are forgotten at once, and the table is not.
    "q13": (
        f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {TIME}, `value` STRING",
        "",
        """SELECT /*+ STATE_TTL('B' = '1s', 'S' = '0s') */
             B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
           FROM bid AS B JOIN side AS S ON MOD(B.auction, 10000) = S.key""",
    ),
    "q17": (
        f"""auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT,
           rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, avg_price BIGINT, sum_price BIGINT,
           `dateTime` {TIME}""",
        "auction, `day`",
        """SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), count(*),
             count(*) FILTER (WHERE price < 10000),
             count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
             count(*) FILTER (WHERE price >= 1000000), min(price), max(price), avg(price), sum(price),
             max(`dateTime`)
           FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')""",
    ),
    "q18": (
        BID_ALL,
        "bidder, auction",
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place
             FROM bid) WHERE place <= 1""",
    ),
    "q19": (
        f"{BID_ALL}, rank_number BIGINT",
        "auction, rank_number",
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra, place FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
           WHERE place <= 10""",
    ),
    "q20": (
        f"""auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_dateTime {TIME},
            bid_extra STRING, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
            auction_dateTime {TIME}, expires {TIME}, seller BIGINT, category BIGINT, auction_extra STRING""",
        "",
        """SELECT auction, bidder, price, channel, url, B.`dateTime`, B.extra, itemName, description,
             initialBid, reserve, A.`dateTime`, expires, seller, category, A.extra
           FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    ),
}


def run(task: Task) -> None:
    tables = environment(task)
    for kind, columns in TABLES.items():
        watermark = (
            f"WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '{task.lateness_ms / 1000:.3f}' SECOND(3)"
        )
        bounded = "'scan.bounded.mode' = 'latest-offset'," if task.bounded else ""
        tables.execute_sql(
            f"""CREATE TABLE {kind} ({columns}, {watermark}) WITH (
                'connector' = 'kafka', 'topic' = '{task.prefix}{kind}',
                'properties.bootstrap.servers' = '{task.address}', 'properties.group.id' = 'flink',
                'scan.startup.mode' = 'earliest-offset', {bounded}
                'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"""
        )
    if task.query == "q13":
        file = Path(task.scratch) / "side.csv"
        file.write_text("".join(f"{number},{number}\n" for number in range(SIDE_ROWS)))
        tables.execute_sql(
            f"""CREATE TABLE side (key BIGINT, `value` STRING) WITH (
                'connector' = 'filesystem', 'path' = 'file://{file}', 'format' = 'csv')"""
        )
    columns, key, select = QUERIES[task.query]
    sink = f"'topic' = '{task.output}', 'properties.bootstrap.servers' = '{task.address}',"
    if key:
        form = "'key.format' = 'json', 'value.format' = 'json',"
        form += " 'value.json.timestamp-format.standard' = 'ISO-8601'"
        kind, columns = "upsert-kafka", f"{columns}, PRIMARY KEY ({key}) NOT ENFORCED"
    else:
        kind, form = "kafka", "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
    tables.execute_sql(f"CREATE TABLE answers ({columns}) WITH ('connector' = '{kind}', {sink} {form})")
    tables.execute_sql(f"INSERT INTO answers {select}").wait()


def environment(task: Task) -> StreamTableEnvironment:
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.set_parallelism(os.cpu_count() or 2)
    streams.add_jars(*(f"file://{jar}" for jar in glob.glob(f"{os.environ['FLINK_JARS']}/*.jar")))
    tables = StreamTableEnvironment.create(streams, EnvironmentSettings.in_streaming_mode())
    settings = {
        "table.local-time-zone": "UTC",
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": f"file://{task.scratch}/checkpoints",
    }
    if task.bounded:  # throughput: aggregate in small batches first, as the benchmark's own settings do
        settings |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "2 s",
            "table.exec.mini-batch.size": "50000",
        }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    return tables


if __name__ == "__main__":
    serve(run)
