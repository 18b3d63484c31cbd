"""Labs ``hiera-mu`` and ``hiera-methods``: HierA with one to five uses of a report, and compared with other
mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InfeasibleError, InputError
from sfumato.local.protocol.device import simulate
from sfumato.local.randomizers.randomizer import CEILING
from sfumato.local.specs.hiera import DIVISIONS, Hiera, aggregate, variance
from sfumato.local.specs.mean import Mean, MeanMethod
from sfumato_labs import charts, printed_hiera
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Plot, Row, Table
from sfumato_labs.published_tables import AGES, census, read, refuse_own

TITLE_MU = "HierA: does it help to reuse reports?"
TITLE_METHODS = "HierA beside Harmony, PM, HM and optimal tables"
EPSILONS = tuple(Fraction(text) for text in ("0.25", "0.5", "1", "1.5", "2", "2.5"))
BUDGETS = tuple(Fraction(level) for level in (5, 4, 3, 2, 1))
ALTERNATIVE = tuple(Fraction(text) for text in ("2", "1.75", "1.5", "1.25", "1"))
USES = (1, 2, 3, 4, 5)
MADE = ("normal", "uniform", "exponential")
PEOPLE = 100_000
MOST_LEVELS = 20
RUNS = 100  # ten runs have 24 % of noise in a mean absolute error

Floats = NDArray[np.float64]
Estimator = Callable[[Floats], float]

_LAPLACE = (
    "Multi-level Laplace is not private: the scale of its noise depends on the value, so its epsilon is infinite, and "
    "it has no place in the table at equal epsilon."
)
_PUBLISHED = "a picture only"


def made(generator: np.random.Generator, people: int) -> dict[str, Floats]:
    """Return the published kinds of simulated values in [-1, 1]."""
    values = (
        np.clip(generator.normal(0.5, 0.1, people), -1, 1),
        generator.uniform(-1, 1, people),
        2 * np.clip(generator.exponential(size=people), 0, 1) - 1,
    )
    return dict(zip(MADE, values, strict=True))


def graded(epsilon: Fraction, budgets: Sequence[Fraction] = BUDGETS) -> Hiera:
    """Return HierA with budgets that are the given multiples of epsilon. The published ones have five levels.

    Raises:
        InputError: budgets increase, or one exceeds the largest useful local budget.
    """
    depth = len(budgets)
    if epsilon * max(budgets) > CEILING:
        raise InputError(
            f"a local budget is at most {CEILING}, and epsilon {float(epsilon):g} times the budget "
            f"{float(max(budgets)):g} of a level is {float(epsilon * max(budgets)):g}: name a smaller --epsilon",
            culprit=epsilon,
        )
    divisions = DIVISIONS if depth == len(BUDGETS) else tuple(np.linspace(-1, 1, depth + 1).tolist())
    return Hiera.design(-1, 1, divisions=divisions, budgets=tuple(epsilon * level for level in budgets))


def guarantees(epsilons: Sequence[Fraction] = EPSILONS, budgets: Sequence[Fraction] = BUDGETS) -> Table:
    """Return the exact epsilon of every setting, of the level alone and in total, and of the text's other budgets."""
    rows: list[Row] = []
    for epsilon in epsilons:
        spec = graded(epsilon, budgets)
        rows.append(
            {
                "epsilon": float(epsilon),
                "budgets": ", ".join(f"{float(budget):g}" for budget in spec.budgets),
                "level_epsilon": round(float(spec.level_epsilon), 3),
                "real_epsilon": round(float(spec.epsilon), 3),
                "real_epsilon_of_2e_to_e": round(float(graded(epsilon, ALTERNATIVE).epsilon), 3),
            }
        )
    return tuple(rows)


def _values(options: Options, generator: np.random.Generator) -> tuple[str, dict[str, Floats]]:
    """Return the lab's sources, and the values by name: simulated values and columns of a table."""
    people = options.people or PEOPLE
    columns = options.columns or (NamedColumn("age", AGES),)
    names = [column.name for column in columns]
    refuse_own(names, MADE)
    table = census(names) if options.data is None else read(options.data, names)
    values = made(generator, people)
    values |= {column.name: table.scaled([column])[:, 0] for column in columns}
    note = (
        f"Runs on {table.title}, {', '.join(f'{name} of {values[name].size} people' for name in names)}, scaled to "
        f"[-1, 1], and on {people} made people each of three kinds."
    )
    return note, values


