"""The seam to the operating system: files, memory that stands in for files, and Kafka's small checkpoint
files.

May import nothing else of ``log``. Every byte that a log reads or writes passes through ``files``.
"""
