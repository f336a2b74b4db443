"""Stored queries and log lines that flow past them, and the pipeline that tells who asked for which."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="search",
    title="search on streams: queries are stored, lines of logs flow past them",
    about="""People store queries: words that must occur in a line and words that must not, a service, a limit
    of how long something took. Queries are a table; they come, change and go while lines flow by, and every
    line meets the queries as they were at its time. They are filed under one of their words, as in the index
    of a book, so a line meets only those that have a word in common with it, not all there are.""",
    operators=(
        "table",
        "processor of a table's changes",
        "processor of several streams",
        "channel",
        "explode",
    ),
    results={"matches": ("query", "who", "line", "service", "ms", "text")},
    view="latest_matches",
    change={
        "pipeline.py": "the columns of `lines` and `queries`, then `meets`, which says what a query asks for",
        "generate.py": "_line and _query, which make one of each, and `meets`, the plain answer to both",
        "check.py": "what makes a match the right one",
    },
    speed=5.0,
    seconds=50.0,
)
