"""Logs of network hosts with planted attacks, and the pipeline that tells attacks from lookalikes."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="intrusion",
    title="attacks on a network: break-ins, from host to host, until data leaves",
    about="""Hosts of two sites log refused connections, logins and transfers, a few seconds out of order.
    Attackers scan a host, guess passwords until one is right, go on from there to other hosts, and carry off
    data. One pattern finds break-ins, one finds transfers far above a host's habit, and a pattern over the
    matches of both follows an attacker through the network. Much that goes on looks like a part of this
    and is none.""",
    operators=("pattern", "step with a function", "optional step", "pattern over patterns", "union with tag"),
    results={
        "break-ins": ("host", "peer", "guesses", "since", "match_end"),
        "attacks": ("attacker", "entered", "then", "robbed", "sent_to", "bytes"),
    },
    view="attacks",
    change={
        "pipeline.py": "the columns of `network`, then the steps of the three patterns",
        "generate.py": "_Site, which makes what is usual, the attacks and what only looks like one",
        "check.py": "what makes a break-in or an attack that was told of the right one",
    },
    speed=30.0,
    seconds=600.0,
)
