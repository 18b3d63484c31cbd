"""The canonical form of each kind of question, as ledgers know it: what changes it charges again for old answers."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.ledger import Question
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho
from sfumato.strict_documents import canonical as spelled
from sfumato.vault.measurables import Counting, Distance, Marginal, Weighted
from sfumato.vault.release import loss_json
from sfumato.vault.scores import AbsoluteErrors, MarginalErrors, RankErrors
from sfumato.vault.unit_measurables import Dropped, Units
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

WHERE = All((Any((Among("b", frozenset({2, 0})), Not(Among("a", frozenset({1}))))), Among("a", frozenset({0}))))
COUNTING = Counting(("a", "b"), np.array([[1, 0, 1, 1], [0, 0, 1, 0]], dtype=bool))
NEAR = Distance(("a", "b"), np.arange(4), groups=(None, (0, 0)))
QUESTIONS = {
    "count": Marginal(()),
    "marginal": Marginal(("a", "b"), where=WHERE),
    "coarse marginal": Marginal(("a", "b"), groups=((0, 1), None)),
    "counting": COUNTING,
    "weighted": Weighted(("a",), np.array([[3, -1], [0, 5]])),
    "distance": Distance(("a",), np.array([2, 0])),
    "coarse distance": NEAR,
    "sum": Sum("b", ("a",), Fraction(1, 3), WHERE),
    "moments": Moments("b", (), Fraction(1, 2), 2),
    "positions": Positions("b", Fraction(1, 2), (3, 5)),
    "round numbers": RoundNumbers("b", (5, 10)),
    "units": Units(("b", "a"), Among("b", frozenset({1}))),
    "bins": Bins("b", (-2.0, -0.5, 1.0), ("a",)),
    "many bins": Bins("b", tuple(float(edge) for edge in range(70)), ("a",), WHERE),
    "dropped": Dropped(3, WHERE),
    "absolute errors": AbsoluteErrors(COUNTING, np.array([4, -1])),
    "marginal errors": MarginalErrors((NEAR,), (Fraction(1, 3),), (Fraction(5, 2),)),
    "rank errors": RankErrors("b", Fraction(1, 4), (-2.0, 1.0), 8, WHERE),
}
LATER = ("positions", "round numbers")  # kinds that did not exist when the key below was recorded
COARSE = {
    "coarse sum": Sum("b", ("a",), Fraction(1, 3), groups=((0, 0),)),
    "coarse moments": Moments("b", ("a",), Fraction(1, 2), 2, groups=((0, 0),)),
    "coarse units": Units(("b", "a"), groups=(None, (0, 0))),
    "coarse bins": Bins("b", (-2.0, -0.5, 1.0), ("a",), groups=((0, 0),)),
}
LOSSES = {
    "epsilon": Epsilon("0.1"),
    "rho": Rho("1/3"),
    "both": EpsilonDelta(1, "1e-9"),
    "charge": Charge(Fraction(1, 2), Fraction(1, 8), Fraction(1, 10**6)),
    "zero-concentrated charge": Charge(None, Fraction(1, 8), Fraction(0)),
}

IDENTITIES = {
    "count": "1bd5630ece4e1f8358187ca7ae77ae27343ac58168c36684790b987b611c64f1",
    "marginal": "830f27bacc936be2498cbeeba191887f0d7a4b5eff9e043010672330a6a282d0",
    "coarse marginal": "4dd9ff6e312bd998e6de3820a9ff5cfb954c85d5a320b34a356206c6e194ebba",
    "counting": "acb20e54bbedd4ea0312fd8f026b1dc9fe0f0d037f4a81e65d6241b36adc658a",
    "weighted": "2383764c84d184c7de6f9a0830ba8e8c3735a25044a742bf847f848314f20e0d",
    "distance": "4fb121bc0d0ba650b39ac3374cf488469908eeff48d1377ea9c8d24152eaed52",
    "coarse distance": "85efbc44e2be00057b321da2905c9dc537b728f88d1206197792ed7d247b033c",
    "sum": "ae03ca528a4e7662e573750f4a31fb0b759254001e0a4ce8d6f5f72efd2bc8a3",
    "moments": "6c067ad774c92a2ae2dbf4180c1774fad1e95ee0d574f84300ee5e3eab943988",
    "positions": "b8bcecf8d921533d79579ff5a1feea51f3be3fee29f9bd15eae5e7da6098c74c",
    "round numbers": "276e85fd9402044a2ccb6dbcedbe6c3ff9c6dba19355b2a6551a7bfbdedf8a61",
    "units": "3aa15b86af40c8a274c4246531c89ac3da730ef118315c02454f0cbde269e482",
    "bins": "830a96e4846b8a113187176d9c0b99119b5b4b3c012e911c3bb0849ad9b32515",
    "many bins": "358a8523a891c488d42265aee3a7cb8308f88fe46140c4207127201ff0602079",
    "dropped": "d99b287ed79fb7411f235eaecccd5c5c64dbd044f2223131ab1e43d6bb973619",
    "absolute errors": "1e3a5f08c2b7a06627997d0cb4976bec301104c0d7b974ccd7a7184c8a53f036",
    "marginal errors": "9cc5601286ec644148366dc1dbecae2b053679dae601e6ecb6054e33ac46b4a2",
    "rank errors": "4b75b57c65ef2f767669508ac6053a74d1a6b4c29c0f4f5c926432a4402f1a2f",
    "coarse sum": "0c6aeef0cd0af9158a83da24604b39dc347423e56d7f9d62c99d31dd0d48255a",
    "coarse moments": "8b242c08e48732cc47b04b8a289f493bbd4c9589ad1ddefc01114e6d27d847e9",
    "coarse units": "8f37c14498f54c1e52f968e81c29ec89d39c26df504e70ec46821faa33d19190",
    "coarse bins": "7c8f08d1e5ced6ad3608fc354a10598aa5dc30bc92adfe6902fd6b1079a4c76b",
}
SPELLED = {
    "epsilon": '{"epsilon":"0.1"}',
    "rho": '{"rho":"1/3"}',
    "both": '{"delta":"1e-09","epsilon":"1"}',
    "charge": '{"delta":"1e-06","epsilon":"0.5","rho":"0.125"}',
    "zero-concentrated charge": '{"delta":"0","epsilon":null,"rho":"0.125"}',
}


@pytest.mark.parametrize("name", QUESTIONS | COARSE)
def test_a_question_keeps_its_canonical_form(name) -> None:
    asked = (QUESTIONS | COARSE)[name]
    assert hashlib.sha256(spelled(asked.canonical()).encode()).hexdigest() == IDENTITIES[name]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_keeps_its_canonical_form(name) -> None:
    assert spelled(loss_json(LOSSES[name])) == SPELLED[name]


def test_the_name_of_a_whole_question_stays() -> None:
    parameters = {
        "questions": [asked.canonical() for name, asked in QUESTIONS.items() if name not in LATER],
        "shares": None,
        "loss": loss_json(Epsilon("0.1")),
    }
    assert (
        Question("vault", "measure", parameters, "version").key
        == "1243e4aecc459851f68463ff1497652cbb6e4674a70c62b5475e604a1e01760f"
    )
