"""Files in and out: the lines of log files become records, and a topic becomes files, each exactly once.
Start with ``tail``, which follows files: ``follow`` finds and reads them, ``parse`` parses their lines, and
``progress`` stores how far they were read in the log itself. ``export`` writes a topic out: ``shapes`` are
its file formats, ``store`` is where the files go. May import ``client``; only ``cli`` imports this package.
A broker is an address here, millstream's or Apache Kafka's.
"""
