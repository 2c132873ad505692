"""``forescore doctor``: what would go wrong, looked for before it does.

::

    finding.py       a finding, its level, and a check: a name, what it looks at, and a small function
    doctor.py        the order in which things are looked at, and what becomes of a check that cannot look
    settings.py      the environment: misspelt variables, timeouts that do not fit into one another
    host.py          cores, threads, open files, disk, clock
    server.py        Redis or Valkey itself: version, memory, persistence, role
    permissions.py   what the service's and the batch job's users may do
    snapshots.py     the model in the store: pointer, lease, age, leftovers, room for the next one
    bundle.py        the bundle on this host: certified, engine, parity with what is served
    printing.py      the table, and JSON

Each file ends with its list of checks. A check changes nothing: not the store, not the runs, not the engine cache.
"""
