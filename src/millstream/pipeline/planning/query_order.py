"""Orders queries by their topics: what a query reads is written by queries before it, or by itself."""

from __future__ import annotations

from millstream.pipeline.planning.plan import Plan, Query


def in_order(plan: Plan) -> list[list[Query]]:
    """Groups of queries, in order: each group reads only what earlier groups write, or what it writes
    itself."""
    left, groups = list(plan.queries), []
    while left:
        behind = {query.name: _behind(query, left) for query in left}
        # Take a query that waits for the fewest others. Queries in a cycle wait for each other.
        first = min(left, key=lambda query: len(behind[query.name]))
        circle = [query for query in left if query is first or query.name in behind[first.name]]
        groups.append(circle)
        left = [query for query in left if query not in circle]
    return [[query for group in groups for query in group]] if _all_apart(groups) else groups


def is_circle(group: list[Query]) -> bool:
    """True if queries of the group read what others of the group write, or one reads what it writes
    itself."""
    return any(_reads_of(one, other) for one in group for other in group)


def _all_apart(groups: list[list[Query]]) -> bool:
    """True if no query reads what another writes: then all reach their end in one round."""
    return not is_circle([query for group in groups for query in group])


def _behind(query: Query, queries: list[Query]) -> set[str]:
    """The names of the queries whose results reach this one, directly or through others."""
    found: set[str] = set()
    front = [query]
    while front:
        one = front.pop()
        for other in queries:
            if other.name not in found and _reads_of(one, other):
                found.add(other.name)
                front.append(other)
    return found


def _reads_of(reader: Query, writer: Query) -> bool:
    written = {topic for sink in writer.sinks for topic in sink.topics}
    return any(source.reads(topic) for source in reader.sources for topic in written)