def levels_asked(options: Options) -> tuple[Fraction, ...]:
    """Return the budgets of the levels as multiples of epsilon.

    Raises:
        InputError: there are too many budgets, or more uses of a report than levels.
    """
    budgets = options.budgets or BUDGETS
    if len(budgets) > MOST_LEVELS:
        raise InputError(f"--budgets names {len(budgets)} levels, and {MOST_LEVELS} are the most", culprit=budgets)
    if options.mu is not None and max(options.mu) > len(budgets):
        raise InputError(f"--mu must be at most {len(budgets)}, the number of levels", culprit=options.mu)
    return budgets


# hiera-mu


def run_mu(options: Options) -> LabResult:
    """Return mean absolute errors over the runs, of the printed and the unbiased collector, with exact deviations."""
    generator = np.random.default_rng(options.seed)
    runs, epsilons, budgets = options.repeated(RUNS), options.epsilon or EPSILONS, levels_asked(options)
    uses = options.mu or USES[: len(budgets)]
    note, values = _values(options, generator)
    rows: list[Row] = []
    for name, column in values.items():
        for epsilon in epsilons:
            options.progress(f"{name}, epsilon = {float(epsilon):g}")
            case: Row = {"data": name, "epsilon": float(epsilon)}
            reused = _reused(column, graded(epsilon, budgets), uses, runs=runs, generator=generator)
            rows += [{**case, **row} for row in reused]
    return LabResult(
        lab="hiera-mu",
        title=TITLE_MU,
        summary=_summary_mu(rows),
        tables={"errors": tuple(rows), "guarantees": guarantees(epsilons, budgets)},
        plots=(_plot_uses(tuple(rows)),),
        notes=(
            note,
            (
                f"Mean absolute errors over {runs} runs: printed_mae of the printed program, which clamps counts of "
                "every level; mae of the same reports without clamping. exact_sd is computed, not simulated; a normal "
                "error has a mean absolute value of 0.798 of it."
            ),
            best_use(rows),
            spent(guarantees(epsilons, budgets)),
        ),
    )


def _reused(
    values: Floats, spec: Hiera, uses: Sequence[int], *, runs: int, generator: np.random.Generator
) -> Iterator[Row]:
    """Yield mean absolute errors over the runs by uses of a report, of both collectors on the same reports."""
    truth = float(values.mean())
    nominal = [float(budget) for budget in spec.budgets]
    missed, printed = np.zeros(len(uses)), np.zeros(len(uses))
    level = printed_hiera.levels(values, len(nominal))
    for _ in range(runs):
        drawn, signs = printed_hiera.local_reports(values, level, nominal, generator)
        counts = printed_hiera.level_counts(drawn, signs, len(nominal))
        for place, mu in enumerate(uses):
            printed[place] += abs(float(printed_hiera.collected(counts, nominal, generator, mu=mu)) - truth)
            unbiased = aggregate(counts.ravel(), spec.budgets, mu=mu, clamp=False, generator=generator)
            missed[place] += abs(unbiased - truth)
    for place, mu in enumerate(uses):
        yield {
            "mu": mu,
            "printed_mae": float(printed[place] / runs),
            "mae": float(missed[place] / runs),
            "exact_sd": math.sqrt(variance(values, spec, mu=mu)),
        }


def best_use(rows: Sequence[Row]) -> str:
    """Return a sentence on reuse, from the exact deviations."""
    cases: dict[tuple[object, object], dict[int, float]] = {}
    for row in rows:
        cases.setdefault((row["data"], row["epsilon"]), {})[int(row["mu"] or 0)] = float(row["exact_sd"] or 0)
    once = sum(min(case, key=case.__getitem__) == min(case) for case in cases.values())
    least = min(next(iter(cases.values())))
    worst = max(max(case.values()) / case[least] for case in cases.values())
    return (
        f"By its exact standard deviation mu = {least} is best in {once} of {len(cases)} cases: a further use adds "
        f"noise and no person. The most that reuse costs here is a factor of {worst:.3f}."
    )


def _summary_mu(rows: Sequence[Row]) -> Table:
    at = 1.0 if any(row["epsilon"] == 1 for row in rows) else rows[0]["epsilon"]
    least, lines = min(int(row["mu"] or 0) for row in rows), []
    for data in dict.fromkeys(row["data"] for row in rows):
        case = {int(row["mu"] or 0): row for row in rows if (row["data"], row["epsilon"]) == (data, at)}
        printed = case.get(printed_hiera.PRINTED_MU, case[least])
        lines.append(
            {
                "experiment": f"mean absolute error of HierA at epsilon = {at:g}, {data}",
                "published": _PUBLISHED,
                "as_printed": f"{printed['printed_mae']:.4g} (mu = {printed['mu']}, clamped)",
                "honest": f"{case[least]['mae']:.4g} (mu = {least})",
                "lesson": "re-using reports in stricter levels adds noise and no person",
            }
        )
    return tuple(lines)


def _plot_uses(rows: Table) -> Plot:
    """Return the deviations relative to that of the fewest uses. Their absolute differences are thinner than a line."""
    fewest = min(int(row["mu"] or 0) for row in rows)
    once = {(row["data"], row["epsilon"]): float(row["exact_sd"] or 0) for row in rows if row["mu"] == fewest}
    times = [float(row["exact_sd"] or 0) / once[row["data"], row["epsilon"]] for row in rows]
    drawn: list[Row] = [
        {**row, "line": f"epsilon = {row['epsilon']:g}", "times": each} for row, each in zip(rows, times, strict=True)
    ]
    span = (min(times), max(times)) if min(times) < max(times) else None
    panels = [
        charts.lines(
            [row for row in drawn if row["data"] == data],
            ChartAxis(column="mu", title="uses of a report, mu", labels=True),
            ChartAxis(column="times", title=f"exact deviation, times that of mu = {fewest}", limits=span),
            series="line",
            panel=Panel(title=str(data), size=(300, 240)),
        )
        for data in dict.fromkeys(row["data"] for row in rows)
    ]
    caption = f"Exact standard deviation by mu, as a multiple of that of mu = {fewest}. {best_use(rows)}"
    return Plot("uses", caption, charts.side_by_side(panels, columns=2))


# hiera-methods

Line = tuple[str, float | str, Estimator]
"""Method, actual epsilon, and a function that estimates a mean from values."""


def run_methods(options: Options) -> LabResult:
    """Return both tables over three kinds of simulated data and a column."""
    generator = np.random.default_rng(options.seed)
    runs, epsilons, budgets = options.repeated(RUNS), options.epsilon or EPSILONS, levels_asked(options)
    mu = options.single("mu", min(printed_hiera.PRINTED_MU, len(budgets)))
    note, values = _values(options, generator)
    nominal, equal = [], []
    specs = {epsilon: graded(epsilon, budgets) for epsilon in epsilons}
    _refuse_beyond(specs)
    for epsilon, spec in specs.items():
        options.progress(f"epsilon = {float(epsilon):g}")
        nominal += list(_errors(values, epsilon, _nominal(epsilon, spec, mu, generator), runs))
        equal += list(_errors(values, epsilon, _equal(spec, generator), runs))
    return LabResult(
        lab="hiera-methods",
        title=TITLE_METHODS,
        summary=_summary_methods(nominal, equal),
        tables={
            "published": tuple(nominal),
            "equal_real_epsilon": tuple(equal),
            "guarantees": guarantees(epsilons, budgets),
        },
        plots=(
            _plot("published", f"At nominal budgets. {ranks(nominal)}", nominal, by=NOMINAL),
            _plot("equal", f"At equal real epsilon. {beaten(equal)}", equal, by=REAL),
        ),
        notes=(
            note,
            (
                f"Mean absolute errors of the mean over {runs} runs. The first table is as published: HierA with mu = "
                f"{mu} and clamping, others at e; HierA without reuse and unclamped is a second line."
            ),
            spent(guarantees(epsilons, budgets)),
            ranks(nominal),
            beaten(equal),
            *unsolved(equal),
            _LAPLACE,
        ),
    )


def _refuse_beyond(specs: Mapping[Fraction, Hiera]) -> None:
    for epsilon, spec in specs.items():
        if spec.epsilon > CEILING:
            raise InputError(
                f"at epsilon {float(epsilon):g} HierA really spends {float(spec.epsilon):.4g}, and no other local "
                f"method is made beyond {CEILING} to compare it with: name a smaller --epsilon",
                culprit=epsilon,
            )


def _errors(values: Mapping[str, Floats], epsilon: Fraction, line_up: Sequence[Line], runs: int) -> Iterator[Row]:
    for method, real, estimator in line_up:
        for name, column in values.items():
            truth = float(column.mean())
            error = float(np.mean([abs(estimator(column) - truth) for _ in range(runs)]))
            yield {"method": method, "data": name, "epsilon": float(epsilon), "real_epsilon": real, "mae": error}


