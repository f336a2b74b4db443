"""Search on streams: queries are stored, log lines flow past them, and matches are reported.

millstream graph src/millstream/examples/search/pipeline.py
millstream run   src/millstream/examples/search/pipeline.py --broker 127.0.0.1:9092
"""

from datetime import timedelta

from millstream import Processor, Topology

flow = Topology("search", guarantee="exactly-once")

lines = flow.source(
    "lines",
    schema="id string NOT NULL, service string, ms int, text string NOT NULL, logged_at timestamp",
    time="logged_at",
    lateness="10 seconds",
)
queries = flow.table(  # the latest record of an id is the query; a record without a value deletes it
    "queries",
    schema="id string, who string NOT NULL, must array<string>, must_not array<string>, service string,"
    " slower_than int",
    key="id",
    lateness="10 seconds",
)
ASKED = ("who", "must", "must_not", "service", "slower_than")


def words(text: str) -> str:
    return f"array_distinct(regexp_extract_all(lower({text}), '[a-z0-9]+', 0))"


# A query needs at least one word that must occur, because the index finds it by that word.
written = queries.changes.select(
    "id",
    "who",
    words("concat_ws(' ', must)") + " AS must",
    words("concat_ws(' ', must_not)") + " AS must_not",
    "service",
    "slower_than",
    "deleted",
    "log_time",
)
refused = written.channel("refused", where="NOT deleted AND size(must) = 0")
accepted = written.otherwise("accepted")


class Index(Processor):
    """Files a query under one of its words, as in the index of a book. It takes the longest, because long
    words are rare, and remembers it, to remove the query there when the query changes or ends. If a query
    changes several times at one instant, the last change counts, from the next microsecond on."""

    def on_event(self, query, context):
        under, _ = context.state or (None, None)
        context.state = under, None if query.deleted else {name: query[name] for name in ASKED}
        context.timer(after=timedelta(microseconds=1))

    def on_timer(self, timer, context):
        under, query = context.state
        word = max(query["must"], key=len) if query else None
        if under not in (None, word):
            context.emit(word=under, ended=True)
        if query:
            context.emit(query, word=word, ended=False)
        context.state = (word, None) if query else None


indexed = accepted.process(
    key="id",
    with_=Index,
    output="word string, id string, ended boolean, who string, must array<string>, must_not array<string>,"
    " service string, slower_than int, since timestamp",
    time="since",
    name="indexed",
)

# A line goes to each of its words and meets only the queries filed under that word. So the cost of a line
# depends on its words, not on the number of queries.
by_word = lines.select("*", words("text") + " AS words").select("*", "explode(words) AS word")


class Meet(Processor):
    """Matches lines with the queries under one word, in time order: a line meets the queries as they were
    when it was logged."""

    def on_event(self, event, context):
        queries = context.state or {}
        if event.stream == "indexed":
            queries.pop(event.id, None)
            if not event.ended:
                queries[event.id] = event.as_dict()
            context.state = queries or None
            return
        for query in queries.values():
            if (
                set(query["must"]) <= set(event.words)
                and not set(query["must_not"]) & set(event.words)
                and query["service"] in (None, event.service)
                and (query["slower_than"] is None or (event.ms or 0) > query["slower_than"])
            ):
                context.emit(
                    query=query["id"],
                    who=query["who"],
                    line=event.id,
                    service=event.service,
                    ms=event.ms,
                    text=event.text,
                    logged_at=event.time,
                )


matches = flow.process(
    [indexed, by_word],
    key="word",
    with_=Meet,
    output="query string, who string, line string, service string, ms int, text string, logged_at timestamp",
)

matches.to_topic("matches", key="query")
matches.to_view("latest_matches", key="query", order="logged_at")
refused.to_topic("queries.refused", key="id")
queries.rejected.to_topic("queries.rejected")
lines.rejected.to_topic("lines.rejected")
indexed.late.to_topic("queries.late", key="id")
matches.late.to_topic("lines.late", key="word")
