"""What a synthetic table is called where people read the journal."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.domain import Domain
from sfumato.synthesize.workload import Marginals, Workload

_LISTED = 4


def rows_of(domain: Domain, names: Sequence[str]) -> str:
    """Rows with those columns, by name where they are few.

    >>> from sfumato.domain import Integer, Unknown
    >>> ages = Domain([Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP)])
    >>> rows_of(ages, ages.names)
    'synthetic rows of age'
    """
    if len(names) <= _LISTED:
        return f"synthetic rows of {', '.join(names)}"
    some = "all" if len(names) == len(domain) else f"{len(names)} of"
    return f"synthetic rows of {some} {len(domain)} attributes"


def tables(cliques: Sequence[Sequence[str]]) -> str:
    """The tables over those attributes, the first few by name.

    >>> tables([("age", "sex"), ("town",)])
    'age x sex; town'
    """
    named = "; ".join(" x ".join(clique) for clique in cliques[:_LISTED])
    return named if len(cliques) <= _LISTED else f"{named}; and {len(cliques) - _LISTED} more"


def rows_for(domain: Domain, workload: Workload) -> str:
    """Rows that are meant to answer a workload."""
    rows = rows_of(domain, workload.attributes(domain))
    if not isinstance(workload, Marginals):
        return f"{rows} for {workload.length(domain)} queries"
    if workload.ways is None:
        return f"{rows} for the marginals {tables(workload.cliques)}"
    return f"{rows} for all {workload.ways}-way marginals"
