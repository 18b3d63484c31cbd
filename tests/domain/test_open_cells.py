"""An open last cell of a number, with a public typical value."""

from __future__ import annotations

import pytest

from sfumato.domain import Domain, Integer, Real, Unknown, dump, parse
from sfumato.errors import DomainError
from sfumato.strict_documents import read_yaml

INCOME = Integer(
    name="income", minimum=0, maximum=10**7, edges=(0, 1000, 500_000), unknown=Unknown.CLAMP, typical=650_000
)
PAY = Real(name="pay", edges=(0.0, 10.0, 5000.0), unknown=Unknown.CATEGORY, nullable=True, typical=25.5)


def test_a_domain_file_says_it_and_is_read_back():
    domain = Domain((INCOME, PAY))
    text = dump(domain)
    assert "typical: 650000" in text
    assert parse(read_yaml(text)) == domain
    assert parse(read_yaml(text)).hash == domain.hash


def test_without_it_a_domain_says_and_hashes_what_it_did():
    closed = Domain((Integer(name="income", minimum=0, maximum=9, edges=(0, 5), unknown=Unknown.CLAMP),))
    assert "typical" not in dump(closed)
    assert closed.hash == "3a1a211383f18a88e8ca1354f8429263fc054827d0afa7e6059f85b8d631def5"


@pytest.mark.parametrize(
    ("edges", "typical"),
    [((0, 1000, 500_000), 499_999), ((0, 1000), 10**8), ((0, 1000), True), ((0, 1000), 2000.5), (None, 500)],
)
def test_a_typical_value_outside_the_last_cell_is_refused(edges, typical):
    with pytest.raises(DomainError, match="typical value of 'income'"):
        Integer(name="income", minimum=0, maximum=10**7, edges=edges, unknown=Unknown.CLAMP, typical=typical)


@pytest.mark.parametrize("typical", [9.0, 5001.0, float("nan"), float("inf"), True])
def test_a_typical_real_outside_the_last_cell_is_refused(typical):
    with pytest.raises(DomainError, match="typical value of 'pay'"):
        Real(name="pay", edges=(0.0, 10.0, 5000.0), unknown=Unknown.DROP, typical=typical)


@pytest.mark.parametrize("attribute", ["{type: categorical, values: [a], unknown: drop, typical: 3}"])
def test_a_category_has_none(attribute):
    with pytest.raises(DomainError, match="typical"):
        parse(read_yaml(f"sfumato: 1\nunit: row\nattributes:\n  x: {attribute}\n"))


@pytest.mark.parametrize("body", [f"edges: [0, 1{'0' * 400}]", f"edges: [0, 1], typical: 1{'0' * 400}"])
def test_whole_numbers_beyond_all_floats_are_refused_as_bounds(body):
    text = f"sfumato: 1\nunit: row\nattributes:\n  pay: {{type: real, {body}, unknown: clamp}}\n"
    with pytest.raises(DomainError, match="'pay' has an edge, a point or a typical value beyond"):
        parse(read_yaml(text))
