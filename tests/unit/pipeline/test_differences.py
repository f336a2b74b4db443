"""What is said when a checkpoint can't be continued because a stateful operator is another now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream import Topology
from millstream.pipeline.differences import differences
from millstream.pipeline.plan import plan, shapes
from millstream.pipeline.stateful import Input, declare
from tests.support.counting_plan import Count

SCHEMA = "card string, shop string, paid_at timestamp"


def shape(*names: str, key: str = "card", seconds: int = 60, **how: Any) -> dict[str, Any]:
    """The shape of a topology with counts of these names, one behind the other in the file."""
    flow = Topology("numbered", **how)
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    for number, name in enumerate(names):
        by = key if number == 0 else "shop"
        declare(
            "count", [Input(payments, (by,), ())], Count(seconds * 1_000_000), at="here", name=name
        ).to_topic(f"counts-{name}")
    found: dict[str, Any] = json.loads(shapes(plan(flow)))
    return found


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (shape("cards", buckets=4), "query 'payments' divided its keys into 8 buckets; now 4"),
        (shape("cards", state="disk"), "query 'payments' kept its state in memory; now disk"),
        (shape("cards", key="shop"), """'cards' had the keys [["card"]]; now [["shop"]]"""),
        (shape("cards", seconds=5), "'cards' had time to live 60000000; now 5000000"),
        (shape("cards", "shops"), "query 'payments': the stateful operator 'shops' is new"),
    ],
)
def test_what_state_depends_on_can_not_change(now: dict[str, Any], says: str) -> None:
    (line,) = differences(shape("cards"), now)
    assert says in line


def test_an_operator_can_not_go_or_change_places() -> None:
    two = shape("cards", "shops")
    (gone,) = differences(two, shape("cards"))
    assert "the stateful operator 'shops' is gone" in gone
    turned = json.loads(json.dumps(two))
    turned["payments"]["operators"].reverse()
    (line,) = differences(two, turned)
    assert "stood in the order cards, shops; now shops, cards" in line


def test_a_name_is_no_reason_to_refuse() -> None:
    assert differences(shape("cards"), shape("numbered_cards")) == []


def test_nor_is_where_a_database_has_moved_to() -> None:
    old, new = (shape("cards", state=f"postgresql://{host}/state") for host in ("one", "two"))
    assert differences(old, new) == []


def test_a_checkpoint_from_before_there_was_such_state_is_read() -> None:
    old = shape("cards")
    for name in ("operators", "buckets", "state"):
        del old["payments"][name]
    (line,) = differences(old, shape("cards"))
    assert "the stateful operator 'cards' is new" in line
    plain = {"payments": {**old["payments"]}}
    assert differences(old, plain) == []
