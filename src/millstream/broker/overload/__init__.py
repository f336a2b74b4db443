"""Topics with ``millstream.overload=backpressure``: producers wait for their consumers.

``rules`` decides who is held and for how long, without I/O; ``backpressure`` applies it.
"""
