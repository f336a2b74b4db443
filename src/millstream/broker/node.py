"""The node: what every request handler works on."""

from __future__ import annotations


class Node:
    """One broker's state: its catalogue, its partitions, its groups, its clock and its settings."""
