"""Stored queries and log lines, and a pipeline that reports each line to the users who asked for it."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="search",
    title="search on streams: queries are stored, and log lines flow past them",
    about="""Users store queries: words that a line must contain, words that it must not, a service, a minimum
    duration. Queries are a table. Users add, change and delete them while lines flow by, and each line is
    matched against the queries as they were at its time. Each query is filed under one of its words, as in
    the index of a book, so the pipeline compares a line only with queries that share a word with it.""",
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
        "pipeline.py": "the columns of `lines` and `queries`, then `Meet`, which matches a line with queries",
        "generate.py": "_line and _query, which make one of each, and `meets`, which matches them directly",
        "check.py": "when a match is right",
    },
    speed=5.0,
    seconds=50.0,
)
