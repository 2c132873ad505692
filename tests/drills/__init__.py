"""Drills: faults done to real processes, and what came of them. ``make drill`` and ``make soak``.

drill.py       a drill and its result; all of them by name
world.py       the customers, the editions of their table, and the right score of each: what an answer must be
stage.py       a store, a service and backfills that belong together
callers.py     threads that ask all the while, and write every answer down
scene.py       one drill on its stage: what was lost, how long recovery took, and whether it still serves
bench.py       opens stages when they are first needed, and shares them
store_*.py wire_faults.py batch_faults.py schedule_faults.py worker_faults.py disk_faults.py
load_drills.py the drills themselves
report.py      the table and the JSON
soak/          ten minutes of load, and three times too much of it
"""
