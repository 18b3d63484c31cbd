from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.vault.tables import TINY, table

from sfumato.engine.arrays import ArrayTable
from sfumato.engine.exact import reveal
from sfumato.errors import BudgetError, DomainError, LedgerError, QueryError, VersionError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.vault.interface import ReleaseRequest, decode, encode
from sfumato.vault.measurables import Counting, Marginal
from sfumato.vault.mechanisms import ExactTables
from sfumato.vault.scores import AbsoluteErrors
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault


@pytest.fixture
def vault(tmp_path: Path):
    with open_ledger(f"sqlite:///{tmp_path / 'tiny.ledger'}", dataset="tiny", limit=Epsilon(1), create=True) as ledger:
        yield Vault(table([(0, 0)] * 30 + [(1, 1)] * 12), ledger, UNDECLARED)


def test_a_mechanism_is_charged_once_and_its_repetition_is_free_and_the_same(vault) -> None:
    (first,) = vault.measure([Marginal(("a",))], Epsilon("0.25"))
    (again,) = vault.measure([Marginal(("a",))], Epsilon("0.25"))
    assert (first.values == again.values).all()
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 4)
    (other,) = vault.measure([Marginal(("b",))], Epsilon("0.25"))
    assert other.values.shape == (2,)
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 2)
    assert len(list(vault.ledger.journal())) == 2


def test_a_refused_mechanism_costs_nothing_and_answers_nothing(vault) -> None:
    with pytest.raises(BudgetError):
        vault.measure([Marginal(())], Epsilon("1.0000001"))
    assert vault.ledger.remaining().spent.epsilon == 0
    vault.measure([Marginal(())], Epsilon(1))


def test_candidates_that_cannot_be_compared_cost_nothing(vault) -> None:
    scores = AbsoluteErrors(Counting(("a",), np.eye(2, dtype=bool)), np.zeros(3, dtype=np.int64))
    with pytest.raises(QueryError):
        vault.select(scores, Epsilon(1))
    assert vault.ledger.remaining().spent.epsilon == 0


def test_select_and_threshold_are_journalled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'approximate.ledger'}"
    with open_ledger(url, dataset="tiny", limit=EpsilonDelta(8, "1e-3"), create=True) as ledger:
        vault = Vault(table([(0, 0)] * 300), ledger, UNDECLARED)
        scores = AbsoluteErrors(Counting(("a",), np.eye(2, dtype=bool)), np.zeros(2, dtype=np.int64))
        assert vault.select(scores, Epsilon(1)) == vault.select(scores, Epsilon(1)) == 0
        keys = vault.threshold(("a",), EpsilonDelta("0.5", "1e-6"))
        assert keys["a"].to_pylist() == ["0"]
        assert keys.equals(vault.threshold(("a",), EpsilonDelta("0.5", "1e-6")))
        assert [entry.method for entry in ledger.journal()] == ["select", "threshold"]
        assert ledger.remaining().spent.delta == Fraction(1, 10**6)


def test_a_method_cannot_spend_more_than_it_reserved(vault) -> None:
    def greedy(mechanisms):
        mechanisms.measure([Marginal(())], Epsilon("0.3"))
        mechanisms.measure([Marginal(())], Epsilon("0.3"))
        return {}

    with pytest.raises(BudgetError, match="reserved"):
        vault.release(ReleaseRequest("test", "greedy", {}), Epsilon("0.5"), greedy)
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 2), "what was reserved stays charged"


def test_rows_of_a_method_are_drawn_anew_in_every_release(vault) -> None:
    """The entropy is the operating system's; a simulation repeats its rows."""
    drawn = []

    def method(mechanisms):
        drawn.extend(mechanisms.generator().integers(1 << 62) for _ in range(2))
        return {"nothing": np.zeros(1)}

    for part in ("0.1", "0.2"):
        vault.release(ReleaseRequest("test", "drawing", {}), Epsilon(part), method)
    assert len(set(drawn)) == 4
    rows = ArrayTable(vault.domain, np.zeros((1, len(vault.domain)), dtype=np.int64))
    simulated = [SimulatedVault(rows, seed=7) for _ in range(2)]
    again = [one.mechanisms(Epsilon(1)).generator().integers(1 << 62) for one in simulated]
    assert again[0] == again[1]


def test_a_failure_inside_a_method_stays_charged(vault) -> None:
    def broken(mechanisms):
        mechanisms.measure([Marginal(())], Epsilon("0.1"))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        vault.release(ReleaseRequest("test", "broken", {}), Epsilon("0.5"), broken)
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 2)


def test_a_pure_ledger_refuses_gaussian_noise_for_free(vault) -> None:
    from sfumato.errors import LossError

    with pytest.raises(LossError, match="pure epsilon"):
        vault.measure([Marginal(())], Rho("0.01"))
    assert vault.ledger.remaining().spent.epsilon == 0


def test_disclosure_stands_in_the_journal_without_a_guarantee(vault) -> None:
    def run(encoded):
        (counts,) = encoded.marginals([("a",)])
        return {"classes": reveal(counts)}

    settled = vault.disclose(ReleaseRequest("anonymize", "test", {"k": 5}), run, statement="5-anonymity on a")
    assert settled.payload["classes"].tolist() == [30, 12]
    (entry,) = vault.ledger.journal()
    assert entry.event.statement == "no DP guarantee: 5-anonymity on a"
    assert entry.event.charge is None


