"""Numbers as pages write them."""

from __future__ import annotations

import asyncio

from markupsafe import Markup

from millstream.console import units
from millstream.console.live import updates as live


def test_numbers_have_units_and_what_is_not_known_is_a_dash() -> None:
    assert units.number(12345.4) == "12,345"
    assert [units.short(n) for n in (0, 7, 999, 999.6, 12_345, 5e15)] == [
        "0", "7", "999", "1 k", "12.3 k", "5e+03 T",
    ]  # fmt: skip
    assert units.rate(1500) == "1.5 k/s"
    assert units.rate(0.4451) == "0.45/s", "a third digit of so little says nothing"
    assert units.code("`a<b>` is not `c") == "<code>a&lt;b&gt;</code> is not `c"
    assert units.size(1500) == "1.5 kB"
    assert units.byte_rate(0) == "0 B/s"
    assert units.duration(11_520) == "3 h 12 min"
    assert units.plural(1, "query", "queries") == "1 query"
    assert units.plural(2000, "query", "queries") == "2,000 queries"
    for filter_ in (
        units.number,
        units.short,
        units.rate,
        units.size,
        units.duration,
        units.span,
        units.time,
    ):
        assert "not known" in filter_(None)


def test_times_carry_their_moment_for_the_script_and_are_readable_without() -> None:
    assert units.time(1_700_000_000_123) == (
        '<time datetime="2023-11-14T22:13:20.123Z">2023-11-14 22:13:20 UTC</time>'
    )
    assert units.time(2**62) == f"{2**62:,.0f} ms", "a producer may write anything"


def test_an_event_of_several_lines() -> None:
    assert (
        live.encoded("table", "<p>\n\nä</p>") == "event: table\ndata: <p>\ndata: \ndata: ä</p>\n\n".encode()
    )


def test_a_stream_sends_what_changed_and_ends_with_the_sampler() -> None:
    class Sampler:
        closed = False
        problem = None
        snapshot = 0

        async def next(self) -> None:
            self.snapshot += 1
            self.closed = self.snapshot == 3

    async def collect() -> list[bytes]:
        def fragments(at: int) -> dict[str, str]:
            return {"same": "x", "other": str(at)}

        return [
            event async for event in live.stream(Sampler(), lambda p: "up", fragments, live.StreamTurns(1))
        ]  # type: ignore[arg-type]

    events = asyncio.run(collect())
    assert [event.split(b"\n")[0] for event in events[1:]] == [
        b"event: status", b"event: same", b"event: other", b"event: other", b"event: other",
    ]  # fmt: skip


def test_json_is_coloured_and_escaped() -> None:
    text = '{"a": "<b>", "n": -1.5e3, "w": [true, null]}'
    marked = units.coloured(text)
    assert (
        '<span class="json-key">&#34;a&#34;</span>: <span class="json-text">&#34;&lt;b&gt;&#34;</span>'
        in marked
    )
    assert '<span class="json-number">-1.5e3</span>' in marked
    assert '<span class="json-word">null</span>' in marked
    assert Markup(marked).striptags() == text
