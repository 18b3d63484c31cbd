"""Lab ``ldp-sgd``: linear regression by locally private gradient descent, as printed and corrected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, TableError
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.randomizers.randomizer import CEILING, proven
from sfumato.local.specs.hiera import DIVISIONS, attenuation, levels_of
from sfumato.local.specs.mean import Mean, MeanMethod, grid_codes
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato_labs import charts, hiera_labs, printed_hiera, printed_sgd
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Plot, Row, Table
from sfumato_labs.learning import Perturb, RegressionData, descend, group_size, mean_squared_error, perturb_with, ridge
from sfumato_labs.published_tables import Published, read

TITLE = "Linear regression by locally private gradient descent"
FOLDS = 5
PEOPLE, INPUTS = 200_000, 10
UNIFORM, SIGNS = "made, inputs uniform", "made, inputs of -1 or 1"
SCORED, HELD_OUT, CORRECTED = "printed, as scored", "printed, held out", "corrected"
FAITHFUL: Mapping[tuple[str, str], tuple[float, float, float]] = {
    # the printed score at epsilon = 1, its standard deviation over data draws, and the score on the held-out fold
    (UNIFORM, "harmony"): (0.256, 0.041, 0.207),
    (UNIFORM, "pm"): (0.264, 0.031, 0.222),
    (UNIFORM, "multi_laplace"): (0.249, 0.034, 0.202),
    (UNIFORM, "hiera"): (0.268, 0.045, 0.224),
    (SIGNS, "harmony"): (0.185, 0.042, 0.128),
    (SIGNS, "pm"): (0.211, 0.061, 0.149),
    (SIGNS, "multi_laplace"): (0.186, 0.045, 0.127),
    (SIGNS, "hiera"): (0.203, 0.038, 0.141),
}

Floats = NDArray[np.float64]

_NO_RUN = (None, None, None)
_METHODS = {
    "harmony": MeanMethod.DUCHI,
    "pm": MeanMethod.PIECEWISE,
    "hm": MeanMethod.HYBRID,
    "optimal_table": MeanMethod.OPTIMAL,
}
_SCORES = (
    "Mean squared errors by 5-fold cross-validation; every person is used once and reports one number; the optimum "
    "uses no noise, and its error is what remains to be explained. 'printed, as scored' is the notebook's own score, "
    "'printed, held out' the same coefficients on the fold that they were not fitted to. faithful_run is what a "
    "faithful run of the printed program scores on such data at epsilon = 1"
)
_MADE = (
    f"Runs on made data: {{people}} people with {INPUTS} inputs, uniform on [-1, 1] or of -1 and 1; name a table with "
    "--data."
)
_HIERA = (
    "HierA's budgets are {budgets} times e by the level of a coordinate's input; its real_epsilon is the exact worst "
    "case over level and gradient, so its lines are not comparable with the others at e. Multi-level Laplace takes the "
    "level from the gradient itself, so that the scale of its noise gives the gradient away: its epsilon is infinite."
)

_TABLES = (
    "equal_real_epsilon sets the corrected descents at the epsilon that HierA really spends. coefficients has the mean "
    "and the spread of each coefficient over the fits."
)


def run(options: Options) -> LabResult:
    """Return cross-validated errors on simulated data, or on the table from ``--data``."""
    generator = np.random.default_rng(options.seed)
    runs = options.repeated(LABS["ldp-sgd"].runs)
    named = None if options.data is None else _Named.of(options.data, options)
    if named is not None and options.people is not None:
        raise InputError("--people is the number of simulated people; leave it out with --data", culprit=options.people)
    if named is None and (options.target or options.inputs):
        raise InputError(
            "--target and --inputs name columns of the table of --data; add --data", culprit=options.target
        )
    _refuse_budgets(options)
    rows: list[Row] = []
    equal: list[Row] = []
    fits: Fits = {}
    for _ in range(runs):
        for name, people in _tables(named, options, generator):
            rows += _errors(name, people, options, generator, fits)
            equal += _at_equal_loss(name, people, options, generator)
    errors, same_loss = _averaged(rows), _averaged(equal)
    budgets = ", ".join(f"{float(level):g}" for level in options.budgets or hiera_labs.BUDGETS)
    return LabResult(
        lab="ldp-sgd",
        title=TITLE,
        summary=_summary(errors),
        tables={"errors": errors, "equal_real_epsilon": same_loss, "coefficients": _coefficients(fits)},
        plots=(_plot(errors), *((_equal_plot(same_loss),) if same_loss else ())),
        notes=(
            _MADE.format(people=options.people or PEOPLE) if named is None else named.note(),
            _SCORES + f"; averages over {runs} runs of new data and noise.",
            "The printed procedure differs from the corrected one: " + "; ".join(printed_sgd.FLAWS) + ".",
            lesson(errors),
            _HIERA.format(budgets=budgets),
            _TABLES,
        ),
    )


@dataclass(frozen=True)
class _Named:
    """The table of ``--data``, its target and its inputs."""

    table: Published
    target: NamedColumn
    inputs: tuple[NamedColumn, ...]

    @classmethod
    def of(cls, source: str, options: Options) -> _Named:
        """Return the table and its columns. By default all other numeric columns predict the last one."""
        named = [column.name for column in (*(options.inputs or ()), *((options.target,) if options.target else ()))]
        table = read(source, named if options.inputs and options.target else None)
        if missing := [name for name in named if name not in table.columns]:
            raise TableError(f"the table has no column {missing[0]!r}", culprit=missing[0])
        numeric = table.numeric()
        if options.target is None and not numeric:
            raise TableError("no column of the table holds only numbers: name one with --target", culprit="target")
        target = options.target or NamedColumn(numeric[-1])
        inputs = options.inputs or tuple(NamedColumn(name) for name in numeric if name != target.name)
        if not inputs:
            raise TableError("no other column of the table holds only numbers: name --inputs", culprit="inputs")
        return cls(table, target, inputs)

    def note(self) -> str:
        names = ", ".join(column.name for column in self.inputs)
        return f"Runs on {self.table.title}: {self.target.name} predicted from {names}, all scaled to [-1, 1]."

    def rows(self, generator: np.random.Generator) -> RegressionData:
        """Return the rows in random order, because folds are contiguous and must not depend on the rows."""
        scaled = self.table.scaled([*self.inputs, self.target])
        scaled = scaled[generator.permutation(len(scaled))]
        return RegressionData(scaled[:, :-1], scaled[:, -1])


def _tables(
    named: _Named | None, options: Options, generator: np.random.Generator
) -> Iterator[tuple[str, RegressionData]]:
    if named is not None:
        yield named.target.name, named.rows(generator)
        return
    people = options.people or PEOPLE
    yield UNIFORM, made(generator, people, signs=False)
    yield SIGNS, made(generator, people, signs=True)


def _refuse_budgets(options: Options) -> None:
    """Refuse budgets and uses that HierA cannot have, and losses without a local randomizer."""
    budgets = hiera_labs.levels_asked(options)
    options.single("mu", printed_hiera.PRINTED_MU)
    for epsilon in options.epsilon or hiera_labs.EPSILONS:
        hiera_labs.graded(epsilon, budgets)


def _refuse_few(people: int, coordinates: int, epsilons: Sequence[Fraction]) -> None:
    """Refuse too few people: a fold needs a step, and each moment of the ridge regression needs reports."""
    steps = max(printed_sgd.group_size(coordinates, float(epsilon)) for epsilon in epsilons)
    moments = coordinates * (coordinates + 3) // 2
    needed = math.ceil(max(steps, _REPORTS * moments) * FOLDS / (FOLDS - 1))
    if people < needed:
        raise InputError(
            f"{people} people are too few: with {coordinates - 1} inputs at epsilon {float(min(epsilons)):g} the lab "
            f"needs {needed}; name fewer --inputs, a larger --epsilon, or more people",
            culprit=people,
        )


_REPORTS = 20  # reports per moment on average: fewer than two are then drawn once in twenty million


def made(generator: np.random.Generator, people: int, *, signs: bool) -> RegressionData:
    """Return people with ten inputs, uniform on [-1, 1] or of -1 and 1. The outcome has variance 0.0547, 0.01 of it
    noise.
    """
    shape = (people, INPUTS)
    inputs = generator.choice([-1.0, 1.0], shape) if signs else generator.uniform(-1, 1, shape)
    weights = generator.uniform(-1, 1, INPUTS)
    weights *= math.sqrt(0.0447 * (1 if signs else 3)) / float(np.linalg.norm(weights))
    return RegressionData(inputs, np.clip(inputs @ weights + generator.normal(0, 0.1, people), -1, 1))


Fits = dict[tuple[str, str, str, float | None], list[Floats]]
"""The coefficients of every fit, shape ``(coordinates,)``, by data, method, procedure and epsilon."""


def _errors(
    name: str, people: RegressionData, options: Options, generator: np.random.Generator, fits: Fits
) -> Iterator[Row]:
    _refuse_few(len(people.outcomes), people.inputs.shape[1] + 1, options.epsilon or hiera_labs.EPSILONS)
    all_rows = RegressionData(np.column_stack([np.ones(len(people.outcomes)), people.inputs]), people.outcomes)
    optimum = _validated(all_rows, _optimum, fits.setdefault((name, "none", "optimum", None), []))
    mean = float(people.outcomes.var())
    for epsilon in options.epsilon or hiera_labs.EPSILONS:
        options.progress(f"{name}, epsilon = {float(epsilon):g}")

        def row(method: str, procedure: str, mse: float, real: float | str | None, e: float = float(epsilon)) -> Row:
            known = e == 1 and _as_published(options)
            score, _, held_out = FAITHFUL.get((name, method), _NO_RUN) if known else _NO_RUN
            return {
                "data": name,
                "method": method,
                "procedure": procedure,
                "epsilon": e,
                "real_epsilon": real,
                "mse": mse,
                "faithful_run": {SCORED: score, HELD_OUT: held_out}.get(procedure),
            }

        yield row("none", "optimum", optimum, None)
        yield row("none", "predicting the mean", mean, None)
        for method, real, collect in _printed(epsilon, options):
            fitted = fits.setdefault((name, method, "printed", float(epsilon)), [])
            score = printed_scores(people, collect, float(epsilon), generator, fitted)
            yield row(method, SCORED, score.printed, real)
            yield row(method, HELD_OUT, score.held_out, real)
        for method, procedure, known, train in _corrected(epsilon, options, all_rows.inputs.shape[1], generator):
            fitted = fits.setdefault((name, method, procedure, float(epsilon)), [])
            yield row(method, procedure, _validated(all_rows, train, fitted), known)


def _as_published(options: Options) -> bool:
    """Return whether the simulated people and HierA's parameters are those of the published runs."""
    return options.people in {None, PEOPLE} and options.data is None and options.budgets is None and options.mu is None


