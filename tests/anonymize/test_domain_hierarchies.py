"""The hierarchy of the domain generalizes a quasi-identifier without its own hierarchy."""

from __future__ import annotations

from sfumato.anonymize import Quasi
from sfumato.anonymize.release.request import read_quasi
from sfumato.domain import parse
from sfumato.domain.hierarchy import flat

DOMAIN = parse(
    {
        "sfumato": 1,
        "unit": "row",
        "attributes": {
            "diag": {"type": "categorical", "values": ["I10", "I21", "J01", "K35"], "unknown": "drop"},
            "age": {"type": "integer", "minimum": 0, "maximum": 29, "unknown": "clamp"},
        },
        "hierarchies": {
            "diag": {
                "levels": ["chapter"],
                "rows": [["I10", "IX"], ["I21", "IX"], ["J01", "other"], ["K35", "other"]],
            }
        },
    }
)


def test_the_hierarchy_of_the_domain_is_taken_where_no_other_is_given() -> None:
    diag, age = read_quasi(["diag", "age"], DOMAIN)
    assert diag.hierarchy == DOMAIN.hierarchies[0]
    assert diag.aligned(DOMAIN["diag"]).levels[1].labels == ("IX", "other")
    assert age.hierarchy is None
    own = flat("diag", ["I10", "I21", "J01", "K35"])
    (given,) = read_quasi([Quasi(name="diag", hierarchy=own)], DOMAIN)
    assert given.hierarchy is own
