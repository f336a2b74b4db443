"""How jobs report what they do, and how they are told to stop and restart: the formats (``report``,
``command``), which runs are alive (``board``, ``reader``), commands and their answers (``control``), a job's
own end of it (``listener``), and which consumer group belongs to which job. Pipelines write the reports and
follow commands; the console and the command line do the opposite. May import ``core`` and ``client``. Start
with ``report``.
"""
