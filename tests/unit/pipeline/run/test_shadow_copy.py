"""What a copy of a topology writes, and what it reads."""

from __future__ import annotations

import pytest

from millstream import Topology
from millstream.core.errors import ConfigError
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.shadow_copy import write_elsewhere


def flow(name: str = "fraud") -> Topology:
    made = Topology(name)
    payments = made.source("payments", schema="card string, eur double")
    payments.where("eur > 5").to_topic("large", key="card")
    large = made.source("large", schema="card string, eur double")
    large.to_view("blocked", key="card", changelog="blocked.changes")
    made.source("again", schema="card string", feedback=True).to_topic("again")
    return made


def test_it_writes_under_the_prefix_and_reads_its_own_results_there() -> None:
    copy = flow()
    write_elsewhere(copy, "replay-")
    made = plan(copy)
    assert copy.name == "replay-fraud"
    assert made.writes == ["replay-large", "replay-blocked.changes", "replay-again"]
    assert made.reads == ["payments", "replay-large", "replay-again"]
    assert made.views == ["replay_blocked"]
    assert {made.group(query) for query in made.queries} == {
        "replay-fraud.payments",
        "replay-fraud.replay-large",
        "replay-fraud.replay-again",
    }


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        ("a/b", "can't be a topic's name"),
        ("x" * 245, "can't be a topic's name"),
        ("1-", "can't be a view's name"),
        ("millstream_", "can't be a view's name"),
        ("x" * 60, "can't be a view's name"),
    ],
)
def test_a_prefix_that_makes_no_names_is_refused(prefix: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        write_elsewhere(flow(), prefix)
