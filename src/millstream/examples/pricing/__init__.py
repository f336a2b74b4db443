"""Ride prices per area that follow demand and supply, with planted surges and shortages."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="pricing",
    title="ride prices by area, from demand and free drivers in a window that moves with every event",
    about="""In six areas of a city, riders ask for rides, and free drivers report their area every twenty
    seconds. For each event the pipeline counts the requests per free driver over the last two minutes. From
    that it computes a price factor, bounded and smoothed, and publishes the factor when it has changed enough
    to matter. The generator plants surges (a concert is over) and shortages (drivers have left). Prices must
    rise during those, and at no other time.""",
    operators=("union", "window moving with every event", "processor with state", "view"),
    results={"prices": ("since", "area", "factor", "demand", "supply")},
    view="prices",
    change={
        "pipeline.py": "the columns of both sources, then `asked` and `Pricing`, which make a price",
        "generate.py": "what a request and a report look like (_request, _report), then the rates above them",
        "check.py": "SURGE, the factor at which a price counts as raised",
    },
    seconds=600.0,
    speed=30.0,
)