def _at_equal_loss(
    name: str, people: RegressionData, options: Options, generator: np.random.Generator
) -> Iterator[Row]:
    """Run the corrected descents, all at the epsilon that HierA spends with the budgets of the lab."""
    all_rows = RegressionData(np.column_stack([np.ones(len(people.outcomes)), people.inputs]), people.outcomes)
    entropy, width = SimulatedEntropy(int(generator.integers(1 << 62))), all_rows.inputs.shape[1]
    for epsilon in options.epsilon or hiera_labs.EPSILONS:
        budgets = tuple(epsilon * level for level in options.budgets or hiera_labs.BUDGETS)
        spent, hiera = graded(budgets, entropy)
        if spent > CEILING:
            continue  # no other method exists beyond it
        perturbations = {"hiera": hiera} | {
            method: perturb_with(Mean.design(-1, 1, epsilon=Fraction(str(spent)), method=kind), entropy)
            for method, kind in _METHODS.items()
            if kind is not MeanMethod.OPTIMAL  # not available at every epsilon
        }
        for method, perturb in perturbations.items():

            def train(rows: RegressionData, perturb: Perturb = perturb, loss: float = spent) -> Floats:
                shuffled = rows.take(generator.permutation(len(rows.outcomes)))
                return descend(shuffled, perturb, group=group_size(width, loss), generator=generator)

            yield {
                "data": name,
                "method": method,
                "epsilon": float(epsilon),
                "real_epsilon": spent,
                "mse": _validated(all_rows, train, []),
            }


