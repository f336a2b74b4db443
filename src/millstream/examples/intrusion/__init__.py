"""Logs of network hosts with planted attacks, and a pipeline that tells attacks from lookalikes."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="intrusion",
    title="attacks on a network, from the first break-in over further hosts to the theft of data",
    about="""Hosts at two sites log refused connections, logins and transfers, a few seconds out of order.
    Attackers scan a host, guess passwords until one works, move on from there to other hosts, and steal
    data. One pattern finds break-ins, and one finds transfers far above a host's habit. A third pattern, over
    the matches of both, follows an attacker through the network. Much of the ordinary traffic looks like part
    of an attack.""",
    operators=("pattern", "step with a function", "optional step", "pattern over patterns", "union with tag"),
    results={
        "break-ins": ("host", "peer", "guesses", "since", "match_end"),
        "attacks": ("attacker", "entered", "then", "robbed", "sent_to", "bytes"),
    },
    view="attacks",
    change={
        "pipeline.py": "the columns of `network`, then the steps of the three patterns",
        "generate.py": "_Site, which makes ordinary traffic, attacks, and events that only look like attacks",
        "check.py": "when a reported break-in or attack is right",
    },
    speed=30.0,
    seconds=600.0,
)
