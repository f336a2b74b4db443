"""A short campaign: everything at once for a few seconds, with a few faults. `make campaign` is longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.campaign.all_parts import NAMES
from tests.campaign.conductor import Conductor, Options
from tests.campaign.schedule import FAULTS, Pace, plan_round
from tests.support.small_disk import small_disk

SEED = 157  # its two rounds have all parts and most faults; look for another if parts are added
PACE = Pace(seconds=(8, 9), between_faults=(0.7, 1.6), parts=(8, 8))
ROUNDS = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(small_disk(tmp_path, 1000))
        except pytest.skip.Exception:
            yield None  # the fault of a full disk is left out


def test_the_seed_is_worth_its_time() -> None:
    rounds = [plan_round(SEED, number, NAMES, list(FAULTS), PACE) for number in range(ROUNDS)]
    assert {name for each in rounds for name in each.parts} == set(NAMES)
    assert len({fault.kind for each in rounds for fault in each.faults}) >= 6


@pytest.mark.timeout(600)
def test_every_record_of_a_short_campaign_is_accounted_for(tmp_path: Path, disk: Path | None) -> None:
    options = Options(SEED, rounds=ROUNDS, parts=NAMES, faults=list(FAULTS), pace=PACE, quick=True)
    conductor = Conductor(options, tmp_path, disk, say=print, status=lambda text: None)
    findings = conductor.run()
    conductor.broker.forget_log()
    assert findings == [], "\n".join(str(finding) for finding in findings)
    assert conductor.rounds == ROUNDS
    # A campaign that does nothing finds nothing: every part has counted something.
    assert [name for name, part in conductor.parts.items() if not part.tallies.total()] == []
