"""A small hospital of several tables: its schema, and random databases of it in which units go to extremes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pyarrow as pa

from sfumato.domain.table_schema import Schema, parse_schema

Rows = Mapping[str, list[dict[str, Any]]]

COST = {"type": "integer", "minimum": 0, "maximum": 1000, "edges": [0, 500], "unknown": "clamp"}
DAYS = {"type": "date", "first": "2023-01-01", "last": "2023-12-31", "by": "day", "unknown": "drop"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "hospital",
    "draft": False,
    "unit": {"id": "patient_id", "table": "patients"},
    "tables": {
        "patients": {
            "key": "patient_id",
            "attributes": {
                "sex": {"type": "categorical", "values": ["F", "M"], "nullable": False, "unknown": "drop"},
                "region": {"type": "integer", "minimum": 0, "maximum": 2, "nullable": False, "unknown": "drop"},
            },
        },
        "visits": {
            "key": "visit_id",
            "unit": "patient_id",
            "rows": 6,
            "per": {"month(admitted)": {"rows": 2, "groups": 4}},
            "attributes": {
                "admitted": DAYS | {"nullable": False},
                "kind": {"type": "integer", "minimum": 0, "maximum": 2, "nullable": False, "unknown": "category"},
                "cost": COST | {"nullable": True},
            },
        },
        "drugs": {
            "key": "rx_id",
            "through": {"visit_id": "visits"},
            "rows": 8,
            "per": {"drug": 3},
            "attributes": {
                "drug": {
                    "type": "categorical",
                    "values": ["D0", "D1", "D2", "D3"],
                    "nullable": False,
                    "unknown": "drop",
                },
                "dose": {"type": "real", "edges": [0.0, 2.5, 10.0], "nullable": False, "unknown": "clamp"},
            },
        },
        "diagnoses": {
            "key": "dx_id",
            "through": {"visit_id": "visits"},
            "references": {"code": "icd"},
            "rows": 5,
            "attributes": {
                "code": {
                    "type": "categorical",
                    "values": [f"I{n}" for n in range(6)],
                    "nullable": False,
                    "unknown": "drop",
                }
            },
        },
        "drug_era": {
            "unit": "person_id",
            "rows": 4,
            "attributes": {
                "era": {"type": "integer", "minimum": 0, "maximum": 8, "nullable": False, "unknown": "drop"}
            },
        },
        "icd": {
            "public": True,
            "key": "code",
            "attributes": {
                "chapter": {"type": "integer", "minimum": 0, "maximum": 2, "nullable": False, "unknown": "drop"}
            },
        },
        "icd_block": {
            "public": True,
            "key": "code",
            "attributes": {
                "block": {"type": "integer", "minimum": 0, "maximum": 3, "nullable": False, "unknown": "drop"}
            },
        },
    },
}
DERIVED: dict[str, Any] = {
    "gap": {"days_since_previous": "admitted", "minimum": 0, "maximum": 90, "nullable": True},
    "price": {"case": [{"when": "cost >= 500", "then": "dear"}], "else": "cheap"},
    "soon": {
        "case": [
            {"when": "gap <= 7 AND price = 'dear'", "then": "both"},
            {"when": "gap <= 7", "then": "soon"},
        ],
        "else": "no",
    },
}
OF_UNIT: dict[str, Any] = {
    "visits_n": {"count": "visits", "maximum": 5},
    "late_n": {"count": "visits", "where": "gap > 30"},
    "ever_i0": {"any": "diagnoses", "where": "code = 'I0'"},
    "spend": {"sum": "visits.cost", "minimum": 0, "maximum": 2500},
    "doses": {"sum": "drugs.dose", "minimum": 1, "maximum": 20},
    "last_kind": {"last": "visits.kind", "by": "admitted"},
    "seen": {"first": "visits.admitted"},
    "dearest": {"max": "visits.cost"},
}
TYPES: dict[str, dict[str, pa.DataType]] = {
    "patients": {"patient_id": pa.int64(), "sex": pa.string(), "region": pa.int64()},
    "visits": {
        "visit_id": pa.int64(),
        "patient_id": pa.int64(),
        "admitted": pa.date32(),
        "kind": pa.int64(),
        "cost": pa.int64(),
    },
    "drugs": {"rx_id": pa.int64(), "visit_id": pa.int64(), "drug": pa.string(), "dose": pa.float64()},
    "diagnoses": {"dx_id": pa.int64(), "visit_id": pa.int64(), "code": pa.string()},
    "drug_era": {"person_id": pa.int64(), "era": pa.int64()},
    "icd": {"code": pa.string(), "chapter": pa.int64()},
    "icd_block": {"code": pa.string(), "block": pa.int64()},
}
PUBLIC: Rows = {
    "icd": [{"code": f"I{n}", "chapter": n % 3} for n in range(6)],
    "icd_block": [{"code": f"I{n}", "block": (n + j) % 4} for n in range(6) for j in range(2)],
}
UNITS = 5
OUTSIDE = 99  # a unit that is always there, so that no table is ever empty


def schema() -> Schema:
    return parse_schema(DOCUMENT)


def derived_document() -> dict[str, Any]:
    """The same with derived columns of visits, and facts about patients."""
    document = deepcopy(DOCUMENT)
    document["tables"]["visits"]["derived"] = deepcopy(DERIVED)
    return document | {"of_unit": deepcopy(OF_UNIT)}


def derived_schema() -> Schema:
    return parse_schema(derived_document())


def database(random_seed: int) -> Rows:
    """Random rows of a few units, many of them as extreme as the bounds allow, and rows without an owner."""
    chance = random.Random(random_seed)  # noqa: S311 - of test data
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TYPES} | {k: list(v) for k, v in PUBLIC.items()}
    for unit in [*range(UNITS), OUTSIDE]:
        _unit(chance, rows, unit, most=1 if unit == OUTSIDE else chance.choice([0, 1, 6, 8, 10, 14]))
    rows["drugs"].append({"rx_id": 10**6, "visit_id": 10**6, "drug": "D0", "dose": 1.0})  # of no visit
    rows["visits"].append({"visit_id": None, "patient_id": None, "admitted": "2023-05-05", "kind": 0, "cost": 1})
    return rows


def _unit(chance: random.Random, rows: dict[str, list[dict[str, Any]]], unit: int, *, most: int) -> None:
    rows["patients"].append({"patient_id": unit, "sex": chance.choice("FM"), "region": chance.randrange(3)})
    spread, kinds = chance.choice("cspr"), chance.choice(["one", "cycle", "random"])
    value = chance.choice([1000, 1000, 0, None])
    drugs, codes = chance.choice(["one", "cycle", "random", "three"]), chance.choice(["one", "cycle", "random"])
    month0, kind0 = chance.randrange(12), chance.randrange(3)
    given = found = 0
    for j in range(most):
        month = {
            "c": month0,
            "s": (month0 + j) % 12,
            "p": month0 - month0 % 3 + j % 3,
            "r": chance.randrange(12),
        }[spread]
        visit = 100 * unit + j
        rows["visits"].append(
            {
                "visit_id": visit,
                "patient_id": unit,
                "admitted": f"2023-{month + 1:02d}-{chance.randrange(1, 28):02d}",
                "kind": {"one": kind0, "cycle": j % 3, "random": chance.randrange(3)}[kinds],
                "cost": chance.randrange(1001) if value is None else chance.choice([value, value, None]),
            }
        )
        for _ in range(chance.randrange(4)):
            at = {"one": 0, "cycle": given % 4, "random": chance.randrange(4), "three": given // 3 % 4}[drugs]
            rows["drugs"].append(
                {"rx_id": len(rows["drugs"]), "visit_id": visit, "drug": f"D{at}", "dose": chance.random() * 10}
            )
            given += 1
        for _ in range(chance.randrange(3)):
            at = {"one": 0, "cycle": found % 6, "random": chance.randrange(6)}[codes]
            rows["diagnoses"].append({"dx_id": len(rows["diagnoses"]), "visit_id": visit, "code": f"I{at}"})
            found += 1
    rows["drug_era"] += [{"person_id": unit, "era": chance.randrange(9)} for _ in range(most % 9)]


def without(rows: Rows, unit: int, *, cascade: bool) -> Rows:
    """Return the neighbor without a unit. Rows that find their owners through visits disappear or lose their owner."""
    gone = {row["visit_id"] for row in rows["visits"] if row["patient_id"] == unit}
    kept = dict(rows)
    kept["patients"] = [row for row in rows["patients"] if row["patient_id"] != unit]
    kept["visits"] = [row for row in rows["visits"] if row["patient_id"] != unit]
    kept["drug_era"] = [row for row in rows["drug_era"] if row["person_id"] != unit]
    for name in ("drugs", "diagnoses"):
        kept[name] = [row for row in rows[name] if not cascade or row["visit_id"] not in gone]
    return kept


def frames(rows: Rows) -> dict[str, pa.Table]:
    """The tables as Arrow has them."""
    found = {}
    for name, types in TYPES.items():
        columns = {}
        for column, kind in types.items():
            values = [row[column] for row in rows[name]]
            array = pa.array(values, pa.string()).cast(kind) if kind == pa.date32() else pa.array(values, kind)
            columns[column] = array
        found[name] = pa.table(columns)
    return found
