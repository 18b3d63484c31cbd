"""The fingerprint follows the multiset of rows, not their order or batches."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.engine.encoding import Fingerprint, words_of

SHAPE = (1, 3, 1 << 16, 1, 1 << 31, 1 << 20, 5)
ROWS = st.lists(st.tuples(*(st.integers(0, size - 1) for size in SHAPE)), max_size=20)


def digest(rows, cuts=()):
    found = Fingerprint(SHAPE)
    for part in np.split(np.asarray(rows, dtype=np.uint64).reshape(-1, len(SHAPE)), sorted(cuts)):
        found.add(list(part.T), [])
    return found.digest("key")


@given(ROWS, st.randoms(use_true_random=False), st.lists(st.integers(0, 20), max_size=3))
def test_order_and_batches_do_not_matter(rows, random, cuts):
    shuffled = random.sample(rows, len(rows))
    assert digest(rows) == digest(shuffled, cuts)


@given(ROWS, st.data())
def test_any_changed_row_matters(rows, data):
    row = data.draw(st.tuples(*(st.integers(0, size - 1) for size in SHAPE)))
    assert digest([*rows, row]) != digest(rows)
    if rows and row != rows[0]:
        assert digest([row, *rows[1:]]) != digest(rows)


def test_the_same_row_twice_does_not_cancel():
    row = (0, 1, 2, 0, 3, 4, 0)
    assert len({digest([row] * times) for times in range(9)}) == 9


def test_nan_and_zero_have_one_word_each():
    words = words_of(np.array([0.0, -0.0, np.nan, -np.nan, 1.0]))
    assert words[0] == words[1]
    assert words[2] == words[3]
    assert len(set(words.tolist())) == 3


def test_the_key_matters():
    found = Fingerprint((2,))
    found.add([np.array([1], np.uint8)], [])
    assert found.digest("a") != found.digest("b")


def test_attributes_of_one_cell_alone_tell_numbers_of_rows_apart():
    digests = set()
    for rows in (1, 2):
        found = Fingerprint((1, 1))
        found.add([np.zeros(rows, np.uint8)] * 2, [])
        digests.add(found.digest("key"))
    assert len(digests) == 2


def spelled_out(rows, values, key):
    """The digest in integers of Python, row by row, as journals have known it since the first of them."""

    def mix(word):
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    sums = []
    for seed in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F):
        total = 0
        for row, value in zip(rows, values, strict=True):
            words, cells = [], 2**64
            for code, size in zip(row, SHAPE, strict=True):
                if cells * size > 2**63:
                    words.append(code)
                    cells = size
                else:
                    words[-1] = words[-1] * size + code
                    cells *= size
            mixed = seed
            for word in [*words, value]:
                mixed = (mix(mixed ^ word) + seed) % 2**64
            total += mix(mixed)
        sums.append(total % 2**64)
    return hashlib.sha256(f"{key} {len(rows)} {sums[0]} {sums[1]}".encode()).hexdigest()


def test_the_digest_is_what_it_is_spelled_out_across_blocks():
    random = np.random.default_rng(3)
    rows = 40_000  # blocks of several sizes are mixed
    codes = [random.integers(0, size, rows) for size in SHAPE]
    values = random.integers(0, 2**63, rows).astype(np.uint64)
    found = Fingerprint(SHAPE)
    found.add(codes, [values])
    plain = list(zip(*(column.tolist() for column in codes), strict=True))
    assert found.digest("key") == spelled_out(plain, values.tolist(), "key")
