"""A job while it runs: its queries, checkpoints, transactions, deliveries and reports.

``job`` is the way in, ``deliver`` the only place where results leave Spark.
"""
