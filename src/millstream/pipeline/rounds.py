"""Where a job ends that processes what is there: with results of its own among what it reads.

A query that reads what another query of the same job writes has come to its end before the other has: what is
there of its topic when it begins is not all. So the job is run in rounds, until a round adds nothing to such
topics. What comes from outside is read up to where it ended when the first round began.
"""

from __future__ import annotations

from millstream.client.cluster import LATEST, Cluster
from millstream.client.connect import Connection
from millstream.client.position import TopicPartition
from millstream.pipeline.offsets import Offsets
from millstream.pipeline.plan import Plan


class Rounds:
    """Made once the topics are there, and before the first round."""

    def __init__(self, plan: Plan, connection: Connection) -> None:
        self._plan = plan
        self._connection = connection
        self._own = set(plan.writes).intersection(plan.reads)
        self._from_outside = self._ends(set(plan.reads) - self._own) if self._own else {}
        self._last: Offsets | None = None

    def next(self) -> dict[str, Offsets] | None:
        """Where the next round ends, by query; None if there is nothing more to do. A job that reads nothing
        of its own needs no rounds."""
        if not self._own:
            return None
        own = self._ends(self._own)
        if own == self._last:
            return None
        self._last = own
        found = {}
        for query in self._plan.queries:
            topics = {source.topic for source in query.sources}
            every = {**self._from_outside, **own}
            found[query.name] = {place: offset for place, offset in every.items() if place.topic in topics}
        return found

    def _ends(self, topics: set[str]) -> Offsets:
        cluster = Cluster(self._connection, patience=self._connection.patience)
        try:
            counts = cluster.topics(topics)
            places = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
            return cluster.ends(places, LATEST, read_committed=True) if places else {}
        finally:
            cluster.close()
