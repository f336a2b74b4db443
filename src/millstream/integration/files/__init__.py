"""Files in and out: the lines of log files become records, and a topic becomes files, each exactly once. May
import ``core`` and ``client``, so a broker is an address here, millstream's or Apache Kafka's. Only ``cli``
imports this package. Start with ``tail``, which follows files: ``follow`` finds and reads them, ``parse``
parses their lines, and ``progress`` stores how far they were read in the log itself. ``export`` writes a
topic out: ``formats`` are its file formats, ``store`` is where the files go.
"""