def _nominal(epsilon: Fraction, spec: Hiera, mu: int, generator: np.random.Generator) -> list[Line]:
    """Return the published line-up: floating-point mechanisms at e, HierA and multi-level Laplace with graded
    budgets.
    """
    plain, budgets = float(epsilon), [float(budget) for budget in spec.budgets]
    return [
        ("harmony", plain, lambda v: float(printed_hiera.harmony(v, plain, generator).mean())),
        ("pm", plain, lambda v: float(printed_hiera.piecewise(v, plain, generator).mean())),
        ("hm", plain, lambda v: float(printed_hiera.hybrid(v, plain, generator).mean())),
        ("multi_laplace", "inf", lambda v: float(printed_hiera.multi_laplace(v, budgets, generator).mean())),
        (
            f"hiera, mu = {mu}, clamped",
            _rounded(spec),
            lambda v: printed_hiera.hiera(v, budgets, generator, mu=mu),
        ),
        ("hiera, mu = 1", _rounded(spec), _hiera(spec, generator)),
        *_optimal(epsilon, plain, generator),
    ]


def _equal(spec: Hiera, generator: np.random.Generator) -> list[Line]:
    """Return finite tables with HierA's actual epsilon."""
    real = _rounded(spec)
    methods = {
        "harmony": MeanMethod.DUCHI,
        "pm": MeanMethod.PIECEWISE,
        "hm": MeanMethod.HYBRID,
    }
    lines: list[Line] = [
        (name, real, _released(Mean.design(-1, 1, epsilon=spec.epsilon, method=method), generator))
        for name, method in methods.items()
    ]
    return [*lines, *_optimal(spec.epsilon, real, generator), ("hiera, mu = 1", real, _hiera(spec, generator))]


def _optimal(epsilon: Fraction, nominal: float, generator: np.random.Generator) -> list[Line]:
    """Return the optimal table if the solver finds one; it does not for an epsilon of a millionth."""
    try:
        spec = Mean.design(-1, 1, epsilon=epsilon, method=MeanMethod.OPTIMAL)
    except InfeasibleError:
        return []
    return [("optimal_table", nominal, _released(spec, generator))]


def _hiera(spec: Hiera, generator: np.random.Generator) -> Estimator:
    def estimate(values: Floats) -> float:
        reports = simulate(spec, values, seed=int(generator.integers(1 << 62)))
        return aggregate(spec.randomizer.tally(reports.data), spec.budgets, mu=1, clamp=False, generator=generator)

    return estimate


def _released(spec: Mean, generator: np.random.Generator) -> Estimator:
    outputs = np.array(spec.outputs)

    def estimate(values: Floats) -> float:
        reports = simulate(spec, values, seed=int(generator.integers(1 << 62)))
        return float(outputs @ spec.randomizer.tally(reports.data)) / values.size

    return estimate


def _rounded(spec: Hiera) -> float:
    return round(float(spec.epsilon), 3)


def _mae(row: Row) -> float:
    return float(row["mae"] or 0)


def ranks(nominal: Sequence[Row]) -> str:
    """Return sentences on the rank of the printed HierA without a second HierA, at the least and the largest
    epsilon.
    """
    sentences = []
    for epsilon in dict.fromkeys((nominal[0]["epsilon"], nominal[-1]["epsilon"])):
        places = []
        for data in dict.fromkeys(row["data"] for row in nominal):
            case = [row for row in nominal if (row["data"], row["epsilon"]) == (data, epsilon)]
            order = [row["method"] for row in sorted(case, key=_mae) if row["method"] != "hiera, mu = 1"]
            place = 1 + [str(method).startswith("hiera") for method in order].index(True)
            places.append(f"{place} on {data}")
        sentences.append(f"at epsilon = {epsilon:g} its place among {len(order)} is {', '.join(places)}")
    times = [float(row["real_epsilon"] or 0) / float(row["epsilon"] or 1) for row in nominal if _is_printed(row)]
    much = " to ".join(dict.fromkeys(f"{each:.2g}" for each in (min(times), max(times))))
    return f"HierA as printed, which really spends {much} times as much: {'; '.join(sentences)} (1 is the least error)."


def _is_printed(row: Row) -> bool:
    return str(row["method"]).startswith("hiera") and str(row["method"]).endswith("clamped")


def unsolved(equal: Sequence[Row]) -> tuple[str, ...]:
    """Return sentences on the actual epsilons without an optimal table, and those at which its grid costs more than
    noise.
    """
    cases: dict[object, dict[str, float]] = {}
    for row in equal:
        errors = cases.setdefault(row["real_epsilon"], {})
        errors[str(row["method"])] = errors.get(str(row["method"]), 0.0) + _mae(row)
    missing = [f"{epsilon:g}" for epsilon, errors in cases.items() if "optimal_table" not in errors]
    behind = [
        f"{epsilon:g}"
        for epsilon, errors in cases.items()
        if "optimal_table" in errors and errors["optimal_table"] > 2 * min(errors.values())
    ]
    sentences = []
    if missing:
        sentences.append(f"The solver finds no optimal table at epsilon {', '.join(missing)}: it is left out there.")
    if behind:
        sentences.append(
            "optimal_table is optimal among tables over a coarse grid of values, to which others are rounded; at real "
            f"epsilon {', '.join(behind)} this rounding errs more than twice as much as the best other method."
        )
    return tuple(sentences)


