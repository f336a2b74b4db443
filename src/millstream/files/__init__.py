"""Files in and out: the lines of log files become records, and a topic becomes files, each exactly once.

``tail`` follows files (``follow`` finds and reads them, ``parse`` takes their lines apart, ``progress`` keeps
how far they were read in the log itself); ``export`` writes a topic out (``shapes`` are its file formats,
``store`` where files go).

May import: ``client``. A broker is an address here, ours or Apache Kafka's.
"""
