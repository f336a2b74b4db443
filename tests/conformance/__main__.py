"""Runs the suites, prints the table, and fails if a test that passes on Apache Kafka does not pass here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conformance import go_modules, kafka_python, kafka_tools
from tests.conformance.reasons import REASONS
from tests.conformance.suite import FAILED, PASSED, SKIPPED, Outcome, Suite, SuiteUnavailable
from tests.conformance.targets import TARGETS

SUITES: list[Suite] = [kafka_tools.SUITE, kafka_python.SUITE, *go_modules.SUITES]
RECORD = Path(__file__).with_name("passes_on_kafka.json")

Passing = dict[str, list[str]]  # suite -> tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--against", choices=sorted(TARGETS), default="millstream")
    parser.add_argument("--only", choices=[suite.name for suite in SUITES], action="append", default=[])
    parser.add_argument("--record", action="store_true", help="keep what passes on Apache Kafka")
    options = parser.parse_args()
    if options.record and options.against != "kafka":
        parser.error("--record goes with --against kafka")
    on_kafka: Passing = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    rows, unexplained = [], []
    for suite in SUITES:
        if options.only and suite.name not in options.only:
            continue
        print(f"{suite.name}: {suite.origin} ...", flush=True)
        try:
            with TARGETS[options.against](suite) as target:
                outcomes = suite.run(target)
        except SuiteUnavailable as reason:
            print(f"  skipped: {reason}")
            continue
        if options.record:
            # Added to what passed before, because on a busy machine some tests fail on Kafka now and then.
            passed = {name for name, outcome in outcomes.items() if outcome.verdict == PASSED}
            on_kafka[suite.name] = sorted(passed.union(on_kafka.get(suite.name, ())))
            RECORD.write_text(json.dumps(on_kafka, indent=1) + "\n")
        there = on_kafka.get(suite.name, [])
        rows.append(_row(suite, outcomes, there))
        for name, outcome in sorted(outcomes.items()):
            if outcome.verdict == FAILED:
                reason = REASONS.get(f"{suite.name} {name}", "")
                kind = "passes on Kafka" if name in there else "fails on Kafka too"
                print(f"  FAILED {name} ({kind}){f': {reason}' if reason else ''}")
                if not reason:
                    print("    " + outcome.detail.strip().replace("\n", "\n    "))
        for name in there:
            passed = outcomes.get(name, Outcome(FAILED)).verdict == PASSED
            if not passed and f"{suite.name} {name}" not in REASONS:
                unexplained.append(f"{suite.name} {name}")
    head = ("suite", "tests", "skipped", "passed on Kafka 4.3.1", f"passed on {options.against}", "of those")
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    if unexplained and options.against == "millstream":
        print("\nPassing on Apache Kafka, not here, and without a reason in tests/conformance/reasons.py:")
        for name in unexplained:
            print(f"  {name}")
        return 1
    return 0


def _row(suite: Suite, outcomes: Mapping[str, Outcome], there: list[str]) -> tuple[object, ...]:
    passed = {name for name, outcome in outcomes.items() if outcome.verdict == PASSED}
    skipped = sum(outcome.verdict == SKIPPED for outcome in outcomes.values())
    return suite.name, len(outcomes) - skipped, skipped, len(there), len(passed), len(passed & set(there))


if __name__ == "__main__":
    sys.exit(main())
