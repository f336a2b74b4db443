"""Old segments in an archive: a directory or an object store.

``journal`` records what the archive holds, ``copy`` takes segments there, ``reader`` reads them as if they
were local, ``object`` is the format of one archived segment.
"""
