"""Ride prices per area that follow demand and supply, with planted surges and shortages."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="pricing",
    title="ride prices by area: demand and free drivers over two minutes that move with every event",
    about="""Six areas of a city: riders ask for a ride, free drivers report every twenty seconds where they
    are. For every event the two minutes before it are looked at; how many requests there are for a free
    driver makes a price factor, bounded and smoothed, which is published when it has changed enough to
    matter. Planted are surges, when a concert is over, and shortages, when drivers have gone elsewhere; the
    price has to be up while they last, and nowhere else.""",
    operators=("union", "window moving with every event", "processor with state", "view"),
    results={"prices": ("since", "area", "factor", "demand", "supply")},
    view="prices",
    change={
        "pipeline.py": "the columns of both sources, then `asked` and `Pricing`, which make a price",
        "generate.py": "what a request and a report look like (_request, _report), then the rates above them",
        "check.py": "SURGE, the factor from which on a price counts as raised",
    },
    seconds=600.0,
    speed=30.0,
)
