"""Run the campaign: prints what happens and, at the end, a table. Exits with 0 if nothing was wrong."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.campaign.all_parts import NAMES
from tests.campaign.conductor import Conductor, Options
from tests.campaign.schedule import FAULTS
from tests.support.small_disk import small_disk

DISK_MB = 3000


def main() -> int:
    # Shells start background commands with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = _arguments()
    scratch = Path(tempfile.mkdtemp(prefix=f"campaign-{options.seed}-", dir=os.environ.get("CAMPAIGN_DIR")))
    screen = Screen()
    screen.say(f"seed {options.seed}, {options.seconds / 60:g} minutes, in {scratch}")
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(scratch, DISK_MB))
        except pytest.skip.Exception as reason:
            screen.say(f"without full disks: {reason}")
            disk = None
        conductor = Conductor(options, scratch, disk, screen.say, screen.status)
        findings = conductor.run()
        _summary(conductor, screen)
        if findings:
            kept = scratch / "kept"
            shutil.copytree(conductor.data, kept / "data")
            conductor.broker.save_log(kept / "broker.log")
        conductor.broker.forget_log()
    if not findings:
        screen.say(f"nothing was wrong (seed {options.seed})")
        shutil.rmtree(scratch)
        return 0
    screen.say(f"{len(findings)} findings, seed {options.seed}:")
    for finding in findings:
        print(f"  {finding}")
    print(f"data directory and log: {kept}; journals: {scratch}/round-*")
    print(f"again: make campaign ARGS='--seed {options.seed} --minutes {options.seconds / 60:g} ...'")
    return 1


def _arguments() -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", action="append", choices=NAMES, default=[], help="these parts (repeatable)")
    parser.add_argument("--without", action="append", choices=NAMES, default=[], help="all parts but these")
    parser.add_argument(
        "--no-fault", action="append", choices=[*FAULTS, "any"], default=[], help="leave this fault out"
    )
    parser.add_argument("--go-on", action="store_true", help="further rounds after findings")
    given = parser.parse_args()
    parts = [name for name in NAMES if name not in given.without and (not given.only or name in given.only)]
    if not parts:
        parser.error("no part is left")
    faults = [] if "any" in given.no_fault else [kind for kind in FAULTS if kind not in given.no_fault]
    return Options(given.seed, parts, faults, seconds=given.minutes * 60, go_on=given.go_on)


class Screen:
    """Prints a line for each event. On a terminal, one status line is overwritten again and again."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._is_terminal = sys.stdout.isatty()
        self._told = 0.0

    def say(self, text: str) -> None:
        clear = "\r\x1b[K" if self._is_terminal else ""
        print(f"{clear}{self._time()} {text}", flush=True)

    def status(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{self._time()} {text}", end="", flush=True)
        elif time.monotonic() - self._told > 15:
            self._told = time.monotonic()
            print(f"{self._time()} {text}", flush=True)

    def _time(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:3}:{seconds % 60:02}"


def _summary(conductor: Conductor, screen: Screen) -> None:
    broker = conductor.broker
    screen.say("")
    print(f"{'part':14} {'findings':>8}  counted over {conductor.rounds} rounds")
    for name, part in conductor.parts.items():
        count = sum(finding.part == name for finding in conductor.findings)
        counted = ", ".join(f"{number:,} {what}" for what, number in part.tallies.items())
        print(f"{name:14} {count:8}  {counted}")
    faults = ", ".join(f"{count} x {kind}" for kind, count in conductor.faults.counts.items())
    print(f"{'faults':14} {'':8}  {faults}")
    print(
        f"{'broker':14} {sum(f.part == 'broker' for f in conductor.findings):8}  "
        f"at most {broker.most_kb // 1024} MB, "
        f"slowest start {broker.slowest_start:.1f} s, slowest end {broker.slowest_stop:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
