"""A schema of patients, their visits and diagnoses, and its tables as files."""

from __future__ import annotations

SCHEMA = {
    "sfumato": 2,
    "schema": "hospital",
    "unit": {"id": "patient_id", "table": "patients"},
    "tables": {
        "patients": {
            "key": "patient_id",
            "attributes": {
                "sex": {"type": "categorical", "values": ["F", "M"], "unknown": "drop"},
                "region": {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "drop"},
            },
        },
        "visits": {
            "key": "visit_id",
            "unit": "patient_id",
            "rows": 3,
            "attributes": {"cost": {"type": "integer", "minimum": 0, "maximum": 1000, "unknown": "clamp"}},
        },
        "diagnoses": {
            "key": "dx_id",
            "through": {"visit_id": "visits"},
            "references": {"code": "icd"},
            "rows": 6,
            "attributes": {"code": {"type": "categorical", "values": ["I0", "I1", "I2"], "unknown": "drop"}},
        },
        "icd": {
            "public": True,
            "key": "code",
            "attributes": {"chapter": {"type": "categorical", "values": ["heart", "lung"], "unknown": "drop"}},
        },
    },
}


def write_hospital(folder, seed=1):
    folder.mkdir(exist_ok=True)
    tables = {
        "patients": ["patient_id,sex,region", *(f"{n},{'FM'[n % 2]},{n % 4}" for n in range(400))],
        "visits": ["visit_id,patient_id,cost", *(f"{n},{n % 400},{n * seed % 1001}" for n in range(800))],
        "diagnoses": ["dx_id,visit_id,code", *(f"{n},{n % 800},I{n % 3}" for n in range(1200))],
        "icd": ["code,chapter", "I0,heart", "I1,heart", "I2,lung"],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder
