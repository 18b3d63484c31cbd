"""The bundled tables are what their sources say, and fit their domains."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from sfumato import data
from sfumato.errors import InputError

KNOWN = """Aardvark 1, Albatross 88, Alligator 35, Alpaca 99, Ant 69, Anteater 14, Antelope 77, Ape 53, Armadillo 94,
Baboon 67, Badger 92, Barracuda 87, Bat 70, Bear 31, Beaver 14, Bee 14, Bison 61, Boar 57, Buffalo 68, Butterfly 13,
Camel 21, Caribou 38, Cat 92, Caterpillar 39, Cattle 46, Chamois 36, Cheetah 23, Chicken 76, Chimpanzee 8, Wren 55,
Yak 60, Zebra 7"""


def test_child_mental_health_is_the_published_table(shared_data):
    with (shared_data / "child_mental_health" / "counts.csv").open() as file:
        published = {(int(row["age"]), int(row["satisfaction"])): int(row["count"]) for row in csv.DictReader(file)}
    counts = data.child_mental_health_counts()
    assert {cell: int(count) for cell, count in np.ndenumerate(counts)} == published
    with (shared_data / "child_mental_health" / "queries_1d.csv").open() as file:
        queries = tuple((int(row["low"]), int(row["high"])) for row in csv.DictReader(file))
    assert data.child_mental_health_queries() == queries


def test_child_mental_health_unrolls_to_one_row_a_person():
    table = data.child_mental_health()
    assert table.num_rows == 1_013_184
    cells = table["age"].to_numpy() * 4 + table["satisfaction"].to_numpy()
    np.testing.assert_array_equal(np.bincount(cells).reshape(14, 4), data.child_mental_health_counts())


def test_the_sixty_queries_are_distinct_ranges():
    queries = data.child_mental_health_queries()
    assert len(set(queries)) == 60
    assert all(0 <= low <= high <= 13 for low, high in queries)


def test_medical_and_its_neighbour_differ_by_one_patient():
    counts = [
        [table["age"].to_pylist().count(band) for band in data.domain("medical")["age"].labels()]
        for table in (data.medical(), data.medical_neighbour())
    ]
    assert counts == [[405, 436, 421, 457, 463], [405, 435, 421, 457, 463]]


def test_zoo_has_what_is_known_of_it():
    table = data.zoo()
    carrots = dict(zip(table["animal"].to_pylist(), table["carrots"].to_pylist(), strict=True))
    assert len(carrots) == table.num_rows
    assert table.num_rows == 182
    assert sum(eaten >= 55 for eaten in carrots.values()) == 90
    assert carrots["Dugong"] > 55
    assert [animal for animal, eaten in carrots.items() if eaten == 55] == ["Wren"]
    assert [animal for animal, eaten in carrots.items() if 50 <= eaten < 55] == ["Ape"]
    for entry in KNOWN.replace("\n", " ").split(","):
        animal, eaten = entry.split()
        assert carrots[animal] == int(eaten)
    assert all(0 <= eaten <= 100 for eaten in carrots.values())


def test_zoo_and_its_neighbour_differ_by_dugong():
    animals = data.zoo()["animal"].to_pylist()
    assert data.zoo_neighbour()["animal"].to_pylist() == [animal for animal in animals if animal != "Dugong"]


def test_bundled_domains_are_accepted():
    for name in ("adult", "child_mental_health", "medical", "zoo"):
        data.domain(name).refuse_draft()
    with pytest.raises(InputError, match="no bundled table"):
        data.domain("moon")
