"""Groups of the consumer protocol under churn, from seeds: the real machine, clients that do as real ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.groups.consumer.group import ConsumerState
from tests.support.group_world import Simulation


@pytest.mark.parametrize("classic", [False, True], ids=["new members", "members of both protocols"])
@pytest.mark.parametrize("alike", [True, False], ids=["one subscription", "many subscriptions"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_partition_has_two_owners_and_in_the_end_everything_is_read(
    alike: bool, classic: bool, seed: int
) -> None:
    simulation = Simulation(seed, alike=alike, classic=classic)
    simulation.run(120)  # checks at every step that nothing is owned twice and no epoch goes back
    simulation.settle()

    world, clients = simulation.world, simulation.clients
    assert world.group.state in (ConsumerState.STABLE, ConsumerState.EMPTY)
    assert set(world.group.members) == {client.name for client in clients}
    subscribed = {partition for client in clients for partition in world.partitions(*client.topics)}
    assert sorted(p for client in clients for p in client.owned) == sorted(subscribed)
    for client in clients:
        assert client.owned <= world.partitions(*client.topics)
    if alike and clients:
        shares = [len(client.owned) for client in clients]
        assert max(shares) - min(shares) <= 1
