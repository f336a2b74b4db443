"""The requests of a busy broker, read and written by hand because a general codec is too slow for them. May
import ``core`` and the modules of ``wire`` itself. Start with ``produce``, the most frequent request.
"""
