"""Small hospitals as files: patients with visits, and what was given at each, in which all is tied to all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sfumato.domain.table_schema import Schema, parse_schema

DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "hospital",
    "unit": {"id": "patient_id", "table": "patients"},
    "tables": {
        "patients": {
            "key": "patient_id",
            "attributes": {
                "sex": {"type": "categorical", "values": ["F", "M"], "unknown": "drop"},
                "region": {"type": "integer", "minimum": 0, "maximum": 2, "unknown": "drop"},
            },
        },
        "visits": {
            "key": "visit_id",
            "unit": "patient_id",
            "rows": 4,
            "attributes": {
                "admitted": {
                    "type": "date",
                    "first": "2023-01-01",
                    "last": "2023-12-31",
                    "by": "month",
                    "unknown": "drop",
                },
                "cost": {"type": "integer", "minimum": 0, "maximum": 4, "unknown": "clamp"},
                "ward": {"type": "categorical", "values": ["A", "B", "C"], "unknown": "drop"},
            },
        },
        "drugs": {
            "through": {"visit_id": "visits"},
            "rows": 3,
            "attributes": {"drug": {"type": "categorical", "values": ["D0", "D1"], "unknown": "drop"}},
        },
        "wards": {
            "public": True,
            "key": "ward",
            "attributes": {"floor": {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "drop"}},
        },
    },
}


def schema() -> Schema:
    return parse_schema(DOCUMENT)


def write_hospital(folder: Path, *, patients: int = 300, seed: int = 0, drugs: bool = True) -> Path:
    """Patients whose wards follow their region, whose costs follow the visit before, more of them in some regions."""
    luck = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    people, visits, given = ["patient_id,sex,region"], ["visit_id,patient_id,admitted,cost,ward"], ["visit_id,drug"]
    number = 0
    for patient in range(patients):
        region = int(luck.integers(3))
        people.append(f"{patient},{'FM'[luck.integers(2)]},{region}")
        cost = int(luck.integers(5))
        for month in np.sort(luck.choice(12, int(luck.integers(region, region + 3)), replace=False)):
            cost = cost if luck.random() < 0.8 else int(luck.integers(5))
            ward = "ABC"[region] if luck.random() < 0.8 else "ABC"[luck.integers(3)]
            visits.append(f"v{number},{patient},2023-{month + 1:02}-{luck.integers(1, 28):02},{cost},{ward}")
            given += [f"v{number},D{int(cost > 2)}" for _ in range(luck.integers(3))]
            number += 1
    files = {"patients": people, "visits": visits} | ({"drugs": given} if drugs else {})
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder
