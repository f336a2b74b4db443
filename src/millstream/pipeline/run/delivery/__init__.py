"""Sends the results of every batch to topics and views, with the guarantee that the job gives. May import
``core``, ``client``, ``records``, ``views``, ``connector``, ``dsl``, ``planning``, ``kernel``, ``spark`` and
``checkpoint``. Start with ``delivery``: the steps of a batch. In the driver, ``ledger`` knows what is
delivered, ``transactions`` fences other runs, and ``changelog`` and ``view_changes`` are for views.
``batch_tasks`` runs a batch on Spark. In its tasks, ``instructions`` and ``sending`` do what the driver says,
and ``handover`` brings encoded batches to the driver. Spark's workers load these last three, so keep their
imports few.
"""
