"""Whether a broker leads, and where it sends clients."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.standby.role import Role
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.partition import LocalTopic
from millstream.core.errors import RequestRefused

OTHER = (1, "other.example", 9093)


def a_role(own_id: int = 7) -> tuple[Role, Catalogue, LocalTopics, list[bool]]:
    """A role that listens, what it works on, and a list of its changes: True when it stops leading."""
    catalogue, topics = Catalogue(), LocalTopics()
    changes: list[bool] = []
    role = Role(7, own_id, catalogue, topics, lambda: changes.append(role.is_follower))
    role.listens_at("here.example", 9092, leads=True)
    return role, catalogue, topics, changes


def told(role: Role) -> tuple[int, str, int]:
    return role.leader_id, role.host, role.port


def test_a_broker_that_leads_sends_clients_to_itself() -> None:
    role, *_ = a_role()
    assert told(role) == (7, "here.example", 9092)
    assert not role.is_follower
    assert role.refusal is None


def test_a_follower_takes_no_changes_and_sends_clients_to_its_leader() -> None:
    role, catalogue, _, changes = a_role()
    role.stop_leading("another one leads")
    role.lead_clients_to(OTHER, [(7, "here.example", 9092)])
    assert (role.is_follower, changes) == (True, [True])
    assert told(role) == OTHER
    assert (role.own_id, role.own_host, role.own_port) == (7, "here.example", 9092)

    async def create() -> None:
        await catalogue.create_topic("t", 1)

    with pytest.raises(RequestRefused, match="another one leads"):
        asyncio.run(create())


def test_descriptions_that_name_another_leader_are_forgotten() -> None:
    role, _, topics, _ = a_role()
    topic = LocalTopic("t", uuid.uuid4())
    topics.add(topic)
    topic.described[(12, 0)] = b"led by 7"
    role.lead_clients_to((7, "here.example", 9094))
    assert topic.described
    role.lead_clients_to(OTHER)
    assert not topic.described


def test_a_fence_is_undone_by_an_empty_address() -> None:
    role, catalogue, _, changes = a_role()

    async def steps() -> None:
        await role.fence("other.example:9093", 1)
        assert (role.fenced_by, told(role)) == ("other.example:9093", OTHER)
        await role.fence("", -1)
        await catalogue.create_topic("t", 1)

    asyncio.run(steps())
    assert changes == [True, False]
    assert (role.fenced_by, role.is_follower, role.refusal) == ("", False, None)
    assert told(role) == (7, "here.example", 9092)


def test_a_leader_may_give_a_standby_another_id_which_is_to_be_remembered() -> None:
    role, *_ = a_role()
    assert role.take_id(7) is None
    assert role.take_id(8) == (7, 8)
    assert role.own_id == 8
    role, *_ = a_role(own_id=8)
    assert role.take_id(8) == (7, 8)
