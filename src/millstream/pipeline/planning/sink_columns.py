"""The columns of the rows that a query hands to its delivery.

All rows have the same columns: ``sink`` (the sink's number), the columns of a record, and the columns of each
view.
"""

from __future__ import annotations

SINK = "sink"
RECORD = {  # no topic, because each sink has its own; columns that no sink of a query fills are left out
    "key": "binary",
    "value": "binary",
    "headers": "string",  # a JSON object; spark/lowering/sinks.py says why
    "timestamp": "timestamp",
}


def view_column(sink: int, column: int) -> str:
    return f"view_{sink}_{column}"
