"""What every package stands on: time, errors, settings, units, and other small things without a home in one
layer.

May import nothing of millstream. Anything may import it. Start with ``errors`` (every exception that users
meet) and ``config`` (every setting of a broker and of a topic).
"""