def _coefficients(fits: Fits) -> Table:
    """Return mean and standard deviation of every coefficient over the fits, next to the optimum."""
    rows: list[Row] = []
    for (name, method, procedure, epsilon), coefficients in fits.items():
        best = np.mean(fits[name, "none", "optimum", None], axis=0)
        rows += [
            {
                "data": name,
                "method": method,
                "procedure": procedure,
                "epsilon": epsilon,
                "coefficient": place,
                "mean": float(mean),
                "sd": float(spread),
                "optimum": float(best[place]),
            }
            for place, (mean, spread) in enumerate(
                zip(np.mean(coefficients, axis=0), np.std(coefficients, axis=0), strict=True)
            )
        ]
    return tuple(rows)


def printed_scores(
    people: RegressionData,
    collect: printed_sgd.Collector,
    epsilon: float,
    generator: np.random.Generator,
    fitted: list[Floats],
) -> printed_sgd.Score:
    """Run the printed program on the given people: 25 fits, scored as printed and on the held-out fold.

    The coefficients of every fit are appended to ``fitted``.
    """
    group = printed_sgd.group_size(people.inputs.shape[1] + 1, epsilon)

    def fit(inputs: Floats, outcomes: Floats) -> Floats:
        fitted.append(printed_sgd.descend(inputs, outcomes, collect, group=group, generator=generator))
        return fitted[-1]

    return printed_sgd.validated(people.inputs, people.outcomes, fit)


