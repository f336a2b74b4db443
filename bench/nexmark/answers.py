"""The queries' answers by DuckDB, over the same events: what each must come to once all events are in.

The SQL is that of the Nexmark benchmark, with its windows written out. Where a query's answer changes as
events come (q4, q9, q17, q18, q19), it is the answer at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

SIDE_ROWS = 10_000  # of the table that q13 looks up
Row = tuple[Any, ...]

_WINDOW = "epoch_ms(dateTime) // 10000 * 10000"  # the start of its ten seconds
_WINNING = """
    SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
           row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS place
    FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"""

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, avg(price) AS final FROM ({_WINNING}) WHERE place = 1 GROUP BY category""",
    "q5": """
        WITH hops AS (
            SELECT auction, unnest(range(5)) AS back, epoch_ms(dateTime) // 2000 * 2000 AS latest FROM bid
        ), counts AS (
            SELECT auction, latest - back * 2000 AS starttime, count(*) AS num FROM hops GROUP BY ALL
        )
        SELECT auction, num, make_timestamp_ms(starttime + 10000) AS endtime FROM counts
        QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
    "q7": f"""
        WITH best AS (
            SELECT max(price) AS price, make_timestamp_ms({_WINDOW} + 10000) AS endtime
            FROM bid GROUP BY {_WINDOW}
        )
        SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN best ON B.price = best.price
        WHERE B.dateTime BETWEEN endtime - INTERVAL 10 SECOND AND endtime""",
    "q8": f"""
        WITH P AS (SELECT DISTINCT id, name, {_WINDOW} AS starttime FROM person),
             A AS (SELECT DISTINCT seller, {_WINDOW} AS starttime FROM auction)
        SELECT P.id, P.name, make_timestamp_ms(P.starttime) AS starttime
        FROM P JOIN A ON P.id = A.seller AND P.starttime = A.starttime""",
    "q9": f"""
        SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
               auction, bidder, price, bid_dateTime, bid_extra
        FROM ({_WINNING}) WHERE place = 1""",
    # A bid exactly ten seconds after the last still belongs to the session, as in Spark and Flink.
    "q11": """
        WITH apart AS (
            SELECT bidder, dateTime,
                   coalesce(dateTime - lag(dateTime) OVER each > INTERVAL 10 SECOND, true) AS opens
            FROM bid WINDOW each AS (PARTITION BY bidder ORDER BY dateTime)
        ), numbered AS (
            SELECT bidder, dateTime,
                   count_if(opens) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM apart
        )
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
               max(dateTime) + INTERVAL 10 SECOND AS endtime
        FROM numbered GROUP BY bidder, session""",
    # By the time of processing: nobody knows which bids fall into one window, but each falls into one.
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """
        SELECT auction, bidder, price, dateTime, value FROM bid JOIN side ON auction % 10000 = side.key""",
    "q17": """
        SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*) AS total_bids,
               count_if(price < 10000) AS rank1_bids,
               count_if(price >= 10000 AND price < 1000000) AS rank2_bids,
               count_if(price >= 1000000) AS rank3_bids,
               min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
               sum(price)::BIGINT AS sum_price
        FROM bid GROUP BY ALL""",
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1""",
    "q19": """
        SELECT auction, bidder, price, channel, url, dateTime, extra,
               row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number FROM bid
        QUALIFY rank_number <= 10""",
    "q20": """
        SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime,
               B.extra AS bid_extra, itemName, description, initialBid, reserve,
               A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
}


class Answers:
    """DuckDB with the events in it."""

    def __init__(self, events: Mapping[str, pa.Table]) -> None:
        self._database = duckdb.connect()
        for kind, table in events.items():
            plain = pa.schema(
                [
                    pa.field(f.name, pa.timestamp("ms")) if pa.types.is_timestamp(f.type) else f
                    for f in table.schema
                ]
            )
            self._database.register(kind, table.cast(plain))  # times without a zone: all are UTC
        self._database.execute(
            f"CREATE TABLE side AS SELECT range AS key, range::VARCHAR AS value FROM range({SIDE_ROWS})"
        )

    def of(self, query: str) -> tuple[list[str], list[Row]]:
        """The columns of a query's answer, and its rows, in no order."""
        found = self._database.execute(SQL[query])
        return [column[0] for column in found.description or ()], found.fetchall()

    def close(self) -> None:
        self._database.close()
