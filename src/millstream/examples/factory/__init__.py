"""Vibration of machines with planted faults and outages, and the pipeline that finds the machine at fault."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="factory",
    title="machines of a factory: which one is at fault when half a line shakes, and what came too late",
    about="""Four lines of eight machines send their vibration every four seconds. A machine at fault shakes,
    and its neighbours with it; now and then a gateway is offline and sends minutes later what it kept. A
    session opens for a machine with a reading above the limit; from the sessions of a line that belong
    together the machine at fault is found, and its neighbours are not blamed. Readings that come too late are
    a topic of their own.""",
    operators=("session opened by a condition", "window over a window", "late rows", "view"),
    results={
        "faults": ("line", "machine", "peak", "since", "shaken"),
        "readings.late": ("machine", "vibration", "read_at", "late_ms"),
    },
    view="machines_at_fault",
    change={
        "pipeline.py": "the columns of `readings`, then the limits at which a session opens and closes",
        "generate.py": "_read, which makes one reading, and the kinds of incidents in _next",
        "check.py": "what makes a machine that was blamed the right one",
    },
    speed=30.0,
    seconds=500.0,
)
