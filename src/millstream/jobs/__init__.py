"""How jobs report what they do: the format, and which consumer group belongs to which job. Pipelines write
the reports; the console and the command line read them. May import ``core`` and ``client``. Start with
``report``.
"""
