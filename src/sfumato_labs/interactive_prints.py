"""The printed programs of the lab ``interactive``, rerun and compared with their printed output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np

from sfumato import data
from sfumato_labs import printed_interactive
from sfumato_labs.filtering_study import FilteringStudy
from sfumato_labs.lab import Row, Table
from sfumato_labs.printed_interactive import (
    CLOCKS,
    LOSSES,
    RECORDS,
    RECORDS_CLOCK,
    SEEDS,
    SPLIT,
    Integers,
    answers,
    clock_starts,
    noisy_records,
    starts,
)

MINUTES = (1_714_272_420, 1_714_272_900)  # Unix seconds, 02:47 to 02:55 UTC: the time of the printed averages
_LISTED = (("interactive", 50), ("improved", 20))  # runs that the source lists query by query
_HALF_DIGIT = 6e-7  # of an average printed with six decimals, including floating-point error

# on the table and on its neighbor
PUBLISHED_RECORDS: Mapping[float, tuple[int, int]] = {10: (90, 88), 0.1: (92, 89)}
PUBLISHED_AVERAGES: Mapping[tuple[str, float, int], tuple[float, float]] = {
    ("interactive", 10, 50): (90.406173, 89.229485),
    ("interactive", 10, 100): (90.282538, 89.775190),
    ("interactive", 10, 1000): (90.179056, 89.644218),
    ("interactive", 10, 10_000): (90.407239, 89.449023),
    ("interactive", 0.1, 50): (129.090164, 207.379822),
    ("interactive", 0.1, 100): (130.637660, 159.784195),
    ("interactive", 0.1, 1000): (156.520276, 172.554425),
    ("interactive", 0.1, 10_000): (168.248618, 161.965114),
    ("improved", 10, 20): (90.219531, 89.303122),
    ("improved", 10, 50): (91.477675, 92.796737),
    ("improved", 10, 100): (97.573308, 93.315034),
    ("improved", 10, 1000): (139.115738, 137.873842),
    ("improved", 10, 10_000): (360.142331, 363.358394),
    ("improved", 0.1, 20): (160.863114, 179.218571),
    ("improved", 0.1, 50): (286.193377, 383.090234),
    ("improved", 0.1, 100): (380.892396, 265.118141),
    ("improved", 0.1, 1000): (1986.020166, 2229.406086),
    ("improved", 0.1, 10_000): (22121.405222, 24465.252760),
}
PUBLISHED_BUCKETS: Mapping[tuple[str, float], tuple[float, ...]] = {
    ("medical", 10): (405.577487, 436.064704, 421.026895, 456.974492, 463.976042),
    ("neighbour", 10): (405.700195, 434.832390, 420.856021, 457.923189, 463.699772),
    ("medical", 0.1): (386.329299, 432.750870, 454.224493, 457.998244, 464.643677),
    ("neighbour", 0.1): (390.637195, 433.050928, 426.334131, 463.287818, 165.718378),
}


def records(study: FilteringStudy, epsilons: Sequence[Fraction], random: np.random.Generator) -> Table:
    """Run the first program from the printed run's seeds, or from a random one, and on average over all seeds."""
    every, printed = starts(np.arange(SEEDS)), _starts(RECORDS_CLOCK, 1)
    rows: list[Row] = []
    for epsilon in map(float, epsilons):
        for place, (name, values) in enumerate(study.values.items()):
            scale, published = 1 / epsilon, PUBLISHED_RECORDS.get(epsilon) if study.published else None
            counts, _ = noisy_records(values, scale, every, threshold=study.threshold)
            seed = int(random.choice(every)) if published is None else int(printed[epsilon, place][0])
            (count,), _ = noisy_records(values, scale, np.array([seed]), threshold=study.threshold)
            rows.append(
                {
                    "epsilon": epsilon,
                    "table": name,
                    "true_count": study.true_count(name),
                    "seed": seed,
                    "published": None if published is None else published[place],
                    "as_printed": int(count),
                    "mean": float(counts.mean()),
                    "sd": float(counts.std()),
                }
            )
    return tuple(rows)


