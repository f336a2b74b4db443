"""Says that an operator's state has outgrown its bound, in a worker and in the driver alike."""

from __future__ import annotations


def too_large(operator: str, size: int, most: int) -> str:
    """The error message for an operator whose state has outgrown its bound."""
    return (
        f"the state of {operator!r} has grown to {size / 1e6:,.1f} MB, more than max_state allows"
        f" ({most / 1e6:,.1f} MB). Let its keys expire sooner (a shorter window, within= or time to live),"
        ' keep it elsewhere (Topology(state="disk") or a database), or allow more; `millstream state show`'
        " tells what it holds"
    )