def test_analysts_pay_their_own_caps(vault) -> None:
    vault.ledger.set_cap("alice", Epsilon("0.2"))
    alice = vault.for_analyst("alice")
    alice.measure([Marginal(())], Epsilon("0.2"))
    with pytest.raises(BudgetError):
        alice.measure([Marginal(("a",))], Epsilon("0.1"))
    vault.for_analyst("bob").measure([Marginal(("a",))], Epsilon("0.1"))


def test_another_version_of_the_data_is_another_question(vault) -> None:
    vault.measure([Marginal(())], Epsilon("0.1"))
    number = vault.ledger.declare_version("content", by="ann", new=False).number
    with pytest.raises(VersionError, match="nothing was charged"):
        vault.measure([Marginal(("a",))], Epsilon("0.1"))
    dataclasses.replace(vault, version=str(number)).measure([Marginal(())], Epsilon("0.1"))
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 5)


def test_a_draft_is_refused(vault) -> None:
    from sfumato.domain import Domain
    from sfumato.engine.arrays import ArrayTable

    draft = ArrayTable(Domain(TINY.attributes, draft=True), np.zeros((1, 2), dtype=np.int64))
    with pytest.raises(DomainError, match="draft"):
        Vault(draft, vault.ledger, UNDECLARED)


def test_exact_results_are_sealed() -> None:
    (sealed,) = table([(0, 0)] * 7).marginals([("a",)])
    assert "7" not in repr(sealed)
    for leak in (lambda: pickle.dumps(sealed), lambda: sealed == 7, lambda: bool(sealed), lambda: hash(sealed)):
        with pytest.raises(TypeError):
            leak()


def test_nothing_that_holds_exact_counts_can_be_pickled_or_copied(vault) -> None:
    vault.measure([Marginal(("a",))], Epsilon("0.1"))
    assert "30" not in re.sub(r"0x[0-9a-f]+", "", repr(vault)), "addresses apart, no count shows"
    answers = ExactTables(vault.encoded)
    answers.answers([Marginal(("a",))])
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(answers)


def test_payloads_come_back_as_they_were_and_broken_ones_are_refused() -> None:
    payload = {"table": np.arange(6).reshape(2, 3), "name": "x", "parts": [1, 2.5, None]}
    back = decode(encode(payload))
    assert (back.pop("table") == payload["table"]).all()
    assert back == {"name": "x", "parts": [1, 2.5, None]}
    with pytest.raises(LedgerError):
        decode(b"not a payload")
    with pytest.raises(LedgerError):
        decode(encode(payload)[:-30])
    for foreign in (np.zeros(2, dtype=np.complex128), np.zeros(2, dtype="V4")):
        with pytest.raises(LedgerError, match="read back"):
            decode(encode({"values": foreign}))


def test_a_large_answer_is_stored_in_little_time_at_nearly_the_usual_size() -> None:
    counts = np.random.default_rng(0).poisson(3, 50_000)
    stored = encode({"counts": counts})
    assert (decode(stored)["counts"] == counts).all()
    assert len(stored) < 1.25 * len(zlib.compress(counts.tobytes()))
    assert stored[2] >> 6 == 1, "zlib's header says that a fast level was used"
    usual = stored[:1] + zlib.compress(zlib.decompress(stored[1:]))
    assert (decode(usual)["counts"] == counts).all(), "ledgers of earlier versions hold such answers"


@pytest.mark.parametrize("least", [-129, -128, -(1 << 31) - 1, -(1 << 63), 0])
@pytest.mark.parametrize("most", [0, 127, 128, 1 << 15, (1 << 31) - 1, (1 << 63) - 1])
@pytest.mark.parametrize("kind", ["<i8", ">i8", "<i4"])
def test_many_whole_numbers_come_back_in_their_type_however_they_are_stored(least: int, most: int, kind: str) -> None:
    bounds = np.iinfo(kind)
    counts = np.array([max(least, int(bounds.min)), min(most, int(bounds.max)), *[1] * 5000], dtype=kind).reshape(2, -1)
    back = decode(encode({"counts": counts}))["counts"]
    assert back.dtype == counts.dtype
    assert back.flags.writeable
    np.testing.assert_array_equal(back, counts)


def _stored(arrays: list[list[object]], content: bytes) -> bytes:
    return b"p" + json.dumps({"values": {}, "arrays": arrays}).encode() + b"\n" + content


def test_answers_of_earlier_versions_are_read_and_narrow_ones_that_lie_are_refused() -> None:
    counts = np.arange(-3, 3)
    earlier = _stored([["counts", "<i8", [6]]], counts.tobytes())
    np.testing.assert_array_equal(decode(earlier)["counts"], counts)
    narrow = counts.astype(np.int8).tobytes()
    np.testing.assert_array_equal(decode(_stored([["counts", "<i8", [6], "|i1"]], narrow))["counts"], counts)
    for dtype, held in (("<f8", "|i1"), ("<i8", "|u1"), ("<i8", "|V1"), ("<M8[D]", "|i1")):
        with pytest.raises(LedgerError):
            decode(_stored([["counts", dtype, [6], held]], narrow))
    assert decode(_stored([["counts", "<i8", [6], "|i1"]], narrow), most=48)
    with pytest.raises(LedgerError):
        decode(_stored([["counts", "<i8", [6], "|i1"]], narrow), most=47)
