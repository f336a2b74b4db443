"""ShareFetch and ShareAcknowledge: consumers of share groups read records and say what became of them.

Start with ``fetch``. ``acknowledgements`` reads what members say, ``reading`` looks into the log.
"""
