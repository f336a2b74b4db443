"""What a job tells about its batches: to the terminal, and to the topic that consoles read. May import
``core``, ``client``, ``jobs``, ``views``, ``connector``, ``drawing``, ``dsl``, ``formats``, ``planning``,
``kernel`` and ``delivery``. Start with ``progress``, what a job reports after a batch. ``spark_reports``
makes it from Spark's reports, ``status_account`` derives the job's status from it, and ``status_writer``
writes that to the topic. ``lag_meter`` measures how far a job is behind.
"""
