from __future__ import annotations

import pytest

from millstream.core.errors import ConfigError
from millstream.pipeline.connector.options import OPTIONS, ReadOptions, WriteOptions


def test_every_option_is_documented_and_no_name_is_used_twice() -> None:
    names = [name.lower() for option in OPTIONS for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))
    assert all(len(option.doc) > 10 for option in OPTIONS)


def test_names_are_taken_in_any_case_and_by_sparks_names() -> None:
    options = ReadOptions.of(
        {"KAFKA.bootstrap.servers": "a:1", "SUBSCRIBE": "x, y", "failondataloss": "FALSE"}
    )
    assert options.connection.servers() == [("a", 1)]
    assert options.topics == ("x", "y")
    assert not options.fail_on_data_loss


def test_the_defaults_are_the_safe_ones() -> None:
    read, write = ReadOptions.of({"topic": "t"}), WriteOptions.of({})
    assert read.fail_on_data_loss
    assert read.read_committed
    assert (write.acks, write.idempotent) == (-1, True)


def test_security_is_passed_to_the_connection_under_its_own_names() -> None:
    options = WriteOptions.of({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "ada"})
    assert options.connection.options["security.protocol"] == "SASL_SSL"
    assert options.connection.options["sasl.username"] == "ada"


def test_sparks_own_options_are_not_ours_to_refuse() -> None:
    assert WriteOptions.of({"checkpointLocation": "/x", "topic": "t"}).topic == "t"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t", "failOnDataLos": "x"}, "no option 'failOnDataLos'; did you mean 'failOnDataLoss'?"),
        (
            {"topic": "t", "zzz": "x"},
            r"no option 'zzz'; there are assign, bootstrap, .*, and kafka.\* for TLS",
        ),
        ({"topic": "t", "kafka.acks": "all"}, "'kafka.acks' is only for writing"),
        ({"topic": "t", "subscribe": "u"}, "'topic' and 'subscribe' mean the same"),
        ({"topic": " , "}, "is not the name of a topic"),
        ({"topic": "t", "bootstrap": "here"}, "the broker's address: 'here' is not HOST:PORT"),
        ({"topic": "t", "failOnDataLoss": "no"}, "'no' is not true or false"),
        ({"topic": "t", "maxOffsetsPerTrigger": "0"}, "'0' is not a whole number of at least 1"),
        ({"topic": "t", "startingOffsets": "latest", "startingTimestamp": "1"}, "contradict"),
        ({"topic": "t", "kafka.isolation.level": "serial"}, "one of read_committed, read_uncommitted"),
        ({"topic": "t", "maxTriggerDelay": "soon"}, "'soon' is not a duration"),
    ],
)
def test_a_mistake_is_said_as_such(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.of(options)


def test_an_idempotent_producer_needs_acks_all() -> None:
    assert not WriteOptions.of({"kafka.acks": "1"}).idempotent
    with pytest.raises(ConfigError, match="idempotent"):
        WriteOptions.of({"kafka.acks": "1", "kafka.enable.idempotence": "true"})