def _starts(clock: int, queries: int) -> dict[tuple[float, int], Integers]:
    """Return the states of a printed run, which makes all queries of one epsilon on the table, then on its neighbor."""
    (drawn,) = clock_starts(np.array([clock]), len(LOSSES) * len(RECORDS) * queries)
    runs = [(epsilon, place) for epsilon in LOSSES for place in range(len(RECORDS))]
    return dict(zip(runs, drawn.reshape(len(runs), queries), strict=True))


def buckets() -> Table:
    """Run the second program from the seeds that its print reveals: equal to the last digit, except two misprints."""
    rows: list[Row] = []
    for (name, epsilon), published in PUBLISHED_BUCKETS.items():
        true = age_band_counts(name)
        (start,) = bucket_seeds(published, true, epsilon)
        printed = printed_interactive.noisy_buckets(true, epsilon, start)
        labels = data.domain("medical")["age"].labels()
        rows += [
            {
                "epsilon": epsilon,
                "table": name,
                "seed": start,
                "age": label,
                "true_count": count,
                "published": figure,
                "as_printed": again,
                "equal": figure == again,
            }
            for label, count, figure, again in zip(labels, true, published, printed, strict=True)
        ]
    return tuple(rows)


def bucket_seeds(published: Sequence[float], true: Sequence[int], epsilon: float) -> tuple[int, ...]:
    """Return the states of the generator that reproduce most of these figures exactly."""
    every = starts(np.arange(SEEDS))
    made = np.round(np.array(true) + printed_interactive.noise(every, len(true), 1 / epsilon), 6)
    hits = (np.abs(made - np.array(published)) < 1e-6).sum(axis=1)  # noqa: PLR2004  (six decimals)
    return tuple(int(state) for state in every[hits > len(true) // 2])


def averages_as_printed(
    study: FilteringStudy, epsilons: Sequence[Fraction], query_counts: Sequence[int], random: np.random.Generator
) -> Table:
    """Average n answers of the third and of the improved program, from the clock of the printed run if it is known.

    ``noise`` is the part of the average that the clock alone reveals: the noise of each answer's last record.
    """
    every = starts(np.arange(SEEDS))
    rows: list[Row] = []
    for program in ("interactive", "improved"):
        for epsilon in map(float, epsilons):
            for number in query_counts:
                scale = (SPLIT if program == "interactive" else number) / epsilon
                known = PUBLISHED_AVERAGES.get((program, epsilon, number)) if study.published else None
                clock = None if known is None else _starts(CLOCKS[program, number], number)
                for place, (name, values) in enumerate(study.values.items()):
                    noisy_answers = answers(values, scale, every, threshold=study.threshold)
                    finite = noisy_answers[np.isfinite(noisy_answers)]
                    if clock is None:
                        average = float(finite[random.integers(finite.size, size=number)].mean())
                        noise = None
                    else:
                        started = clock[epsilon, place]
                        average = float(noisy_answers[started - SEEDS].mean())
                        noise = float(printed_interactive.noise(started, len(values), scale)[:, -1].mean())
                    rows.append(
                        {
                            "program": program,
                            "epsilon": epsilon,
                            "queries": number,
                            "table": name,
                            "true_count": study.true_count(name),
                            "published": None if known is None else known[place],
                            "as_printed": average,
                            "noise": noise,
                            "expected": float(finite.mean()),
                            "sd_of_average": float(finite.std() / math.sqrt(number)),
                        }
                    )
    return tuple(rows)


def clocks_recovered() -> Table:
    """Try every second of eight minutes for each printed run of averages, without its table.

    An average times n, minus the sum of the last records' noises, is a sum of n counts, so it is an integer.
    """
    seconds = np.arange(*MINUTES)
    rows: list[Row] = []
    for program, queries in CLOCKS:
        drawn = clock_starts(seconds, len(LOSSES) * len(RECORDS) * queries).reshape(seconds.size, -1, queries)
        fits = np.ones(seconds.size, dtype=bool)
        for block, (epsilon, place) in enumerate((loss, place) for loss in LOSSES for place in range(len(RECORDS))):
            scale = (SPLIT if program == "interactive" else queries) / epsilon
            last = printed_interactive.noise(starts(np.arange(SEEDS)), RECORDS[place], scale)[:, -1]
            counts = PUBLISHED_AVERAGES[program, epsilon, queries][place] * queries - last[drawn[:, block] - SEEDS].sum(
                1
            )
            with np.errstate(invalid="ignore"):
                fits &= np.abs(counts - np.rint(counts)) < _HALF_DIGIT * queries
        possible_starts = [int(second) for second in seconds[fits]]
        rows.append(
            {
                "program": program,
                "queries": queries,
                "seconds_tried": seconds.size,
                "seconds_left": len(possible_starts),
                "clock": possible_starts[0] if possible_starts else None,
                "utc": datetime.fromtimestamp(possible_starts[0], UTC).strftime("%Y-%m-%d %H:%M:%S")
                if possible_starts
                else None,
            }
        )
    return tuple(rows)


def answers_by_question(study: FilteringStudy) -> Table:
    """List the answers of the printed runs query by query, each with its seed and its noise."""
    rows: list[Row] = []
    for program, queries in _LISTED:
        for (epsilon, place), started in _starts(CLOCKS[program, queries], queries).items():
            name, values = list(study.values.items())[place]
            scale = (SPLIT if program == "interactive" else queries) / epsilon
            counts, noise = noisy_records(values, scale, started, threshold=study.threshold)
            rows += [
                {
                    "program": program,
                    "epsilon": epsilon,
                    "table": name,
                    "question": number + 1,
                    "seed": int(started[number]),
                    "noisy_count": int(counts[number]),
                    "noise": round(float(noise[number]), 6),
                    "answer": round(float(counts[number] + noise[number]), 6),
                }
                for number in range(queries)
            ]
    return tuple(rows)


def recovered(study: FilteringStudy, epsilons: Sequence[Fraction], random: np.random.Generator) -> Table:
    """Return one answer with six decimals, the seeds that fit it, and the first record's noise that they reveal."""
    rows: list[Row] = []
    for epsilon in epsilons:
        scale = SPLIT / float(epsilon)
        for name, values in study.values.items():
            start = int(starts(random.integers(SEEDS, size=1))[0])
            (answer,) = answers(values, scale, np.array([start]), threshold=study.threshold)
            left = printed_interactive.seeds_left(float(answer), scale, draws=len(values), most=len(values))
            recovered_start = next(iter(left), None)
            noise = (
                None
                if recovered_start is None
                else printed_interactive.noise(np.array([recovered_start]), len(values), scale)[0]
            )
            rows.append(
                {
                    "epsilon": float(epsilon),
                    "table": name,
                    "answer": float(answer),
                    "seeds_before": SEEDS,
                    "seeds_left": len(left),
                    "seed": start,
                    "seed_found": start in left,
                    "noisy_count_found": None if recovered_start is None else left[recovered_start],
                    "noise_of_first_record": None if noise is None else float(noise[0]),
                    "noise_of_last_record": None if noise is None else float(noise[-1]),
                }
            )
    return tuple(rows)


def flaws() -> Table:
    """Return the flaws of each printed program."""
    return tuple(
        {"program": program, "flaw": flaw} for program, listed in printed_interactive.FLAWS.items() for flaw in listed
    )


def age_band_counts(name: str) -> list[int]:
    """Count the patients of each age band of the medical table, or of its neighbor."""
    ages: list[str] = (data.medical() if name == "medical" else data.medical_neighbour())["age"].to_pylist()
    return [ages.count(label) for label in data.domain("medical")["age"].labels()]
