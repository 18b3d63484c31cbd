"""A release is judged by what it promises of itself, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfumato.errors import InputError
from sfumato.evaluate.released import Claim, parse_claim
from sfumato.evaluate.stated_claims import claim_of_file, claim_of_folder, stated_orders
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho


def statement(folder: Path, loss: dict[str, str | None], **more: object) -> Path:
    (folder / "release.json").write_text(json.dumps({"codebook": {"guarantee": {"loss": loss}}, **more}))
    return folder


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        ({"epsilon": "1", "delta": None, "rho": None}, Epsilon(1)),
        ({"epsilon": "1", "delta": "1e-9"}, EpsilonDelta(1, "1e-9")),
        ({"rho": "0.5"}, Rho("0.5")),
    ],
)
def test_a_folder_says_what_it_promises(tmp_path: Path, said: dict[str, str | None], loss: object) -> None:
    assert claim_of_folder(statement(tmp_path, said), None) == Claim(loss)  # type: ignore[arg-type]
    assert claim_of_folder(tmp_path, Claim(loss)) == Claim(loss)  # type: ignore[arg-type]


@pytest.mark.parametrize("claim", ["epsilon=0.5", "rho=1", "none", "k=5"])
def test_another_claim_contradicts_it(tmp_path: Path, claim: str) -> None:
    with pytest.raises(InputError, match="states epsilon = 1"):
        claim_of_folder(statement(tmp_path, {"epsilon": "1"}), parse_claim(claim))


def test_without_a_statement_the_claim_counts(tmp_path: Path) -> None:
    assert claim_of_folder(tmp_path, None) is None
    assert claim_of_folder(tmp_path, parse_claim("epsilon=2")) == Claim(Epsilon(2))
    assert claim_of_file(tmp_path / "rows.csv", Claim()) == Claim()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"codebook": {"guarantee": {"loss": {}}}}', '{"codebook": {"guarantee": {"loss": 1}}}']
)
def test_a_damaged_statement_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "release.json").write_text(text)
    with pytest.raises(InputError, match="damaged"):
        claim_of_folder(tmp_path, None)


def test_the_order_of_children_is_read_off_it(tmp_path: Path) -> None:
    children = [
        {"table": "visits", "order": {"by": "admitted", "falling": True}},
        {"table": "drugs", "order": None},
    ]
    statement(tmp_path, {"epsilon": "1"}, provenance={"parameters": {"children": children}})
    assert stated_orders(tmp_path) == {"visits": "admitted:falling", "drugs": ""}
