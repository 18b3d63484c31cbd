from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sfumato.errors import InfeasibleError, InputError
from sfumato.evaluate.evaluation_result import ClaimedRelease, EvaluationResult, judge
from sfumato.evaluate.frontier import CEILING, FLOOR, RAW, Candidate, frontier, grid, result_json, without_exact_shares
from sfumato.evaluate.population_split import split_population
from sfumato.evaluate.released import Claim, Released, Rows
from sfumato.privacy.loss import Epsilon


@pytest.fixture(scope="module")
def few(people):
    rows = people.population(900, seed=1)
    return split_population(rows.take(range(300)), rows.take(range(300, 900)), seed=2)


def impossible(_):
    raise InfeasibleError("nothing can meet this")


def test_an_interrupted_run_goes_on_where_it_was(few, tmp_path):
    made = []

    def half(rows):
        made.append(len(rows))
        return Released.raw(rows.take(range(150)))

    candidates = [
        Candidate("half", "sample", Claim(Epsilon(3)), half),
        Candidate("never", "sample", Claim(), impossible),
    ]
    seen = []

    def watch(step):
        seen.append(step)
        if step == "[5/5] never":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        frontier(candidates, few, target="rich", seed=0, cache=tmp_path, watch=watch)
    names = [RAW, CEILING, FLOOR, "half", "never"]
    assert [step for step in seen if step.startswith("[")] == [f"[{n}/5] {each}" for n, each in enumerate(names, 1)]
    assert "      attacks" in seen
    found = frontier(candidates, few, target="rich", seed=0, cache=tmp_path)
    assert made == [300]  # stored, so it is made only once
    assert [result.name for result in found.results] == [RAW, CEILING, FLOOR, "half"]
    assert found.failed == (("never", "nothing can meet this"),)
    again = frontier(candidates, few, target="rich", seed=0)
    assert made == [300, 300]
    assert [dumped(result) for result in again.results] == [dumped(result) for result in found.results]


def dumped(result: EvaluationResult) -> str:
    return json.dumps(result.to_json())


def test_a_result_survives_json(few, tmp_path):
    raw = frontier([], few, target="rich", seed=0).results[0]
    again = EvaluationResult.from_json(json.loads(dumped(raw)))
    assert dumped(again) == dumped(raw)
    assert again.headline == raw.headline
    assert again.attacks == raw.attacks


def test_the_cache_knows_its_people(few, people, tmp_path):
    first = frontier([], few, target="rich", seed=0, cache=tmp_path)
    rows = people.population(900, seed=7)
    others = split_population(rows.take(range(300)), rows.take(range(300, 900)), seed=2)
    second = frontier([], others, target="rich", seed=0, cache=tmp_path)
    assert first.results[1].marginals != second.results[1].marginals


@pytest.mark.parametrize("change", [lambda kept: kept.replace(b"raw", b"row"), lambda kept: kept[:-9], lambda _: b"{}"])
def test_a_result_that_was_spoiled_is_made_anew(few, tmp_path, change):
    first = frontier([], few, target="rich", seed=0, cache=str(tmp_path / "kept" / "here"))
    for path in (tmp_path / "kept" / "here").iterdir():
        path.write_bytes(change(path.read_bytes()))
    again = frontier([], few, target="rich", seed=0, cache=tmp_path / "kept" / "here")
    assert [dumped(result) for result in again.results] == [dumped(result) for result in first.results]


def test_a_cache_that_cannot_be_written_to_is_refused_before_anything_is_made(few, tmp_path):
    (tmp_path / "file").write_text("")
    made = [Candidate("made", "sample", Claim(), pytest.fail)]
    for cache in (tmp_path / "file", tmp_path / "file" / "below", "a\0b", 5):
        with pytest.raises(InputError, match="folder"):
            frontier(made, few, target="rich", seed=0, cache=cache)


