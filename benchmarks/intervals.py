"""Coverage of the intervals of a synthetic release: ``python benchmarks/intervals.py adult 60``.

Each release is of a fresh sample, with replacement, of the rows of a public table, so the truth of both sample and
population is known.  The questions are fixed before any release.  For every pair of attributes they are some cells of
at least 200 rows and some of 1 to 199.  They also include the cells of single attributes, and means of numbers by
categories.  Each release is made like a user's: a Parquet file, a ledger, the released file, and intervals from that
file.

``python benchmarks/intervals.py regression 300`` measures the intervals of a linear regression in the same way.
``python benchmarks/intervals.py moments 3000`` measures the formula alone, in arrays and without the library.
``python benchmarks/intervals.py stated 60 "german,nist 7600" 1`` compares the stated errors of codebooks with the
true errors of the files.  Each release is made by ``sfumato synthesize`` with fresh noise.  Last come the tables and
epsilon.  The tables need ``SFUMATO_DATA``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import _census_data
import numpy as np
import pyarrow as pa
from ablation import load
from pyarrow import parquet

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unknown, dump
from sfumato.domain.predicate import All, Among
from sfumato.privacy.loss import EpsilonDelta
from sfumato.query import ReleaseInterval, interval, linear_regression
from sfumato.query.question import Query, count, mean
from sfumato.synthesize import (
    NoisyTotal,
    SizeLimits,
    SyntheticFile,
    all_marginals,
    batched,
    read_codebook,
    read_release,
)
from sfumato.synthesize.codebook.codebook import Codebook, PairEntry
from sfumato.vault.vault import Vault

CELLS = 4  # cells of each size, for every pair of attributes
PEOPLED = 200


@dataclass(frozen=True)
class Fixed:
    """A question with the data for its exact answer."""

    kind: str
    names: tuple[str, ...]
    query: Query
    where: tuple[tuple[str, int], ...]
    of: str | None = None

    def answer(self, columns: dict[str, np.ndarray]) -> float:
        """Return the exact answer of some rows."""
        kept = np.ones(len(next(iter(columns.values()))), dtype=bool)
        for name, code in self.where:
            kept &= columns[name] == code
        return float(kept.sum() if self.of is None else columns[self.of][kept].mean())


def described(columns: dict[str, _census_data.Column]) -> Domain:
    """Return ordered columns as integers, others as categories, all by their codes."""
    return Domain(
        tuple(
            Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.CLAMP)
            if ordered
            else Categorical(name=name, values=tuple(map(str, range(size))), unknown=Unknown.DROP)
            for name, (_, size, ordered) in columns.items()
        )
    )


def questions(domain: Domain, codes: dict[str, np.ndarray], random: np.random.Generator) -> list[Fixed]:
    """Return the questions, from the population alone."""
    found = []
    for names in [*((name,) for name in domain.names), *combinations(domain.names, 2)]:
        shape = domain.project(names).shape
        counts = np.bincount(
            np.ravel_multi_index([codes[name] for name in names], shape), minlength=int(np.prod(shape))
        )
        for kind, cells in (
            ("cells of 200 rows and more", np.flatnonzero(counts >= PEOPLED)),
            ("cells of 1 to 199 rows", np.flatnonzero((counts > 0) & (counts < PEOPLED))),
        ):
            for cell in random.permutation(cells)[:CELLS]:
                where = tuple(zip(names, map(int, np.unravel_index(cell, shape)), strict=True))
                asked = All(tuple(Among(name, frozenset({code})) for name, code in where))
                one = "" if len(names) > 1 else ", one attribute"
                found.append(Fixed(kind + one, names, count(asked), where))
    for number in [attribute.name for attribute in domain if isinstance(attribute, Integer)]:
        found.append(Fixed("means", (number,), mean(number), (), number))
        for by in [attribute.name for attribute in domain if isinstance(attribute, Categorical)]:
            common = int(np.bincount(codes[by]).argmax())
            asked = Among(by, frozenset({common}))
            found.append(Fixed("means in groups", (number, by), mean(number, asked), ((by, common),), number))
    return found


LOSS = EpsilonDelta(1, "1e-9")


def opened(folder: Path, domain: Domain, sample: dict[str, np.ndarray]) -> Vault:
    """Return a sample as a file with its own ledger."""
    table = folder / "sample.parquet"
    numbers = {each.name: sample[each.name] for each in domain}
    texts = {each.name: numbers[each.name].astype(str) for each in domain if isinstance(each, Categorical)}
    parquet.write_table(pa.table(numbers | texts), table)
    return sf.open(table, domain=domain, ledger=f"sqlite:///{folder / 'sample.ledger'}", limit=LOSS, create=True)


def released(folder: Path, domain: Domain, sample: dict[str, np.ndarray], *, bounds: bool) -> SyntheticFile:
    """Return a release of a sample, read from its file alone."""
    file = folder / "synthetic.parquet"
    vault = opened(folder, domain, sample)
    limits = SizeLimits(distance_bounds=bounds)
    made = batched(vault, loss=LOSS, total=NoisyTotal(), workload=all_marginals(2), limits=limits)
    made.rows.write(file)
    return read_release(file)


def bounded(
    asked: list[Fixed], answers: list[ReleaseInterval], sample: dict[str, np.ndarray]
) -> list[tuple[bool, float, float]]:
    """Return, for cells outside all tables, whether the bound held, its half-width, and the error of the file."""
    found = []
    for each, said in zip(asked, answers, strict=True):
        if said.bound is not None and each.of is None:
            truth, low, high = each.answer(sample), said.bound.low, said.bound.high
            found.append((low <= truth <= high, (high - low) / 2, (said.model or 0.0) - truth))
    return found


def tell_bounds(outside: list[tuple[bool, float, float]]) -> None:
    """Print how often bounds held, if there are any."""
    if outside:
        within, half, error = np.array(outside, dtype=float).T
        print(f"Bounds of {len(outside)} cells that no table holds: {within.mean():.3f} held, half-width "
              f"{half.mean():.4g}, error of the file {np.sqrt((error**2).mean()):.4g} (rms).")  # fmt: skip


def main(name: str, releases: int, most_columns: int, *, bounds: bool) -> None:
    """Print how often intervals held, by kind of question, and for the worst attribute.

    With ``bounds``, also print how often the bounds of cells outside all tables held.
    """
    columns = dict(list(_census_data.load(name).items())[:most_columns])
    domain = described(columns)
    codes = {each: found for each, (found, _, _) in columns.items()}
    asked = questions(domain, codes, np.random.default_rng(1))
    held = defaultdict(list)  # by question: held in the sample, held in the population, half width, error of the model
    outside: list[tuple[bool, float, float]] = []
    rows = len(next(iter(codes.values())))
    started = time.process_time()
    for seed in range(releases):
        drawn = np.random.default_rng(1000 + seed).integers(0, rows, rows)
        sample = {each: found[drawn] for each, found in codes.items()}
        with tempfile.TemporaryDirectory() as folder:
            release = released(Path(folder), domain, sample, bounds=bounds)
            answers = [interval(release, each.query) for each in asked]
        outside += bounded(asked, answers, sample)
        for place, (each, found) in enumerate(zip(asked, answers, strict=True)):
            if found.table is None or found.population is None:
                continue
            truth, beyond = each.answer(sample), each.answer(codes)
            held[place].append((
                found.table.low <= truth <= found.table.high,
                found.population.low <= beyond <= found.population.high,
                (found.table.high - found.table.low) / 2,
                abs((found.model or 0.0) - truth),
                len(found.tables),
            ))  # fmt: skip
        print(f"release {seed + 1} of {releases}, {time.process_time() - started:.0f} CPU s", file=sys.stderr)
    print(f"{name}: {rows} rows, {len(domain)} columns, {releases} releases, {len(asked)} questions")
    print("| questions | answered | table | population | half-width | error of the model |")
    print("| --- | --- | --- | --- | --- | --- |")
    kinds = defaultdict(list)
    attributes = defaultdict(list)
    for place, found in held.items():
        kinds[asked[place].kind] += found
        for each in asked[place].names:
            if asked[place].kind.startswith("cells"):
                attributes[each] += found
    total = defaultdict(int)
    for each in asked:
        total[each.kind] += releases
    for kind, found in kinds.items():
        hits, beyond, half, error, _ = np.mean(np.array(found, dtype=float), axis=0)
        print(f"| {kind} | {len(found) / total[kind]:.0%} | {hits:.3f} | {beyond:.3f} | {half:.4g} | {error:.4g} |")
    tell_bounds(outside)
    for which, word in ((0, "table"), (1, "population")):
        shares = {each: np.mean([one[which] for one in found]) for each, found in attributes.items()}
        worst = min(shares, key=shares.__getitem__)
        print(f"Worst attribute, {word}: {worst}, {shares[worst]:.3f} of {len(attributes[worst])} intervals of cells.")
    often = {place: np.mean([one[0] for one in found]) for place, found in held.items() if len(found) >= releases / 2}
    worst_question = min(often, key=often.__getitem__)
    print(f"Worst question: {asked[worst_question].query.describe(domain)}, {often[worst_question]:.3f} "
          f"of {len(held[worst_question])}.")  # fmt: skip


INPUTS = ("age", "education_num", "gender = '1'", "marital_status = '2'", "class = '1'")


def regression(runs: int) -> None:
    """Print how often intervals of coefficients held: hours per week of Adult by five inputs."""
    names = ("age", "education_num", "hours_per_week", "gender", "marital_status", "class")
    columns = {each: found for each, found in _census_data.load("adult").items() if each in names}
    domain = described(columns)
    codes = {each: found for each, (found, _, _) in columns.items()}
    rows = len(codes["age"])

    def solved(sample: dict[str, np.ndarray]) -> np.ndarray:
        inputs = [np.ones(rows), sample["age"], sample["education_num"]]
        inputs += [sample["gender"] == 1, sample["marital_status"] == 2, sample["class"] == 1]
        return np.linalg.lstsq(np.column_stack(inputs).astype(float), sample["hours_per_week"].astype(float))[0]

    beyond = solved(codes)
    found = []
    for seed in range(runs):
        drawn = np.random.default_rng(1000 + seed).integers(0, rows, rows)
        sample = {each: column[drawn] for each, column in codes.items()}
        with tempfile.TemporaryDirectory() as folder:
            made = linear_regression(opened(Path(folder), domain, sample), "hours_per_week", INPUTS, loss=LOSS)
        exact = solved(sample)
        found.append([
            (
                each.table.low <= exact[place] <= each.table.high,
                each.population.low <= beyond[place] <= each.population.high,
                each.table.high - each.table.low,
                each.population.high - each.population.low,
            )
            for place, each in enumerate(made.coefficients)
        ])  # fmt: skip
    print("| coefficient | in the population | table | population | half-width | of a population |")
    print("| --- | --- | --- | --- | --- | --- |")
    for place, each in enumerate(np.mean(np.array(found, dtype=float), axis=0)):
        held, held_beyond, width, width_beyond = each
        name = ("(constant)", *INPUTS)[place]
        print(f"| {name} | {beyond[place]:.3f} | {held:.3f} | {held_beyond:.3f} | {width / 2:.3g} "
              f"| {width_beyond / 2:.3g} |")  # fmt: skip


def moments(draws: int) -> None:
    """Print how often intervals by the published formula hold, computed independently of the library.

    For a population, also use the spread of the residuals at each input (White 1980), which noisy moments do not show.
    """
    columns = _census_data.load("adult")
    hours, age, years = (columns[name] for name in ("hours_per_week", "age", "education_num"))
    ends = [(size - 1) / 2 for _, size, _ in (age, years, hours)]
    numbers = [codes / end - 1 for (codes, _, _), end in zip((age, years, hours), ends, strict=True)]
    flags = [np.where(columns[name][0] == code, 1.0, -1.0) for name, code in CONDITIONS]
    people = np.column_stack([np.ones(len(hours[0])), *numbers[:2], *flags, numbers[2]])
    cells, times = np.unique(people, axis=0, return_counts=True)
    rows, size = len(people), people.shape[1]
    upper = np.triu_indices(size)
    products = cells[:, upper[0]] * cells[:, upper[1]]
    deviation = np.sqrt(size * (size + 1) / 4 / float(LOSS.divisible.value))
    halves = np.array([*ends[:2], 0.5, 0.5, 0.5])
    own = np.diag([ends[2], *(ends[2] / halves)])
    own[0, 1:] = -ends[2] * np.array([*ends[:2], 0.5, 0.5, 0.5]) / halves
    beyond = np.linalg.lstsq(people[:, :-1], people[:, -1])[0]
    random, held = np.random.default_rng(1), []

    def square(flat: np.ndarray) -> np.ndarray:
        found = np.zeros((size, size))
        found[upper] = flat
        return found + found.T - np.diag(np.diag(found))

    for _ in range(draws):
        drawn = random.multinomial(rows, times / rows)
        exact = square(drawn @ products)
        noisy = exact + square(random.normal(0, deviation, len(upper[0])))
        inverse, plain = np.linalg.inv(noisy[:-1, :-1]), np.linalg.inv(exact[:-1, :-1])
        b, sample = inverse @ noisy[:-1, -1], plain @ exact[:-1, -1]
        g = np.append(-b, 1.0)
        mixed = np.outer(b, b)
        np.fill_diagonal(mixed, g @ g)
        noise = deviation**2 * inverse @ mixed @ inverse
        residuals = drawn * (cells[:, -1] - cells[:, :-1] @ sample) ** 2
        uneven = plain @ ((cells[:, :-1] * residuals[:, None]).T @ cells[:, :-1]) @ plain
        spread = noise + max(0.0, g @ noisy @ g) / noisy[0, 0] * inverse
        errors = [np.sqrt(np.diag(own @ each @ own.T)) for each in (noise, spread, noise + uneven)]
        off = [np.abs(own @ (b - truth)) for truth in (sample, beyond, beyond)]
        held.append([each <= 1.959964 * error for each, error in zip(off, errors, strict=True)])
    print("| coefficient | table | population | the same, spread uneven |")
    print("| --- | --- | --- | --- |")
    for name, found in zip(("(constant)", *INPUTS), np.mean(held, axis=0).T, strict=True):
        print(f"| {name} | {' | '.join(f'{each:.3f}' for each in found)} |")


STATED = ("german", "nist 7600", "adult")
SIZES = (("0", 0, 0), ("1 to 19", 1, 19), ("20 to 199", 20, 199), ("200 and more", 200, 1 << 60))


def stated(releases: int, tables: list[str], epsilon: str) -> None:
    """Print how wide stated errors are and how often they hold: by the rows of the value, and of the worst value."""
    print("| table | rows of the value | values | interval held | error held | stated, mean | true, 95 % | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in tables:
        domain, codes = load(name)
        found = [compared(domain, codes, epsilon) for _ in range(releases)]
        values, worst = (np.concatenate(part) for part in zip(*found, strict=True))
        for label, least, most in SIZES:
            rows, low, high, off_by, error = values[(values[:, 0] >= least) & (values[:, 0] <= most)].T
            held, true = ((low <= rows) & (rows <= high)).mean(), np.quantile(error, 0.95)
            print(f"| {name} | {label} | {len(rows) // releases} | {held:.3f} | {(error <= off_by).mean():.3f} "
                  f"| {off_by.mean():.1f} | {true:.1f} | {off_by.mean() / true:.2f} |", flush=True)  # fmt: skip
        for kind, label in enumerate(("columns", "pairs of values")):
            error, said = worst[worst[:, 0] == kind, 1:].T
            if len(error):
                true = np.quantile(error, 0.95)
                print(f"| {name} | worst of {label} | {len(error) // releases} | | {(error <= said).mean():.3f} "
                      f"| {said.mean():.1f} | {true:.1f} | {said.mean() / true:.2f} |", flush=True)  # fmt: skip


def commanded(domain: Domain, codes: np.ndarray, epsilon: str) -> tuple[np.ndarray, Codebook]:
    """Return the codes and the codebook of a release by the command."""
    given = ["table.parquet", "--domain", "table.yaml", "--epsilon", epsilon, "--delta", "1e-9", "--create"]
    given += ["--limit", f"{epsilon},1e-9", "--ledger", "ledger", "--out", "made.parquet", "--method", "batched"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "table.yaml").write_text(dump(domain), encoding="utf-8")
        parquet.write_table(pa.table(dict(zip(domain.names, codes.T, strict=True))), folder / "table.parquet")
        command = [str(Path(sys.executable).with_name("sfumato")), "synthesize", *given, "--way", "2"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        made, book = parquet.read_table(folder / "made.parquet"), read_codebook(folder / "made.parquet")
    return np.stack([made[name].to_numpy().astype(np.int64) for name in domain.names], axis=1), book


def compared(domain: Domain, codes: np.ndarray, epsilon: str) -> tuple[np.ndarray, np.ndarray]:
    """Compare the codebook of a release with the true errors of its file.

    Return rows, interval, stated and true error of each value; and kind, true and stated error of columns and pairs.
    """
    drawn, book = commanded(domain, codes, epsilon)
    scale = book.table_rows / len(drawn)
    values, worst = [], []
    for place, column in enumerate(book.columns):
        size = domain.shape[place]
        assert len(column.values) == size  # every value is listed alone
        exact, rows = (np.bincount(table[:, place], minlength=size) for table in (codes, drawn))
        error = np.abs(scale * rows - exact)
        ends = [(value.low, value.high, value.off_by) for value in column.values]
        values.append(np.column_stack([exact, np.array(ends, dtype=float), error]))
        worst.append((0, error.max(), column.worst))
    measured = [pair for pair in book.pairs if pair.measured]
    worst.extend(compared_pair(pair, domain, (codes, drawn), scale) for pair in measured)
    return np.concatenate(values), np.array(worst, dtype=float)


def compared_pair(
    pair: PairEntry, domain: Domain, tables: tuple[np.ndarray, np.ndarray], scale: float
) -> tuple[int, float, float]:
    """Return kind, true and stated error of a measured pair."""
    places = [domain.index(name) for name in pair.attributes]
    shape = [domain.shape[place] for place in places]
    exact, rows = (
        np.bincount(np.ravel_multi_index(table[:, places].T, shape), minlength=int(np.prod(shape))) for table in tables
    )
    error = np.abs(scale * rows - exact)
    return 1, float(error.max()), float(pair.worst_of_values or 0)


CONDITIONS = (("gender", 1), ("marital_status", 2), ("class", 1))


if __name__ == "__main__":
    if sys.argv[1] == "stated":
        given = sys.argv[3:]
        stated(int(sys.argv[2]), given[0].split(",") if given else list(STATED), given[1] if given[1:] else "1")
        sys.exit()
    if sys.argv[1] in ("regression", "moments"):
        (regression if sys.argv[1] == "regression" else moments)(int(sys.argv[2]))
        sys.exit()
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100, bounds="bounds" in sys.argv)
