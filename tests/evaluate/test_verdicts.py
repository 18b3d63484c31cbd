"""Verdicts against thresholds that are written out here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import Candidate, frontier
from sfumato.evaluate.intervals import ConfidenceInterval, Proportion
from sfumato.evaluate.released import Claim, Released
from sfumato.evaluate.verdicts import Verdict, accuracy_verdicts, judged, risk_verdicts, worst


@pytest.fixture(scope="module")
def results(everyone) -> tuple[EvaluationResult, ...]:
    same = Candidate("same", "sample", Claim(), Released.raw)
    return frontier([same], everyone, target="rich", seed=0).results


@pytest.fixture(scope="module")
def release(results) -> EvaluationResult:
    return results[-1]


def accuracy(release: EvaluationResult, results) -> dict[str, Verdict]:
    return {each.question: each.verdict for each in accuracy_verdicts(release, results)}


def test_the_table_itself_is_good(release, results):
    found = accuracy(release, results)
    assert len(found) == 5
    assert set(found.values()) == {Verdict.GOOD}
    assert list(judged(results)) == ["same"]


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(0.019, Verdict.GOOD), (0.021, Verdict.WITH_CARE), (0.049, Verdict.WITH_CARE), (0.051, Verdict.NOT_FOR_USE)],
)
def test_a_column_is_judged_by_its_worst_cell(release, results, off, verdict):
    name = release.attributes[0]
    shares = list(release.real_columns[name])
    wrong = replace(release, columns={**release.columns, name: (shares[0] + off, *shares[1:])})
    assert accuracy(wrong, results)["Counts by one column"] is verdict


def test_columns_are_not_judged_without_the_shares_of_the_table(release, results):
    assert accuracy(replace(release, real_columns={}), results)["Counts by one column"] is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("place", "verdict"), [(0.81, Verdict.GOOD), (0.79, Verdict.WITH_CARE), (0.39, Verdict.NOT_FOR_USE)]
)
def test_pairs_are_judged_between_the_baselines(release, results, place, verdict):
    ends = {each.name: each.marginals[1] for each in results}
    low, high = ends["independent columns"], ends["other people"]
    assert low < high
    wrong = replace(release, marginals=(1.0, low + place * (high - low), 1.0))
    assert accuracy(wrong, results)["Any two columns, mean"] is verdict


def test_pairs_are_not_judged_if_the_holdout_is_too_small(release, results):
    few = [replace(each, marginals=(0.5, 0.1, 0.1)) if each.name == "other people" else each for each in results]
    (pairs,) = (each for each in accuracy_verdicts(release, few) if each.question == "Any two columns, mean")
    assert pairs.verdict is Verdict.UNKNOWN
    assert "holdout is too small" in pairs.compared_with


def test_a_change_of_association_needs_a_thousand_rows(release, results):
    samples = {**release.samples, "members tested by attacks": (200, 999)}
    assert accuracy(replace(release, samples=samples), results)["Change of association"] is Verdict.UNKNOWN
    changed = replace(release, association_gap=(0.31, "town", "rich"))
    assert accuracy(changed, results)["Change of association"] is Verdict.NOT_FOR_USE


@pytest.mark.parametrize(
    ("lost", "error", "verdict"),
    [
        (0.019, 0.0, Verdict.GOOD),
        (0.03, 0.0, Verdict.WITH_CARE),
        (0.06, 0.0, Verdict.NOT_FOR_USE),
        (0.0, 0.021, Verdict.UNKNOWN),
    ],
)
def test_a_learner_is_compared_with_the_real_rows(release, results, lost, error, verdict):
    raw = results[0]
    assert raw.learning is not None
    learning = (*raw.learning[:2], raw.learning[2] - lost)
    wrong = replace(release, learning=learning, standard_errors={"learner": error})
    assert accuracy(wrong, results)["Predicting rich"] is verdict


@pytest.mark.parametrize(
    ("low", "bound", "tested", "verdict"),
    [
        (-0.01, 0.46, 500, Verdict.NO_LEAK),
        (0.01, 0.46, 500, Verdict.LEAK),
        (0.47, 0.46, 500, Verdict.BROKEN),
        (0.47, None, 500, Verdict.LEAK),
        (-0.01, 0.46, 159, Verdict.UNKNOWN),
        (0.01, None, 159, Verdict.UNKNOWN),
        (0.47, 0.46, 159, Verdict.BROKEN),
    ],
)
def test_an_attack_is_judged_by_its_interval(release, low, bound, tested, verdict):
    attack = replace(
        release.attacks[0],
        bound=bound,
        interval=ConfidenceInterval(low, 0.6),
        members=Proportion(tested, tested),
        controls=Proportion(0, tested),
    )
    (judgement,) = risk_verdicts(replace(release, attacks=(attack,)))
    assert judgement.verdict is verdict
    assert judgement.is_limited == (bound is not None)


def test_a_limit_that_reads_one_excludes_no_attack(release):
    attack = replace(release.attacks[0], bound=0.9999, interval=ConfidenceInterval(-0.1, 0.1))
    (judgement,) = risk_verdicts(replace(release, attacks=(attack,)))
    assert judgement.compared_with in (
        "limit 1.00, which excludes no attack",
        "needs 160 people of each kind, tested 80",
    )
    assert not judgement.is_limited


def test_a_single_column_is_paired_with_none(release, results):
    single = replace(release, attributes=("age",), pair_distance=((0.3,),), association_gap=(0.0, "age", "age"))
    questions = [each.question for each in accuracy_verdicts(single, results)]
    assert not any("two columns" in question or "association" in question for question in questions)
    assert single.worst_pair_text is None


def test_the_worst_verdict_counts(release, results):
    verdicts = accuracy_verdicts(replace(release, association_gap=(0.31, "town", "rich")), results)
    assert worst(verdicts) is Verdict.NOT_FOR_USE
    assert worst(risk_verdicts(release)) in (Verdict.LEAK, Verdict.NO_LEAK)
    assert worst(()) is Verdict.UNKNOWN
