"""Topics that are deleted and created again under the same names, all the time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.campaign.findings import Finding
from tests.campaign.journal import Notes
from tests.campaign.parts import Part, World
from tests.campaign.processes import Client, client


class ChurnPart(Part):
    name = "churn"

    def prepare(self, world: World) -> None:
        """Does nothing: the client creates the topics."""

    def writers(self, world: World) -> list[Client]:
        # Each has its own names: two that delete each other's topics could expect nothing.
        return [
            client(
                f"r{world.number}-churn-{index}",
                world.journals(self.name),
                world.address,
                "churn",
                names=[f"churn-{index}-{number}" for number in range(3)],
                seed=world.seed,
            )
            for index in range(2)
        ]

    def others(self, world: World) -> list[Client]:
        return []

    def settle(self, world: World, others: list[Client]) -> Iterator[Finding]:
        return iter(())

    def check(self, world: World) -> Iterator[Finding]:
        notes = Notes.of(world.journals(self.name).glob("*.jsonl"))
        self.tallies.update(notes.tallies)
        for wrong in notes.wrong:
            yield Finding(self.name, "client", wrong)
