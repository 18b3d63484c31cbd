"""Numbers from NumPy, as a loop over an array hands them over, do what Python's own do."""

import numpy as np
import pytest

from sfumato.anonymize import KAnonymity
from sfumato.arguments import expect, parse_integer
from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import DomainError, InputError
from sfumato.local import Distribution, HeavyHitters, KeyValue, Range, dumps


@pytest.mark.parametrize(
    ("numpys", "own"),
    [
        (Range.design(np.int64(64), epsilon=np.float64(1), fanout=np.int8(4)), Range.design(64, epsilon=1, fanout=4)),
        (
            HeavyHitters.design(bits=np.uint8(16), text=False, epsilon=1),
            HeavyHitters.design(bits=16, text=False, epsilon=1),
        ),
        (
            Distribution.design(0, np.float64(10), bins=np.int64(16), epsilon=1),
            Distribution.design(0, 10, bins=16, epsilon=1),
        ),
        (
            KeyValue.design(np.int64(5), np.float64(0), 1, epsilon=1, pairs=np.int64(2)),
            KeyValue.design(5, 0, 1, epsilon=1, pairs=2),
        ),
    ],
)
def test_specs_of_numpys_numbers_are_written_as_those_of_pythons(numpys, own):
    assert numpys == own
    assert dumps(numpys) == dumps(own)


def test_a_k_from_an_array_is_pythons():
    assert repr(KAnonymity(np.arange(6)[5])) == repr(KAnonymity(5))


@pytest.mark.parametrize("bad", [True, np.True_, 2.0, np.float64(2), "2", None, np.array([2]), np.array(2)])
def test_what_is_no_whole_number_is_refused(bad):
    with pytest.raises(InputError, match="rows are a whole number, not"):
        parse_integer(bad, "rows are a whole number")


def test_a_real_number_may_be_numpys():
    expect(np.float32(0.5), int | float, "weights are numbers")
    with pytest.raises(InputError):
        expect(np.complex64(1), int | float, "weights are numbers")


def test_a_refusal_does_not_list_hundreds_of_names() -> None:
    wide = Domain(tuple(Integer(name=f"c{n}", minimum=0, maximum=1, unknown=Unknown.CLAMP) for n in range(300)))
    with pytest.raises(DomainError, match=r"it has c0, c1, .*c19 and 280 others$"):
        wide.index("c300")
    few = Domain(wide.attributes[:21])
    with pytest.raises(DomainError, match=r"it has c0, c1, .*c19, c20$"):
        few.index("c300")
