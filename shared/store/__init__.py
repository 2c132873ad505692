"""The store: Redis or Valkey, behind Protocols of a few methods each.

``interfaces`` says what can be asked. ``connect`` opens a store from the settings (``open_store`` for the batch job and
commands, ``open_async_store`` for the service). Behind it: ``urls`` reads the address, ``link`` makes one call and
translates its failure, ``breaker`` stops calling a dead store. ``reader``, ``online`` and ``features`` serve requests;
``writer`` (with ``loader`` and ``resp``) loads a snapshot; ``catalogue``, ``control`` and ``leases`` (with ``scripts``)
decide which one is served. ``lookup`` plans a look-up and reads its replies, for both sides. Nothing of the Redis
client leaks out.
"""
