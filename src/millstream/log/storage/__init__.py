"""The seam to the operating system: files, memory that stands in for files, and Kafka's small checkpoint
files. May import ``records`` and, of ``log``, only ``disk_failures``. Start with ``files``: every byte that a
log reads or writes passes through it.
"""
