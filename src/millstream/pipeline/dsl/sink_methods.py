"""The sinks of a stream as users declare them: ``stream.to_topic(...)`` and ``stream.to_view(...)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.graph import StreamNode
from millstream.pipeline.dsl.sinks import declare_topic_sink, declare_view_sink

if TYPE_CHECKING:
    from millstream.pipeline.dsl.columns import Keys, Sql


class HasSinks:
    """What has rows that can be written."""

    node: StreamNode

    def to_topic(
        self,
        topic: str,
        *,
        key: Sql | None = None,
        value: Keys | None = None,
        time: Sql | None = None,
        delete_when: Sql | None = None,
        format: str = "json",
        schema: str | None = None,
        subject: str | None = None,
        registry: str | None = None,
        message: str | None = None,
    ) -> Self:
        """Write every row as a record. Returns the stream, so that more sinks can follow.

        ``key`` is an SQL expression. ``value``: leave it out for all columns as JSON, or give a list for
        these columns as JSON, or one SQL expression whose text or bytes are the value. ``time`` is a
        timestamp column for the record's timestamp; by default that is the time of writing. A row for which
        ``delete_when`` is true is written without a value: in a compacted topic, and for ``flow.table``,
        that deletes its key. ``format``: ``"avro"``, ``"protobuf"`` or ``"json-schema"`` instead of JSON.
        The schema, given or made from the columns, is registered as ``subject`` (by default
        ``TOPIC-value``) in ``registry`` when the job starts. ``message`` names one of several messages of a
        Protobuf schema; by default the first is written.

            >>> payments.to_topic("paid", key="card", value=["card", "eur"])
            >>> payments.where("eur > 500").to_topic("alerts", key=F.upper("card"), time="at")
        """
        at, texts = caller(), self.node.flow.texts
        declare_topic_sink(
            self.node,
            topic,
            key=texts.condition(key, "the key", at),
            value=texts.keys(value, "the value", at),
            time=texts.condition(time, "the time", at),
            delete_when=texts.condition(delete_when, "delete_when", at),
            format=format,
            schema=schema,
            subject=subject,
            registry=registry,
            message=message,
            at=at,
        )
        return self

    def to_view(
        self,
        name: str,
        *,
        key: Keys,
        delete_when: Sql | None = None,
        order: Sql | None = None,
        changelog: str | None = None,
        index: str | Sequence[str | Sequence[str]] = (),
    ) -> Self:
        """Keep the latest row of every key in a table that ``millstream view query`` reads.

        A row for which ``delete_when`` is true deletes its key from the table. ``order`` is the column that
        decides which row of a key is later; by default the end of the window or the stream's time.
        ``changelog`` is a compacted topic that receives every change of the table: the key as JSON, and the
        new row as JSON, or no value for a deletion. ``index`` are columns, or lists of columns, by which the
        table is searched. Each has an index in the database.

            >>> payments.to_view("last_payments", key="card", order="at", delete_when="eur = 0")
            >>> payments.to_view("by_country", key="card", index=["country", ["country", "eur"]])
        """
        at, texts = caller(), self.node.flow.texts
        declare_view_sink(
            self.node,
            name,
            key=texts.names(key, f"the key of view {name!r}", at),
            delete_when=texts.condition(delete_when, "delete_when", at),
            order=texts.names(order, "order=", at),
            changelog=changelog,
            index=index,
            at=at,
        )
        return self
