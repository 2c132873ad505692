"""What the batch job and the service must agree on.

The way of a row: ``schema`` declares it, ``rules`` decode one value, ``encode`` turns columns or requests into
tensors, ``bundle`` carries the graph, ``scorer`` runs it. The way of a score: ``snapshot`` names it, ``layout``
writes it down, ``store`` keeps it.
"""
