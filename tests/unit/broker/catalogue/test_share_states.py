"""What share groups have finished, in the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.share_states import SavedShare, ShareKey

ONE, TWO = SavedShare(5, b"runs"), SavedShare(9, b"")


def run(path: Path, steps: Callable[[Catalogue], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        catalogue = Catalogue(path)
        try:
            return await steps(catalogue)
        finally:
            catalogue.close()

    return asyncio.run(main())


async def filled(catalogue: Catalogue) -> dict[str, ShareKey]:
    """Two groups in two topics; the key of each partition by group and topic."""
    keys = {}
    for name in ("a", "b"):
        topic = await catalogue.create_topic(name, 1)
        keys |= {f"{group}{name}": (group, topic.id.bytes, 0) for group in "gh"}
    await catalogue.share_states.save(dict.fromkeys(keys.values(), ONE))
    return keys


def places(*keys: ShareKey) -> dict[tuple[bytes, int], SavedShare]:
    return {key[1:]: ONE for key in keys}


def test_what_was_saved_is_there_after_reopening(tmp_path: Path) -> None:
    async def write(catalogue: Catalogue) -> dict[str, ShareKey]:
        keys = await filled(catalogue)
        await catalogue.share_states.save({keys["ga"]: TWO})
        await catalogue.share_states.delete([keys["gb"]])
        return keys

    async def read(catalogue: Catalogue) -> None:
        assert catalogue.share_states.of("g") == {keys["ga"][1:]: TWO}
        assert catalogue.share_states.of("h") == places(keys["ha"], keys["hb"])
        assert sorted(catalogue.share_states.groups()) == ["g", "h"]

    keys = run(tmp_path / "catalogue.db", write)
    run(tmp_path / "catalogue.db", read)


@pytest.mark.parametrize("deleted", ["topic", "group"])
def test_it_goes_with_its_topic_and_its_group(tmp_path: Path, deleted: str) -> None:
    async def check(catalogue: Catalogue) -> None:
        assert catalogue.share_states.of("g") == (places(keys["gb"]) if deleted == "topic" else {})
        expected = places(keys["hb"]) if deleted == "topic" else places(keys["ha"], keys["hb"])
        assert catalogue.share_states.of("h") == expected

    async def write(catalogue: Catalogue) -> dict[str, ShareKey]:
        nonlocal keys
        keys = await filled(catalogue)
        await (catalogue.delete_topic("a") if deleted == "topic" else catalogue.delete_group("g"))
        await check(catalogue)
        if deleted == "topic":  # what was under way when it was deleted
            await catalogue.share_states.save({keys["ga"]: TWO})
            await check(catalogue)
        return keys

    keys: dict[str, ShareKey] = {}
    run(tmp_path / "catalogue.db", write)
    run(tmp_path / "catalogue.db", check)
