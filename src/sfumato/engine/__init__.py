"""Engines, which encode a table once, count it, and return exact results sealed.

:mod:`port` is the contract: a ``ProtectedTable`` encodes itself to small integers with bounded contributions, and the
``Encoded`` counts.  Tallies are integers.  ``ready`` and ``refuse_missing`` refuse rows or columns that cannot be
counted, before a charge.  One conformance suite runs over every adapter (``duckdb``, ``sql``, ``spark``); :mod:`open`
has their tuple.

A unit is cut to its bounds by an order that depends on that unit alone (:mod:`bounding`).  Tables of one process are in
one DuckDB database in memory.  The columns of a single table that queries need are cached as arrays, at most 256 MiB
per table (:mod:`arrays`).  A view over linked tables is SQL over their codes (``views``).  It is encoded when a charged
release first counts it, and its rows stay in the engine.  A table is refused before a charge if its files were written
after it was encoded.
"""