def _printed(epsilon: Fraction, options: Options) -> Iterator[tuple[str, float | str, printed_sgd.Collector]]:
    """Yield the printed line-up: the name of each method, its actual epsilon, and the collector of its reports."""
    plain = float(epsilon)
    budgets = [float(epsilon * level) for level in options.budgets or hiera_labs.BUDGETS]
    mu = options.single("mu", min(printed_hiera.PRINTED_MU, len(budgets)))
    yield "harmony", plain, printed_sgd.summed(lambda v, g: printed_hiera.harmony(v, plain, g))
    yield "pm", plain, printed_sgd.summed(lambda v, g: printed_hiera.piecewise(v, plain, g))
    yield "multi_laplace", "inf", printed_sgd.summed(lambda v, g: printed_hiera.multi_laplace(v, budgets, g))
    real, _ = graded(tuple(epsilon * level for level in options.budgets or hiera_labs.BUDGETS), SimulatedEntropy(0))
    yield "hiera", real, printed_sgd.graded(budgets, mu)


Trainer = Callable[[RegressionData], Floats]


def _corrected(
    epsilon: Fraction, options: Options, dimension: int, generator: np.random.Generator
) -> Iterator[tuple[str, str, float, Trainer]]:
    group = group_size(dimension, float(epsilon))
    entropy = SimulatedEntropy(int(generator.integers(1 << 62)))
    best = Mean.design(-1, 1, epsilon=epsilon)
    yield (
        best.method.value,
        "ridge",
        float(epsilon),
        lambda rows: ridge(rows, best, entropy=entropy, generator=generator),
    )
    perturbations: list[tuple[str, float, Perturb]] = [
        (name, float(epsilon), perturb_with(Mean.design(-1, 1, epsilon=epsilon, method=method), entropy))
        for name, method in _METHODS.items()
    ]
    perturbations.append(
        ("hiera", *graded(tuple(epsilon * level for level in options.budgets or hiera_labs.BUDGETS), entropy))
    )
    for name, real, perturb in perturbations:

        def train(rows: RegressionData, perturb: Perturb = perturb) -> Floats:
            shuffled = rows.take(generator.permutation(len(rows.outcomes)))
            return descend(shuffled, perturb, group=group, generator=generator)

        yield name, CORRECTED, real, train


def _optimum(rows: RegressionData) -> Floats:
    solved: Floats = np.linalg.lstsq(rows.inputs, rows.outcomes)[0].astype(np.float64)
    return solved


def graded(budgets: tuple[Fraction, ...], entropy: SimulatedEntropy) -> tuple[float, Perturb]:
    """Return HierA for gradients: the level of a report is that of the coordinate's input, the sign that of the
    gradient.

    The result is the exact epsilon of the channel from (level, gradient) to (level, sign), and the perturbation.
    """
    rate, depth = attenuation(budgets), len(budgets)
    strength = np.exp([float(budget) for budget in budgets])
    levels = (np.ones((depth, depth)) + np.diag(strength - 1)) / (strength + depth - 1)[:, None]
    rows = np.empty((2 * depth, 2 * depth))
    for end, sign in enumerate((-1, 1)):
        rows[end::2, ::2] = levels * (1 + sign * rate) / 2
        rows[end::2, 1::2] = levels * (1 - sign * rate) / 2
    ends = np.array(DIVISIONS) if depth == len(DIVISIONS) - 1 else np.linspace(-1, 1, depth + 1)
    table = IntegerTable.nearest(rows)
    outputs = np.repeat(1 / rate, 2) * np.tile([1, -1], depth)

    def perturb(values: Floats, coordinate: NDArray[np.intp], inputs: Floats) -> Floats:  # noqa: ARG001
        level = levels_of(inputs, ends)
        codes = np.uint16(2) * level + grid_codes(values, entropy, low=-1, high=1, inputs=2)
        noisy: Floats = outputs[table.draw(codes, entropy)]
        return noisy

    return round(float(proven(table.ratio())), 3), perturb


