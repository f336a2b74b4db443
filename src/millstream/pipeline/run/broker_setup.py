"""Checks the broker before a job starts, and creates the topics that the job writes."""

from __future__ import annotations

from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import TransactionClient
from millstream.core.errors import TopologyError
from millstream.core.units import did_you_mean
from millstream.pipeline.planning.plan import Plan
from millstream.pipeline.run.settings import JobSettings

_COMPACTED = {"cleanup.policy": "compact"}


def check_transactions(plan: Plan, settings: JobSettings) -> None:
    """Raises TopologyError if the guarantee needs transactions and the cluster has none."""
    flow, connection = plan.flow, settings.connection
    if flow.guarantee == "exactly-once":
        connection.check()
        cluster = Cluster(connection, patience=connection.patience)
        try:
            if TransactionClient(cluster).version() == 0:
                raise TopologyError(
                    f"guarantee='exactly-once' needs transactions, and the cluster at {connection.address}"
                    " does not support them; use 'at-least-once'",
                    where=flow.at,
                )
        finally:
            cluster.close()


def create_topics(plan: Plan, settings: JobSettings) -> list[str]:
    """Creates the topics that are missing and returns them. Raises TopologyError for a topic that should be
    there."""
    with Admin(settings.connection) as admin:
        there = admin.topics()
        for source in (source for query in plan.queries for source in query.sources):
            topic = source.topic
            made_here = topic in plan.writes or settings.create_topics
            if topic not in there and not made_here:
                near = did_you_mean(topic, there)
                hint = f"{near} Otherwise create" if near else "create"
                raise TopologyError(
                    f"there is no topic {topic!r} at {settings.connection.address}; {hint} it with"
                    f" `millstream topic create {topic}`, or run with --create-topics",
                    where=source.at,
                )
        wanted = dict.fromkeys((*plan.reads, *plan.writes))
        made = dict.fromkeys(plan.changelogs, _COMPACTED)
        return [
            topic
            for topic in wanted
            if topic not in there and admin.create_topic(topic, if_not_exists=True, config=made.get(topic))
        ]
