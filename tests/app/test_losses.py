"""Privacy parameters are read exactly, and none is ever assumed."""

from __future__ import annotations

import inspect
from fractions import Fraction
from pathlib import Path

import pytest
from tests.app.test_cli import sfumato

from sfumato.app.api.questions import LossFields, limit_of, loss_of, validate_fields
from sfumato.errors import InputError, LossError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho


def test_each_way_of_saying_a_loss() -> None:
    assert loss_of("0.1", None, None) == Epsilon(Fraction(1, 10))
    assert loss_of("1", "1e-9", None) == EpsilonDelta(1, Fraction(1, 10**9))
    assert loss_of(None, None, "1/3") == Rho(Fraction(1, 3))


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [
        (None, None, None),
        (None, "1e-9", None),
        ("1", None, "1"),
        ("1", "1e-9", "1"),
        (None, "1e-9", "1"),
        ("0", None, None),
        ("-1", None, None),
        ("nan", None, None),
        ("inf", None, None),
        ("", None, None),
        ("one", None, None),
        ("1", "1", None),
        ("1", "0", None),
        ("1e-13", None, None),
        ("1000001", None, None),
    ],
)
def test_what_says_no_loss_is_refused(epsilon, delta, rho) -> None:
    with pytest.raises(LossError):
        loss_of(epsilon, delta, rho)


def test_no_loss_has_a_default() -> None:
    assert all(
        parameter.default is inspect.Parameter.empty for parameter in inspect.signature(loss_of).parameters.values()
    )


def test_each_way_of_saying_a_limit() -> None:
    assert limit_of(None) is None
    assert limit_of("0.5") == Epsilon("0.5")
    assert limit_of("1,1e-9") == EpsilonDelta(1, "1e-9")
    assert limit_of("rho=0.5") == Rho("0.5")


@pytest.mark.parametrize("text", ["", ",", ",1e-9", "rho=", "rho=1,1e-9", "epsilon=1", "1,1e-9,2", "1,nan"])
def test_what_says_no_limit_is_refused(text) -> None:
    with pytest.raises(LossError):
        limit_of(text)


def test_an_unknown_field_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match=r"^gamma: ") as refusal:
        validate_fields(LossFields, {"epsilon": "1", "gamma": "s3cret"})
    assert "s3cret" not in str(refusal.value)


def test_a_field_beyond_its_limits_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match=r"^epsilon: .*at most 60"):
        validate_fields(LossFields, {"epsilon": "1" * 61})


def test_a_delta_is_short_in_a_loss_and_untouched_in_a_label(tmp_path: Path) -> None:
    label = "delta 1e-07"
    (tmp_path / "waves.csv").write_text("wave\n" + f"{label}\n" * 50)
    (tmp_path / "waves.yaml").write_text(
        f"{{sfumato: 1, unit: row, attributes: {{wave: {{type: categorical, values: [{label}], unknown: drop}}}}}}"
    )
    statement = "SELECT wave, COUNT(*) FROM waves WHERE wave = 'delta 1e-07' GROUP BY wave"
    loss = ("--epsilon", "1", "--delta", "1e-09", "--create", "--limit", "2,1e-09")
    done = sfumato("query", "waves.csv", statement, *loss, cwd=tmp_path)
    assert "delta = 1e-9" in done.stdout
    assert label in done.stdout


def test_a_loss_that_protects_nearly_nothing_is_called_so_before_the_charge(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text("wave\n" + "first\n" * 50)
    (tmp_path / "waves.yaml").write_text(
        "{sfumato: 1, unit: row, attributes: {wave: {type: categorical, values: [first], unknown: drop}}}"
    )
    words = "Before it is charged: this loss protects nearly nothing"
    for options, weak in (
        (("--epsilon", "100", "--delta", "1e-9"), True),
        (("--rho", "40"), True),
        (("--rho", "1"), False),
    ):
        given = (*options, "--ledger", f"{options[1]}.ledger", "--create", "--limit", "200,1e-09")
        done = sfumato("query", "waves.csv", "SELECT COUNT(*) FROM waves", *given, cwd=tmp_path)
        assert (words in done.stderr) == weak
