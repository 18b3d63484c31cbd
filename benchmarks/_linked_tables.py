"""Made-up linked tables of three kinds, for ``related.py``: few children, many children, and three levels.

Homes have strong ties between members.  Trips are long sequences.  Patients have
one visit in most cases, with a rare combination of columns: a visit without a readmission, and a later visit.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np


def listed(count: int) -> dict[str, Any]:
    """Return a category of the codes below ``count``."""
    return {"type": "categorical", "values": [str(code) for code in range(count)], "nullable": False, "unknown": "drop"}


def number(most: int) -> dict[str, Any]:
    """Return a number from 0 to ``most`` with a cell for each value."""
    return {"type": "integer", "minimum": 0, "maximum": most, "edges": list(range(most + 1)), "nullable": False,
            "unknown": "clamp"}  # fmt: skip


def write(place: Path, name: str, unit: str, tables: dict[str, Any], rows: dict[str, list[list[int]]]) -> None:
    """Write the tables as CSV files, and their schema."""
    (place / name).mkdir()
    units = next(iter(tables))
    schema = {"sfumato": 2, "schema": name, "unit": {"id": unit, "table": units}, "tables": tables}
    (place / f"{name}.yaml").write_text(json.dumps(schema), encoding="utf-8")
    for table, facts in tables.items():
        keys = [facts["key"]] if "key" in facts else []
        keys += [facts["unit"]] if "unit" in facts else list(facts.get("through", ()))
        with (place / name / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow([*keys, *facts["attributes"]])
            out.writerows(rows[table])


def homes(place: Path, units: int) -> None:
    """Write homes and members: partners of one age and education, and children without an occupation."""
    random = np.random.default_rng(1)
    rows: dict[str, list[list[int]]] = {"homes": [], "members": []}
    for home in range(units):
        age, learned, work = int(random.integers(4, 18)), int(random.integers(16)), int(random.integers(1, 15))
        people = [(age, int(random.integers(2)), learned, work)]
        if random.random() < 0.55:
            near = np.clip([age + random.integers(-1, 2), learned + random.integers(-2, 3)], 0, [17, 15])
            other = work if random.random() < 0.3 else int(random.integers(1, 15))
            people.append((int(near[0]), 1 - people[0][1], int(near[1]), other))
            for _ in range(min(5, random.poisson(1.2 if age < 12 else 0.3))):
                young = max(0, age - int(random.integers(4, 8)))
                grown = young >= 4
                people.append((young, int(random.integers(2)), *((learned, work) if grown else (0, 0))))
        earned = min(9, sum(member[2] for member in people) // 5 + int(random.integers(3)))
        rows["homes"].append([home, int(random.integers(9)), earned, int(random.random() < 0.2 + earned / 15)])
        rows["members"] += [[home, *member] for member in people]
    attributes = {"age": number(17), "sex": listed(2), "education": listed(16), "occupation": listed(15)}
    own = {"region": listed(9), "income": listed(10), "owns": listed(2)}
    tables = {
        "homes": {"key": "home", "attributes": own},
        "members": {"unit": "home", "rows": 8, "attributes": attributes},
    }
    write(place, "homes", "home", tables, rows)


def trips(place: Path, units: int) -> None:
    """Write people and their trips: up to 12, in chains whose steps depend on a class of people."""
    random = np.random.default_rng(2)
    steps = random.dirichlet(np.full(9, 0.25), size=(4, 9))
    rows: dict[str, list[list[int]]] = {"people": [], "trips": []}
    for person in range(units):
        kind, area, month = int(random.integers(4)), int(random.integers(5)), int(random.integers(12))
        rows["people"].append([person, kind if random.random() < 0.8 else int(random.integers(4)), area, month])
        purpose, hour = 0, 0
        for _ in range(1 + min(11, random.poisson(2 + 2 * kind))):
            purpose, hour = int(random.choice(9, p=steps[kind, purpose])), min(17, hour + int(random.integers(4)))
            mode = (purpose + int(random.choice(4, p=[0.6, 0.2, 0.15, 0.05]))) % 4
            rows["trips"].append([person, hour, purpose, mode, min(7, int(random.gamma(1.5, 1 + mode)))])
    attributes = {"hour": number(17), "purpose": listed(9), "mode": listed(4), "length": listed(8)}
    own = {"class": listed(4), "area": listed(5), "month": listed(12)}
    tables = {
        "people": {"key": "person", "attributes": own},
        "trips": {"unit": "person", "rows": 12, "attributes": attributes},
    }
    write(place, "trips", "person", tables, rows)


def patients(place: Path, units: int) -> None:
    """Write patients, visits and diagnoses: weak relations, and most patients have one visit."""
    random = np.random.default_rng(3)
    common = 1 / np.arange(1, 19)
    common /= common.sum()
    rows: dict[str, list[list[int]]] = {"patients": [], "visits": [], "diagnoses": []}
    for patient in range(units):
        frail, illness = random.random() ** 2, int(random.choice(18, p=common))
        rows["patients"].append([patient, int(random.choice(5, p=[0.75, 0.19, 0.02, 0.02, 0.02])),
                                 int(random.integers(2)), int(np.clip(random.normal(6.2, 1.7), 0, 9))])  # fmt: skip
        drugs = random.random(6) < [0.2, 0.12, 0.07, 0.3, 0.05, 0.5]
        visits = 1 + min(7, random.geometric(0.84 - 0.3 * frail) - 1)
        for time in range(visits):
            last = time == visits - 1
            again = int(random.choice(3, p=[0.62, 0.29, 0.09] if last else [0.06, 0.62, 0.32]))
            days = int(np.clip(random.gamma(1.6, 2 + 3 * frail), 0, 13))
            taken = [int(drug if random.random() < 0.8 else random.random() < 0.3) for drug in drugs]
            visit = len(rows["visits"])
            kind = int(random.choice(6, p=[0.53, 0.2, 0.18, 0.05, 0.03, 0.01]))
            rows["visits"].append([visit, patient, time, kind, days, again, *taken])
            for rank in range(1 + min(4, random.poisson(1.4 + 1.6 * frail))):
                code = illness if rank == 0 and random.random() < 0.55 else int(random.choice(18, p=common))
                rows["diagnoses"].append([visit, rank, code, int(random.random() < 0.3 + 0.3 * (code < 3))])
    drugs_taken = {f"drug{place}": listed(2) for place in range(6)}
    visit = {"time": number(7), "kind": listed(6), "days": number(13), "readmitted": listed(3), **drugs_taken}
    tables = {
        "patients": {"key": "patient", "attributes": {"race": listed(5), "sex": listed(2), "age": listed(10)}},
        "visits": {"key": "visit", "unit": "patient", "rows": 8, "attributes": visit},
        "diagnoses": {"through": {"visit": "visits"}, "rows": 24,
                      "attributes": {"rank": number(4), "code": listed(18), "chronic": listed(2)}},
    }  # fmt: skip
    write(place, "patients", "patient", tables, rows)
