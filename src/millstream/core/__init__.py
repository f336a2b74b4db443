"""The base of every package: time, errors, settings, units, and other small things that no single layer owns.

May import nothing of millstream. Anything may import it. Start with ``errors`` (every exception that users
meet), ``config`` and ``topic_config`` (every setting of a broker and of a topic).
"""
