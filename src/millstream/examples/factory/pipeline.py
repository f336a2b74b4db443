"""Factory machines: which one is at fault when half a line shakes, and which readings came too late.

millstream graph src/millstream/examples/factory/pipeline.py
millstream run   src/millstream/examples/factory/pipeline.py --broker 127.0.0.1:9092
"""

from millstream import Topology

flow = Topology("factory", guarantee="exactly-once")

readings = flow.source(
    "readings",
    schema="line string NOT NULL, machine string NOT NULL, vibration double NOT NULL, read_at timestamp",
    time="read_at",
    lateness="30 seconds",
    idle_after="1 minute",  # a line that is switched off does not hold up the others
)

# A machine's session opens with a reading above the limit and includes all readings until a calm one. If the
# sensor falls silent before that, the timeout ends the session. A single high reading is a glitch.
shaking = (
    readings.window(
        by=["line", "machine"], opens="vibration > 7.1", closes="vibration < 4.5", timeout="1 minute"
    )
    .agg(since="min(read_at)", peak="max(vibration)", above="count_if(vibration > 7.1)")
    .where("above >= 3")
)

# Vibration travels along a line: the neighbours of a machine at fault also shake, later and less. Sessions
# that end within half a minute of one another are one incident. The strongest session names the machine.
faults = shaking.window(by="line", gap="30 seconds").agg(
    machine="max_by(machine, peak)",
    peak="max(peak)",
    first="min_by(machine, since)",
    since="min(since)",
    shaken="collect_set(machine)",
)

faults.to_topic("faults", key="machine")
faults.to_view("machines_at_fault", key="machine")

# A gateway that was offline sends its stored readings when it is back. By then the sessions are closed. The
# late readings do not change emitted results, but they are not lost.
readings.late.to_topic("readings.late", key="machine")
readings.rejected.to_topic("readings.rejected")