def _validated(rows: RegressionData, train: Trainer, fitted: list[Floats]) -> float:
    """Return the mean error over the folds, each held out once. Coefficients of every fit are appended to
    ``fitted``.
    """
    folds = np.array_split(np.arange(len(rows.outcomes)), FOLDS)
    errors = []
    for held in range(FOLDS):
        rest = np.concatenate([fold for index, fold in enumerate(folds) if index != held])
        fitted.append(train(rows.take(rest)))
        errors.append(mean_squared_error(rows.take(folds[held]), fitted[-1]))
    return float(np.mean(errors))


def _averaged(rows: Sequence[Row]) -> Table:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(value for name, value in row.items() if name != "mse"), []).append(row)
    return tuple({**same[0], "mse": float(np.mean([_mse(row) for row in same]))} for same in groups.values())


def _mse(row: Row) -> float:
    return float(row["mse"] or 0)


def lesson(errors: Table) -> str:
    """Return sentences on the printed steps, from the table."""
    above, among = [], [row for row in errors if row["procedure"] == HELD_OUT]
    for row in among:
        (mean,) = (
            _mse(other)
            for other in errors
            if other["procedure"] == "predicting the mean"
            and (other["data"], other["epsilon"]) == (row["data"], row["epsilon"])
        )
        above.append(_mse(row) > mean)
    sentence = (
        f"In {sum(above)} of {len(among)} lines of the table the printed procedure scores worse than predicting the "
        "mean for everybody, on the fold held out."
    )
    if not any(above):
        return sentence
    return sentence + " Its steps are so short there that the coefficients stay near their random start."


def _summary(errors: Table) -> Table:
    at = 1.0 if any(row["epsilon"] == 1 for row in errors) else errors[0]["epsilon"]
    lines: list[Row] = []
    for data in dict.fromkeys(row["data"] for row in errors):
        results = {
            (row["method"], row["procedure"]): row for row in errors if (row["data"], row["epsilon"]) == (data, at)
        }
        printed = results["harmony", SCORED]
        faithful = printed["faithful_run"]
        lines.append(
            {
                "experiment": f"mean squared error of Harmony at epsilon = {at:g}, {data}",
                "published": "a picture only" + ("" if faithful is None else f"; a faithful run scores {faithful:g}"),
                "as_printed": f"{_mse(printed):.4g}",
                "honest": f"{_mse(results['harmony', CORRECTED]):.4g} (optimum {_mse(results['none', 'optimum']):.4g})",
                "lesson": "scaling the sampled coordinate by d and averaging the iterates changes the error "
                f"{_mse(results['harmony', CORRECTED]) / _mse(printed):.2g} times",
            }
        )
    return tuple(lines)


def _plot(errors: Table) -> Plot:
    panels = []
    for data in dict.fromkeys(row["data"] for row in errors):
        mine = [row for row in errors if row["data"] == data]
        levels = {str(row["procedure"]): _mse(row) for row in mine if row["method"] == "none"}
        drawn = [
            {**row, "line": f"{row['method']}, {row['procedure']}"}
            for row in mine
            if row["procedure"] in {SCORED, CORRECTED, "ridge"}
        ]
        right = max(float(row["epsilon"] or 0) for row in mine)
        panel = charts.lines(
            drawn,
            ChartAxis(column="epsilon", title="epsilon", zero=False),
            ChartAxis(column="mse", title="mean squared error, outcomes from -1 to 1", log=True),
            series="line",
            panel=Panel(title=str(data), size=(330, 320)),
        )
        for label, value in levels.items():
            panel += charts.level(value, label, x=right, below=label == "optimum")
        panels.append(panel)
    return Plot("errors", f"Mean squared error by epsilon. {lesson(errors)}", charts.side_by_side(panels, columns=2))


def _equal_plot(rows: Table) -> Plot:
    panels = [
        charts.lines(
            [row for row in rows if row["data"] == data],
            ChartAxis(column="real_epsilon", title="real epsilon of every method", zero=False),
            ChartAxis(column="mse", title="mean squared error, outcomes from -1 to 1", log=True),
            series="method",
            panel=Panel(title=str(data), size=(330, 320)),
        )
        for data in dict.fromkeys(row["data"] for row in rows)
    ]
    caption = "Mean squared error of the corrected descents, all at the epsilon that HierA really spends."
    return Plot("equal", caption, charts.side_by_side(panels, columns=2))


LABS = {
    "ldp-sgd": Lab(
        name="ldp-sgd",
        title=TITLE,
        procedure=run,
        takes=frozenset({"data", "epsilon", "budgets", "mu", "people", "target", "inputs"}),
        runs=1,
    )
}
