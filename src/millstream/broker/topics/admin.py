"""Changes to topics: create, delete, grow, configure, or do what the leader's catalogue says.

A topic is served once all of its logs are open, and no longer once its deletion is written to the catalogue.
So the catalogue may be ahead of what clients see, but is never behind.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.topic import Topic
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.logs import TopicLogs
from millstream.broker.topics.opening import as_copy
from millstream.broker.topics.pacing import yield_if_due
from millstream.broker.topics.partition import LocalTopic
from millstream.broker.topics.removal import Removal
from millstream.core.errors import LogError, RequestRefused
from millstream.core.topic_config import TopicConfig

_log = logging.getLogger(__name__)


class TopicPolicies(Protocol):
    """What else applies to a topic's partitions: compression, copies, backpressure, the archive."""

    def configure_topic(self, topic: LocalTopic, config: TopicConfig) -> None:
        """The topic is served, has more partitions, or has other settings."""

    def drop_topic(self, topic: LocalTopic) -> None:
        """The topic is not served any more."""

    def archived_prefix(self, topic: LocalTopic) -> tuple[str, int]:
        """The archive prefix of a topic that is about to be deleted (or ""), and when it may be removed."""


class TopicAdmin:
    """See the module's description. Lives on the server's loop."""

    def __init__(
        self,
        catalogue: Catalogue,
        topics: LocalTopics,
        logs: TopicLogs,
        policies: TopicPolicies,
        leads: Callable[[], bool],
    ) -> None:
        self._catalogue = catalogue
        self._topics = topics
        self._logs = logs
        self._policies = policies
        self._leads = leads
        self.removal = Removal(
            lambda partition: logs.directory_of(partition.log.config), logs.disk, self._logs_removed
        )

    async def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """Create a topic and serve it. Raises RequestRefused, or LogError if the disk fails or is full."""
        self._logs.check_room(self._catalogue.topic_config(overrides))
        await self.removal.done(name)
        topic = await self._catalogue.create_topic(name, partitions, overrides, topic_id)
        hosted = LocalTopic(name, topic.id)
        try:
            await self._logs.open_many(hosted, range(partitions), topic.config)
        except LogError as error:
            await self._take_back(self._catalogue.delete_topic(name), hosted, range(partitions), error)
            raise
        self._topics.add(hosted)
        self._policies.configure_topic(hosted, topic.config)
        return topic

    async def delete(self, name: str) -> None:
        """Stop serving a topic. Its logs are removed in the background, and its archived segments a little
        later. Neither comes back, even after a crash."""
        hosted = self._topics.by_key.get(name)
        archived = ("", 0) if hosted is None else self._policies.archived_prefix(hosted)
        await self._catalogue.delete_topic(name, *archived)
        await self._stop_serving(name)

    async def add_partitions(self, name: str, total: int) -> Topic:
        if (known := self._catalogue.topics.get(name)) is not None:
            self._logs.check_room(known.config)
        topic = await self._catalogue.add_partitions(name, total)
        hosted = self._topics.by_key[name]
        have = len(hosted.partitions)
        more = LocalTopic(name, topic.id)
        try:
            await self._logs.open_many(more, range(have, total), topic.config)
        except LogError as error:
            taking_back = self._catalogue.take_back_partitions(name, have)
            await self._take_back(taking_back, more, range(have, total), error)
            raise
        self._grow(hosted, more, topic.config)
        return topic

    async def alter(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replace all of a topic's own settings."""
        topic = await self._catalogue.set_topic_overrides(name, overrides)
        self._topics.version += 1
        hosted = self._topics.by_key.get(name)
        if hosted is not None:
            self._set_config(hosted, topic.config)
        return topic

    async def serve_catalogue(self) -> None:
        """Serve what is in the leader's catalogue: open new topics and partitions, close deleted topics,
        apply settings."""
        topics = self._catalogue.topics
        for hosted in self._topics:
            known = topics.get(hosted.name)
            if known is None or known.id != hosted.id:
                await self._stop_serving(hosted.name)
                await self.removal.done(hosted.name)
        for topic in list(topics.values()):
            found = self._topics.by_key.get(topic.name)
            if found is None:
                found = LocalTopic(topic.name, topic.id)
                await self._logs.open_many(found, range(topic.partitions), as_copy(topic.config))
                self._topics.add(found)
            elif len(found.partitions) < topic.partitions:
                more = LocalTopic(topic.name, topic.id)
                indexes = range(len(found.partitions), topic.partitions)
                await self._logs.open_many(more, indexes, as_copy(topic.config))
                self._grow(found, more, as_copy(topic.config))
            else:
                self._set_config(found, as_copy(topic.config))

    def _grow(self, hosted: LocalTopic, more: LocalTopic, config: TopicConfig) -> None:
        for partition in more.partitions:
            partition.topic = hosted
        self._topics.version += 1
        hosted.partitions += more.partitions
        hosted.described.clear()
        self._policies.configure_topic(hosted, config)

    def _set_config(self, hosted: LocalTopic, config: TopicConfig) -> None:
        for partition in hosted.partitions:
            self._logs.set_config(partition, config)
        self._policies.configure_topic(hosted, config)

    async def _stop_serving(self, name: str) -> None:
        hosted = self._topics.remove(name)
        if hosted is None:
            return
        gone, hosted.partitions = hosted.partitions, []
        self._policies.drop_topic(hosted)
        self.removal.begin(name, gone)
        started = time.monotonic()
        for partition in gone:
            self._logs.forget(partition)
            partition.close()
            started = await yield_if_due(started)

    async def _logs_removed(self, topics: list[str]) -> None:
        if self._leads():  # else the entry comes from the leader, once the leader's own logs are gone
            await self._catalogue.logs_removed(topics)

    async def _take_back(
        self, change: asyncio.Future[Topic], topic: LocalTopic, indexes: range, error: LogError
    ) -> None:
        """Undo a change to the catalogue whose partitions could not be opened: no client may see them."""
        try:
            taken_back = await change
        except RequestRefused as refused:
            _log.error("%s: %s; its partial creation can't be undone: %s", topic.name, error, refused)
            return
        for partition in topic.partitions:
            self._logs.forget(partition)
        for index in indexes:
            self._logs.directory_of(taken_back.config).delete_log(topic.name, index)
        if topic.name in self._catalogue.deleted_topics:
            await self._catalogue.logs_removed([topic.name])
