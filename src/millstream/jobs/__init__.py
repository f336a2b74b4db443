"""How jobs report what they do: the format, and which consumer group belongs to which job.

Pipelines write it, the console and the command line read it. May import ``client``.
"""
