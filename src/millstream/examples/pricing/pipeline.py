"""Ride prices by area, from how many riders ask and how many drivers are free.

millstream graph src/millstream/examples/pricing/pipeline.py
millstream run   src/millstream/examples/pricing/pipeline.py --broker 127.0.0.1:9092
"""

import math

from millstream import Processor, Topology

flow = Topology("pricing", guarantee="exactly-once")

# Both go by a column of the same name, so that their union has one time.
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

# The two minutes up to every single event, the event included.
asked = (
    moves.window(by="area", size="2 minutes", every="event")
    .agg(demand="count(rider)", supply="count(driver) / 6")
    # Four requests for each free driver are ordinary in two minutes. Three drivers and their riders are added
    # to both sides: if hardly anything has happened, not much can be said.
    .select("*", "(demand + 12) / (4 * supply + 12) AS pressure")
)


class Pricing(Processor):
    """A factor that follows the pressure: bounded, smoothed, and published only when it has changed."""

    least, most = 1.0, 3.0
    seconds = 20.0  # in which it goes two thirds of the way
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
