"""The queries on every stream processor that is compared, each a program of its own.

A contestant runs in a virtual environment of its own, takes tasks as lines of JSON on standard input and
answers each when it is done, so that one process (and one warm JVM) serves a whole benchmark. The programs
can import nothing but what stands beside them and the processor they are for.
"""
