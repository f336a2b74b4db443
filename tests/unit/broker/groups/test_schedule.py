"""Which groups are looked at, and when."""

from __future__ import annotations

from millstream.broker.groups.schedule import Schedule


def test_a_group_is_due_once_at_the_earliest_time_it_asked_for() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.wake("a", 5.0)
    schedule.wake("a", 3.0)
    schedule.wake("b", 4.0)
    assert list(schedule.due(2.9)) == []
    assert list(schedule.due(10.0)) == ["a", "b"]
    assert list(schedule.due(10.0)) == []


def test_a_forgotten_group_is_not_due_and_one_with_its_name_has_its_own_time() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.wake("a", 1.0)
    schedule.forget("a")
    schedule.wake("a", 2.0)
    assert list(schedule.due(1.0)) == []
    assert list(schedule.due(2.0)) == ["a"]


def test_a_group_that_is_looked_at_may_ask_for_the_same_time_again() -> None:
    schedule: Schedule[str] = Schedule()
    seen = 0
    schedule.wake("a", 1.0)
    for name in schedule.due(1.0):
        seen += 1
        if seen < 3:
            schedule.wake(name, 1.0)
    assert seen == 3
