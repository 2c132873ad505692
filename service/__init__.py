"""The service: answers from the active snapshot, and scores online what the batch has never seen.

The way of a request: ``access`` logs it, ``entity`` and ``items`` read it, ``online`` answers it: ``lookup`` in the
snapshot that ``pointer`` names, else ``features`` (``parquet``) and ``forward``, then ``writeback``. ``answers`` and
``problems`` write it down. Plain requests take a short cut: ``protocol``, ``lane`` (hits), ``together`` (one row each).
``app`` puts it together, ``lifespan`` opens and closes it, ``contract`` describes it.
"""
