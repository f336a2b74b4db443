"""Records and positions as people write them: lines, templates, ``@-1h``. No I/O. May import ``core``. Start
with ``position``.
"""
