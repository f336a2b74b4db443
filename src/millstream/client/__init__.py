"""Access to a broker by its address: our own or Apache Kafka, told apart by nothing but that.

May import: ``records``, ``wire``. Everything above (pipeline, command line) reaches a broker only through
this package or through the Kafka protocol.

For programs: ``client.transaction`` and ``client.Transactions``.
"""

# At once and not when first asked for: a module is called as its function is (``client.transaction``), and
# the name shall mean the function whoever imports the module first. Nothing heavy comes with them.
from millstream.client.transaction import Transaction, Transactions, transaction

__all__ = ["Transaction", "Transactions", "transaction"]
