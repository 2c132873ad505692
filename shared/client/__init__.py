"""The client of a Forescore service, for the programs that ask it: ``from forescore import ForescoreClient``.

``wire`` turns ids and features into what is sent; ``results`` and ``problems`` are what comes back, as frozen values
and as errors. ``core`` has the calls, ``attempts`` decides whether and when to try again; both do no I/O and have no
clock of their own. ``clients`` has their two drivers, one that blocks and one that awaits, and is the only module here
that needs httpx2. Nothing here loads torch, pyarrow, NumPy or redis, so that a program can ask cheaply.
"""
