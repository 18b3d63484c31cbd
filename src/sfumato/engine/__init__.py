"""Where the rows are: engines encode a table once, count it, and hand out exact results sealed.

:mod:`port` is the contract: a ``ProtectedTable`` encodes itself to small integers with bounded contributions, and the
``Encoded`` counts.  Tallies are integers.  ``ready`` and ``refuse_missing`` refuse what cannot be counted, before a
charge.  One conformance suite runs over every adapter (``duckdb``, ``sql``, ``spark``); :mod:`open` has their tuple.

A unit is cut to its bounds by an order that looks at that unit alone (:mod:`bounding`).  Tables of one process are in
one DuckDB database in memory.  The columns that questions need of a single table are kept as arrays, at most 256 MiB a
table (:mod:`arrays`).  A view over linked tables is SQL over their codes (``views``), encoded when a charged release
first counts it; its rows stay in the engine.  A table whose files were written since it was encoded is refused before
it is charged.
"""
