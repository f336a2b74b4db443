"""Figures as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from bench.rounds import Figure

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measured" / "benchmarks.md"


def number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 10_000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def row(figure: Figure) -> str:
    verdict = {True: "yes", False: "**no**", None: ""}[figure.met]
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
    cells = (
        figure.what,
        figure.unit,
        number(figure.ours),
        number(figure.theirs),
        ratio,
        figure.target,
        verdict,
    )
    return "| " + " | ".join(cells) + " |"


def table(figures: Iterable[Figure], theirs: str) -> str:
    head = f"| what | unit | millstream | {theirs} | ratio | target | met |\n"
    head += "| --- | --- | ---: | ---: | ---: | --- | --- |"
    return "\n".join([head, *(row(figure) for figure in figures)])


TITLES = {
    "bulk": ("Bulk, librdkafka, acks=1", "Apache Kafka"),
    "checking": ("What checking every record costs, by codec", "Apache Kafka"),
    "requests": ("One record per request, plain sockets", "Apache Kafka"),
    "connections": ("From one connection to a thousand", "Apache Kafka"),
    "latency": ("Latency", "Apache Kafka"),
    "transactions": ("Transactions", "Apache Kafka"),
    "churn": ("Groups whose members come and go", "Apache Kafka"),
    "footprint": ("Memory and start", "Apache Kafka"),
    "partitions": ("From one partition to ten thousand, at rest", "Apache Kafka"),
    "standby": ("A standby", "the other"),
    "history": ("Does the log's length matter?", "the shortest"),
    "archive": ("The archive", "the local disk"),
    "compaction": ("Compaction, and what other clients feel of it", "Apache Kafka"),
    "spark": ("Spark: our source and sink beside Spark's own Kafka connector", "Spark's connector"),
    "guarantees": ("What a job's guarantee costs", "Spark's connector, at-least-once"),
    "state": ("Keyed state at one row a key", "the other"),
    "view_latency": ("From an event to its result in a view", "none"),
    "hostile": ("Beside a client that asks for as much as it may", "none"),
    "wide": ("From a job's start to its first batch, by columns", "none"),
    "console": ("Pages of the console, on the server", "none"),
    "nexmark": ("Nexmark: events a second of one core", "the other"),
    "nexmark_latency": ("Nexmark: from an event to its result", "the other"),
}


def write(figures: list[Figure], *, quick: bool) -> None:
    """``bench/results/latest.json`` always; the docs' page only from a full run."""
    RESULTS.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    document = {"machine": machine, "quick": quick, "figures": [figure.to_json() for figure in figures]}
    (RESULTS / ("quick.json" if quick else "latest.json")).write_text(json.dumps(document, indent=1) + "\n")
    if not quick:
        PAGE.write_text(page(document))


def page(document: dict[str, object]) -> str:
    machine = document["machine"]
    assert isinstance(machine, dict)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. Medians of alternating rounds on one machine"
        f" ({machine['cpus']} cores, Python {machine['python']}), clients on the same cores as the servers,"
        " so a server's CPU stands beside its rate. Apache Kafka 4.3.1, one KRaft node, 1 GB of heap."
        " What we lose stands here as well.",
    ]
    figures = document["figures"]
    assert isinstance(figures, list)
    for part, (title, theirs) in TITLES.items():
        rows = []
        notes = []
        for entry in figures:
            if entry["part"] == part:
                entry = {key: value for key, value in entry.items() if key != "ratio"}
                figure = Figure(**entry)
                rows.append(figure)
                if figure.note and figure.note not in notes:
                    notes.append(figure.note)
        if rows:
            lines += ["", f"## {title}", "", table(rows, theirs)]
            lines += ["", *(f"{note}." for note in notes)] if notes else []
    return "\n".join(lines) + "\n"
