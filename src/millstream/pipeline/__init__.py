"""Pipelines on Spark: sources and sinks, topologies, views.

May import: ``client``, ``records``, ``wire``. Needs the ``spark`` extra.
"""
