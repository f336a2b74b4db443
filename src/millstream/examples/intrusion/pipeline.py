"""Attacks on a network: a scan, guessed passwords, moves from host to host, and the theft of data.

millstream graph src/millstream/examples/intrusion/pipeline.py
millstream run   src/millstream/examples/intrusion/pipeline.py --broker 127.0.0.1:9092
"""

from millstream import Topology, step

flow = Topology("intrusion", guarantee="exactly-once")

network = flow.source(
    "network",
    schema="site string NOT NULL, host string NOT NULL, peer string NOT NULL, kind string NOT NULL,"
    " port int, ok boolean, bytes bigint, at timestamp",
    time="at",
    lateness="10 seconds",  # hosts send in batches, so events arrive out of order; patterns sort them
)


# One peer finds many ports of a host closed, fails to log in several times, and then succeeds.
def at_another_port(event, so_far):
    return all(event.port != probe.port for probe in so_far["probe"])


break_ins = network.pattern(
    by=["site", "host", "peer"],
    within="10 minutes",
    steps=step("probe", "kind = 'connect' AND NOT ok", where=at_another_port).times(10)
    >> step("guess", "kind = 'login' AND NOT ok").at_least(4)
    >> step("login", "kind = 'login' AND ok"),
    give={"guesses": "count(guess)", "since": "first(probe.at)"},
)


# A host sends far more than in any of its last three transfers. A host that always sends a lot is normal.
def far_above_habit(event, so_far):
    return event.bytes > 20 * max(transfer.bytes for transfer in so_far["usual"])


transfers = network.where("kind = 'transfer'").pattern(
    by=["site", "host"],
    within="10 minutes",
    steps=step("usual", "bytes > 0").times(3).consecutive()
    >> step("large", where=far_above_habit).directly(),
    give={"peer": "large.peer", "bytes": "large.bytes"},
)


# An attacker enters from outside, may move on from any captured host, and sends data out from one of them.
# This pattern runs over the matches of the patterns above. They are few, so one key can cover a whole site.
# "skip to next" follows each break-in separately, whatever else happens at the time.
def from_a_held_host(event, so_far):
    origin = event.host if event.alert == "transfers" else event.peer
    return any(origin == held.host for held in so_far["entry"] + so_far["hop"])


alerts = flow.union(break_ins, transfers, tag="alert")
attacks = alerts.pattern(
    by="site",
    within="30 minutes",
    after_match="skip to next",
    steps=step("entry", "alert = 'break_ins' AND peer NOT LIKE '10.%'")
    >> step("hop", "alert = 'break_ins'", where=from_a_held_host).one_or_more().optional()
    >> step("theft", "alert = 'transfers' AND peer NOT LIKE '10.%'", where=from_a_held_host),
    give={
        "attacker": "entry.peer",
        "entered": "entry.host",
        "then": "list(hop.host)",
        "robbed": "theft.host",
        "sent_to": "theft.peer",
        "bytes": "theft.bytes",
    },
)

break_ins.to_topic("break-ins", key="host")
attacks.to_topic("attacks", key="attacker")
attacks.to_view("attacks", key="attacker")
network.late.to_topic("network.late", key="host")
network.rejected.to_topic("network.rejected")