def test_what_cannot_be_judged_is_left_out_with_its_reason(few):
    other = few.domain.project(["rich"])
    narrow = Released.raw(Rows(other, few.members.codes[:, [few.domain.index("rich")]]))
    for made in (narrow, None):
        found = frontier([Candidate("odd", "sample", Claim(), lambda _, made=made: made)], few, target="rich", seed=0)
        assert [name for name, _ in found.failed] == ["odd"]


def test_what_is_shown_does_not_give_exact_shares_away(few):
    """A released share with its distance to all digits would: half the people have one of two values."""
    candidates = [Candidate("half", "sample", Claim(), lambda rows: Released.raw(rows.take(range(0, 299, 2))))]
    results = frontier(candidates, few, target="rich", seed=0).results
    place = few.domain.index("rich")
    kept, public = results[-1], without_exact_shares(results[-1])

    def counts(result: EvaluationResult) -> list[float]:
        share, distance = result.columns["rich"][0], result.pair_distance[place][place]
        return [300 * (share + distance), 300 * (share - distance)]

    true = np.count_nonzero(few.members.codes[:, place] == 0)
    assert min(abs(count - true) for count in counts(kept)) < 1e-9
    assert min(abs(count - true) for count in counts(public)) > 1e-3
    assert all(without_exact_shares(each).real_columns == {} for each in results)
    assert [bool(without_exact_shares(each).columns) for each in results] == [False, False, False, True]


def test_quasi_identifiers_tell_candidates_apart():
    """The cache goes by names."""
    names = [{candidate.name for candidate in grid(quasi)} for quasi in (("age", "town"), ("age", "rich"), ())]
    assert len(names[0] & names[1]) == len(names[2]) < len(names[0])


def test_names_are_distinct(few):
    twice = [Candidate("same", "sample", Claim(), Released.raw)] * 2
    with pytest.raises(InputError, match="the same name"):
        frontier(twice, few, target="rich", seed=0)


def test_results_say_what_they_should(few):
    raw, ceiling, floor = frontier([], few, target="rich", seed=0).results
    assert raw.marginals == (1, 1, 1)
    assert floor.marginals[0] == 1
    assert floor.marginals[2] < ceiling.marginals[2]
    assert raw.headline.value > 0.5 > ceiling.headline.value
    assert raw.proven_epsilon > 1
    assert ceiling.proven_epsilon == floor.proven_epsilon == 0
    assert raw.claimed_epsilon is None
    assert sum(count for *_, count in raw.query_errors) == 1000
    assert all(math.isclose(sum(shares), 1) for shares in raw.columns.values())
    assert raw.class_sizes is not None
    assert raw.class_sizes[0] > 0.5  # uniques


def test_a_release_is_judged_by_its_worst_pair_and_by_what_most_pairs_stay_below(few):
    entry = ClaimedRelease("half", "sample", Claim())
    judged = judge(Released.raw(few.members.take(range(80))), few, entry=entry, target="rich", seed=1)
    table = np.full((7, 7), 0.99)  # single attributes do not count
    for number, (one, other) in enumerate(combinations(range(7), 2)):
        table[one, other] = table[other, one] = (number * 8 % 21) / 100  # 21 pairs: .00, .01, ... .20
    shown = replace(judged, attributes=tuple("abcdefg"), pair_distance=tuple(map(tuple, table.tolist())))
    where = [pair for number, pair in enumerate(combinations("abcdefg", 2)) if number * 8 % 21 == 20]
    assert shown.worst_pair == (0.2, *where[0])
    assert shown.most_pairs == 0.19  # 20 of 21 pairs are 95 %
    public = result_json(shown)
    assert (public["worst_pair"], public["pairs_95_percent"]) == ((0.2, *where[0]), 0.19)
    assert shown.correlation_gap is not None
    assert public["correlation_gap"] == (round(shown.correlation_gap[0], 3), *shown.correlation_gap[1:])
    alone = replace(judged, attributes=("a",), pair_distance=((0.5,),))
    assert (alone.worst_pair, alone.most_pairs) == ((0.5, "a", "a"), 0.5)