def spent(rows: Table) -> str:
    """Return a sentence on the budgets, from the table of guarantees."""
    times = [float(row["real_epsilon"] or 0) / float(row["epsilon"] or 1) for row in rows]
    between = " to ".join(dict.fromkeys(f"{each:.2g}" for each in (min(times), max(times))))
    return (
        "The guarantee of HierA is real_epsilon, by enumeration of its integer table, not one of the budgets: with "
        f"budgets {rows[0]['budgets']} at epsilon = {rows[0]['epsilon']:g} it is {rows[0]['real_epsilon']}; it is "
        f"{between} times epsilon, so that procedures at nominal budgets are not compared at one loss."
    )


def beaten(equal: Sequence[Row]) -> str:
    """Return sentences on HierA at equal actual epsilon, at the least and the largest."""
    sentences = []
    for epsilon in dict.fromkeys((equal[0]["epsilon"], equal[-1]["epsilon"])):
        ratios: dict[str, list[float]] = {"harmony": [], "best": []}
        for data in dict.fromkeys(row["data"] for row in equal):
            case = {str(row["method"]): _mae(row) for row in equal if (row["data"], row["epsilon"]) == (data, epsilon)}
            graded_error = case.pop("hiera, mu = 1")
            for other, error in (("harmony", case["harmony"]), ("best", min(case.values()))):
                if error:  # a single value may be reported exactly, and its error is then no measure
                    ratios[other].append(graded_error / error)
        compared = [
            f"{min(each):.3g} to {max(each):.3g} times as much as {'Harmony' if other == 'harmony' else 'the best'}"
            for other, each in ratios.items()
            if each
        ]
        sentences.append(
            f"at epsilon = {epsilon:g} it errs {' and '.join(compared) or 'where another does not err at all'}"
        )
    return f"HierA at its own real epsilon, over the data: {'; '.join(sentences)}."


def _summary_methods(nominal: Sequence[Row], equal: Sequence[Row]) -> Table:
    at = 1.0 if any(row["epsilon"] == 1 for row in nominal) else nominal[0]["epsilon"]
    lines: list[Row] = []
    for data in dict.fromkeys(row["data"] for row in nominal):
        case = {str(row["method"]): row for row in nominal if (row["data"], row["epsilon"]) == (data, at)}
        same = {str(row["method"]): row for row in equal if (row["data"], row["epsilon"]) == (data, at)}
        (printed,) = (row for method, row in case.items() if method.endswith("clamped"))
        best = min((method for method in same if not method.startswith("hiera")), key=lambda each: _mae(same[each]))
        lines.append(
            {
                "experiment": f"mean absolute error at epsilon = {at:g}, {data}",
                "published": _PUBLISHED,
                "as_printed": f"HierA {_mae(printed):.4g}, Harmony {_mae(case['harmony']):.4g}",
                "honest": f"at epsilon {printed['real_epsilon']}: HierA {_mae(same['hiera, mu = 1']):.4g}, "
                f"{best} {_mae(same[best]):.4g}",
                "lesson": "compare at the epsilon that is really spent, not at nominal budgets",
            }
        )
    return tuple(lines)


NOMINAL = ChartAxis(column="epsilon", title="epsilon of the budgets", zero=False)
REAL = ChartAxis(column="real_epsilon", title="real epsilon of every method", zero=False)


def _plot(name: str, caption: str, rows: Sequence[Row], *, by: ChartAxis) -> Plot:
    panels = [
        charts.lines(
            [row for row in rows if row["data"] == data],
            by,
            ChartAxis(column="mae", title="mean absolute error, values from -1 to 1", log=True),
            series="method",
            panel=Panel(title=str(data), size=(300, 240)),
        )
        for data in dict.fromkeys(row["data"] for row in rows)
    ]
    return Plot(name, caption, charts.side_by_side(panels, columns=2))


_TAKES = frozenset({"data", "columns", "epsilon", "mu", "budgets", "people"})
LABS = {
    "hiera-mu": Lab(name="hiera-mu", title=TITLE_MU, procedure=run_mu, takes=_TAKES, runs=RUNS),
    "hiera-methods": Lab(name="hiera-methods", title=TITLE_METHODS, procedure=run_methods, takes=_TAKES, runs=RUNS),
}
