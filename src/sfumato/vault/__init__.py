"""The only place where exact counts become public numbers.

A ``Vault`` holds a protected table, its ledger and the current analyst.  ``release`` reserves one charge for a whole
method and gives it mechanisms that can spend no more.  ``disclose`` journals a release without differential privacy. A
kind of measurement is one class with its check, sensitivity, canonical form, table and answer.  The sensitivity follows
from the rows that a unit can contribute (:mod:`contribution`).

Exact tables over a few attributes are cached between queries, at most 128 MiB together.  The choice of cached tables
follows from declared domains and earlier queries, never from rows.  No vault takes a seed.  The simulated vault does:
it has the same mechanisms and no ledger, and everything that it returns says "SIMULATED, no guarantee".
"""
