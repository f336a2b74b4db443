"""Compare what was found with what was planted: every break-in, and every attack with its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.examples.example import Results, Score, exact
from millstream.examples.intrusion.generate import KINDS, Attack

_BREAK_INS, _ATTACKS = "break-ins", "attacks"


def check(planted: Sequence[Attack], results: Results) -> list[Score]:
    """A break-in is identified by host and peer. An attack is identified by the attacker, the hosts in
    order and the bytes that left. A mere break-in must not be reported as an attack."""
    broken = {pair for attack in planted for pair in attack.break_ins}
    told = [(row["host"], row["peer"]) for row in results.get(_BREAK_INS, ())]
    scores = [exact(_BREAK_INS, broken, told)]
    attacks = [_attack(row) for row in results.get(_ATTACKS, ())]
    for kind in KINDS[:-1]:
        robbed = {(one.attacker, one.hosts, one.hosts[-1], one.stolen) for one in planted if one.kind == kind}
        scores.append(
            exact(kind, robbed, [one for one in attacks if (len(one[1]) > 1) == (kind == "lateral")])
        )
    return scores


def _attack(row: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str, int]:
    return row["attacker"], (row["entered"], *row["then"]), row["robbed"], row["bytes"]
