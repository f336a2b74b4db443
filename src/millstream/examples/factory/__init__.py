"""Machine vibration with planted faults and outages, and a pipeline that finds the machine at fault."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="factory",
    title="factory machines: which one is at fault when half a line shakes, and which readings came too late",
    about="""Four lines of eight machines report their vibration every four seconds. A machine at fault
    shakes, and so do its neighbours. Now and then a gateway goes offline and sends its stored readings
    minutes later. A reading above the limit opens a session for a machine. The pipeline groups a line's
    sessions into incidents, names the machine at fault, and does not blame its neighbours. Readings that come
    too late go to a topic of their own.""",
    operators=("session opened by a condition", "window over a window", "late rows", "view"),
    results={
        "faults": ("line", "machine", "peak", "since", "shaken"),
        "readings.late": ("machine", "vibration", "read_at", "late_ms"),
    },
    view="machines_at_fault",
    change={
        "pipeline.py": "the columns of `readings`, then the limits at which a session opens and closes",
        "generate.py": "_read, which makes one reading, and the kinds of incidents in _next",
        "check.py": "when a blamed machine is the right one",
    },
    speed=30.0,
    seconds=500.0,
)
