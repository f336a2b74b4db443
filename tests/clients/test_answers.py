"""Odd questions (``tests.support.questions``) are answered as Apache Kafka 4.3.1 does, field by field.

Kafka's own answers are kept in ``answers_of_kafka.json``, and Kafka is held to them as we are, so that they
stay what it says. After a change of the questions:

    python -m tests.clients.test_answers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.questions import FAMILIES, ask_all

KEPT = Path(__file__).with_name("answers_of_kafka.json")
BY_NAME = {family.__name__: family for family in FAMILIES}


@pytest.mark.parametrize("family", BY_NAME)
def test_odd_requests_are_answered_as_kafka_answers_them(address: str, family: str) -> None:
    expected = json.loads(KEPT.read_text())[family]

    answers = json.loads(json.dumps(ask_all(address, BY_NAME[family])))

    assert answers.keys() == expected.keys()
    different = {
        question: list(differences(expected[question], answers[question]))
        for question in expected
        if answers[question] != expected[question]
    }
    assert not different, json.dumps(different, indent=1)


def differences(theirs: Any, ours: Any, path: str = "") -> Any:
    """Where two answers differ: the path, and what stands there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from differences(theirs.get(name), ours.get(name), f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif theirs != ours:
        yield f"{path}: {theirs} in Kafka, {ours} here"


def keep() -> None:
    """Ask Apache Kafka everything, and keep what it says: a line for each question."""
    with apache_kafka(quick=True) as kafka:
        families = {name: ask_all(kafka.address, family) for name, family in BY_NAME.items()}
    lines = []
    for name, answers in families.items():
        told = ",\n".join(f"  {json.dumps(q)}: {json.dumps(answer)}" for q, answer in answers.items())
        lines.append(f" {json.dumps(name)}: {{\n{told}\n }}")
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    keep()
