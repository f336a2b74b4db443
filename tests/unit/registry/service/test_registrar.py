"""What the registry decides, on a store that records are applied to by hand: no topic, no network."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.core.errors import RegistryRefused
from millstream.registry.schema import Reference, Schema
from millstream.registry.service.registrar import LEVELS, Decision, Registrar
from millstream.registry.service.store import Record, SchemaStore


class World:
    """A registrar whose changes are written to a list at once."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.store = SchemaStore()
        self.registrar = Registrar(self.store)

    def do(self, change: Decision) -> Any:
        for key, value in change.records:
            self.log.append((key, value))
            self.store.apply(key, value)
        return change.answer

    def register(self, subject: str, schema: Schema, **more: Any) -> int:
        return int(self.do(self.registrar.register(subject, schema, **more))["id"])

    def compacted(self) -> SchemaStore:
        """A store made from what is left of the log when only the last record of every key is."""
        last = {key: at for at, (key, _) in enumerate(self.log)}
        store = SchemaStore()
        for at, (key, value) in enumerate(self.log):
            if last[key] == at:
                store.apply(key, value)
        return store


def avro(*fields: str, name: str = "R") -> Schema:
    made = [{"name": field, "type": "string", "default": ""} for field in fields]
    return Schema("AVRO", json.dumps({"type": "record", "name": name, "fields": made}))


def code(call: Any) -> int:
    with pytest.raises(RegistryRefused) as refused:
        call()
    return refused.value.code


def test_a_schema_that_is_there_is_not_written_again() -> None:
    world = World()
    first = world.register("s", avro("a"))
    assert world.register("s", avro("a")) == first
    assert len(world.log) == 1
    assert world.register("t", avro("a")) == first, "another subject, the same id"


def test_every_level_is_what_it_says() -> None:
    needed = Schema("AVRO", '{"type":"record","name":"R","fields":[{"name":"x","type":"string"}]}')
    # From nothing to a field that is needed: old readers ignore it, new readers miss it in old data.
    for level in LEVELS:
        world = World()
        world.do(world.registrar.set_config(None, {"compatibility": level}))
        world.register("s", avro())
        ok = level == "NONE" or level.startswith("FORWARD")
        if ok:
            world.register("s", needed)
        else:
            assert code(lambda world=world: world.register("s", needed)) == 40901


def test_a_transitive_level_looks_at_all_versions() -> None:
    text, number = (
        Schema(
            "AVRO",
            json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": t, "default": d}]}),
        )
        for t, d in (("string", ""), ("int", 0))
    )
    for level, allowed in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)):
        world = World()
        world.do(world.registrar.set_config("s", {"compatibility": level}))
        world.register("s", text)
        world.register("s", avro())
        if allowed:
            world.register("s", number)
        else:
            assert code(lambda world=world: world.register("s", number)) == 40901


def test_a_version_that_is_referred_to_can_not_be_deleted() -> None:
    world = World()
    world.register("money", avro("cents", name="Money"))
    order = Schema(
        "AVRO",
        '{"type":"record","name":"O","fields":[{"name":"m","type":"Money"}]}',
        (Reference("Money", "money", 1),),
    )
    world.register("order", order)
    assert code(lambda: world.registrar.delete_version("money", 1)) == 42206
    assert code(lambda: world.registrar.delete_subject("money")) == 42206
    world.do(world.registrar.delete_subject("order"))
    world.do(world.registrar.delete_subject("money"))
    assert code(lambda: world.registrar.delete_subject("money", permanent=True)) == 42206
    world.do(world.registrar.delete_subject("order", permanent=True))
    assert world.do(world.registrar.delete_subject("money", permanent=True)) == [1]


def test_a_reference_to_what_is_not_there_is_refused() -> None:
    schema = Schema("AVRO", '"Money"', (Reference("Money", "money", 1),))
    assert code(lambda: World().register("s", schema)) == 42201


def test_references_within_a_context_stay_in_it() -> None:
    world = World()
    world.register(":.eu:money", avro(name="Money"))
    order = Schema("AVRO", '["null", "Money"]', (Reference("Money", "money", 1),))
    assert world.register(":.eu:order", order) == 2
    assert code(lambda: world.register("order", order)) == 42201


def test_what_is_registered_again_after_its_deletion_has_its_id_and_a_new_version() -> None:
    world = World()
    first = world.register("s", avro("a"))
    world.do(world.registrar.delete_subject("s"))
    assert world.register("s", avro("a")) == first
    assert [each.version for each in world.store.versions("s", deleted=True)] == [2]


def test_records_that_make_no_sense_are_skipped() -> None:
    store = SchemaStore()
    for key, value in ((b"{", None), (b"{}", b"{}"), (None, b"x"), (b'{"keytype":"SCHEMA"}', b"7")):
        store.apply(key, value)
    assert store.skipped == 4
    store.apply(b'{"keytype":"NOOP","magic":0}', None)
    store.apply(b'{"keytype":"SOMETHING_NEW","magic":0}', b"{}")
    assert store.skipped == 4


def test_normalization_makes_one_of_what_differs_in_order() -> None:
    world = World()
    one = Schema("JSON", '{"type": "object", "title": "T"}')
    other = Schema("JSON", '{"title": "T", "type": "object"}')
    assert world.register("a", one) != world.register("b", other)
    assert world.register("c", one, normalize=True) == world.register("d", other, normalize=True)


class Registries(RuleBasedStateMachine):
    """Whatever is asked in whatever order, an id keeps its meaning, and a restart changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.meaning: dict[int, str] = {}

    subjects = st.sampled_from(["a", "b"])
    schemas = st.lists(st.sampled_from("xyz"), max_size=2, unique=True).map(lambda names: avro(*names))

    @rule(subject=subjects, schema=schemas)
    def register(self, subject: str, schema: Schema) -> None:
        id_ = self.world.register(subject, schema)
        text = self.world.registrar.by_id(id_).text
        assert self.meaning.setdefault(id_, text) == text

    @rule(subject=subjects, permanent=st.booleans())
    def delete(self, subject: str, permanent: bool) -> None:
        with contextlib.suppress(RegistryRefused):
            self.world.do(self.world.registrar.delete_subject(subject, permanent=permanent))

    @rule(subject=subjects, number=st.integers(1, 3), permanent=st.booleans())
    def delete_version(self, subject: str, number: int, permanent: bool) -> None:
        with contextlib.suppress(RegistryRefused):
            self.world.do(self.world.registrar.delete_version(subject, number, permanent=permanent))

    @invariant()
    def the_compacted_topic_says_the_same(self) -> None:
        again = self.world.compacted()
        assert again.max_id == self.world.store.max_id
        for subject in ("a", "b"):
            assert again.versions(subject, deleted=True) == self.world.store.versions(subject, deleted=True)


TestRegistries = Registries.TestCase
TestRegistries.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
