"""Access to a broker by its address: our own or Apache Kafka, told apart by nothing but that.

May import: ``records``, ``wire``. Everything above (pipeline, command line) reaches a broker only through
this package or through the Kafka protocol.
"""
