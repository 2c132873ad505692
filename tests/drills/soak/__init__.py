"""``make soak``: capacity, minutes at 70 % of it, three times too much of it, and what comes after.

book.py      the requests: hits, misses, lists, and bad ones, each with what its answer must be
caller.py    the clients, in a process of their own; every answer is checked there
watch.py     the memory of the service, and the promotions that go on meanwhile
verdicts.py  what was found, each with its bound
"""
