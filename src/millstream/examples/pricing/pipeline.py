"""Ride prices by area, from the number of ride requests and of free drivers.

millstream graph src/millstream/examples/pricing/pipeline.py
millstream run   src/millstream/examples/pricing/pipeline.py --broker 127.0.0.1:9092
"""

import math

from millstream import Processor, Topology

flow = Topology("pricing", guarantee="exactly-once")

# Both streams use a time column of the same name, so that their union has one time.
requests = flow.source(
    "rides.requests",
    schema="area string NOT NULL, rider string, at timestamp",
    time="at",
    lateness="5 seconds",
)
reports = flow.source(  # of free drivers, every 20 seconds: six per driver in two minutes
    "rides.drivers",
    schema="area string NOT NULL, driver string, at timestamp",
    time="at",
    lateness="5 seconds",
)

moves = flow.union(requests, reports)  # a request has no driver, a report no rider: those are null

# For each event, the two minutes up to and including it.
asked = (
    moves.window(by="area", size="2 minutes", every="event")
    .agg(demand="count(rider)", supply="count(driver) / 6")
    # Four requests per free driver are normal in two minutes. Adding three drivers and their riders to both
    # sides keeps the ratio from jumping when few events have happened.
    .select("*", "(demand + 12) / (4 * supply + 12) AS pressure")
)


class Pricing(Processor):
    """A factor that follows the pressure: bounded, smoothed, and published only when it has changed."""

    least, most = 1.0, 3.0
    seconds = 20.0  # the time in which the factor goes two thirds of the way
    step = 0.1

    def on_event(self, event, context):
        factor, at, told = context.state or (1.0, event.time, None)
        wanted = min(max(event.pressure, self.least), self.most)
        factor += (wanted - factor) * (1 - math.exp(-(event.time - at).total_seconds() / self.seconds))
        if told is None or abs(factor - told) >= self.step:
            told = round(factor, 1)
            context.emit(factor=told, demand=event.demand, supply=event.supply)
        context.state = factor, event.time, told


prices = asked.process(
    key="area",
    with_=Pricing,
    output="area string, factor double, demand bigint, supply double, since timestamp",
    time="since",
)

prices.to_topic("prices", key="area", time="since")
prices.to_view("prices", key="area", order="since")
