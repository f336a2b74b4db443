"""Pages that stay as they are on the server: HTML fragments by server-sent events.

A stream renders its fragments after each look at the broker, and sends those that differ from what it sent
last. It ends with the console, and with whoever reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from millstream.console.model.snapshot import Snapshot
from millstream.console.sampler import Sampler

Fragments = Callable[[Snapshot], Mapping[str, str] | Awaitable[Mapping[str, str]]]
_KEEP_ALIVE = 15.0  # seconds; what lies between us and a browser may close what is silent


async def stream(
    sampler: Sampler, status: Callable[[str | None], str], fragments: Fragments
) -> AsyncIterator[bytes]:
    """Events named as the fragments are, and ``status``: what is wrong with the broker, if anything."""
    sent: dict[str, str] = {}
    yield b"retry: 1000\n\n"
    while not sampler.closed:
        now = {"status": status(sampler.problem)}
        if sampler.snapshot is not None and sampler.problem is None:
            made = fragments(sampler.snapshot)
            now.update(await made if isinstance(made, Awaitable) else made)
        for name, html in now.items():
            if sent.get(name) != html:
                sent[name] = html
                yield encoded(name, html)
        try:
            await asyncio.wait_for(sampler.next(), _KEEP_ALIVE)
        except TimeoutError:
            yield b": still here\n\n"


def encoded(name: str, data: str) -> bytes:
    """One event, as the HTML standard has it."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    return f"event: {name}\n{lines}\n".encode()
