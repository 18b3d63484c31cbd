"""Run one contestant of the census benchmark once, in a process (and, for peers, an environment) of its own.

python _census_run.py CONTESTANT IN.npz OUT.npy EPSILON DELTA SEED SECONDS

``IN.npz`` has ``codes`` (rows x columns), ``sizes`` and ``ordered``. Synthetic codes go to ``OUT.npy``. CPU seconds and
peak memory are printed as JSON. Imports are not timed. The operating system ends the process after its CPU seconds.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np


def sfumato(codes, sizes, ordered, *, seed, method="batched", **loss):  # noqa: ARG001  (noise has no seed)
    """Return a release of a Parquet file through a vault with its own ledger, as users make it, read back as codes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import sfumato as sf
    from sfumato import synthesize
    from sfumato.domain import Categorical, Domain, Integer, Unknown, dump
    from sfumato.privacy.loss import EpsilonDelta

    def attribute(index):
        size, name = int(sizes[index]), f"c{index}"
        if ordered[index]:
            return Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP)
        return Categorical(name=name, values=tuple(range(size)), unknown=Unknown.DROP)

    folder = tempfile.TemporaryDirectory()
    place = Path(folder.name)
    domain = Domain(tuple(attribute(index) for index in range(len(sizes))))
    (place / "table.yaml").write_text(dump(domain), encoding="utf-8")
    pq.write_table(pa.table(dict(zip(domain.names, codes.T, strict=True))), place / "table.parquet")
    loss = EpsilonDelta(**loss)

    def run():
        vault = sf.open(
            place / "table.parquet",
            domain=place / "table.yaml",
            ledger=f"sqlite:///{place / 'ledger'}",
            limit=loss,
            create=True,
        )
        total = synthesize.NoisyTotal()
        if method == "mst":
            release = synthesize.mst(vault, loss=loss, total=total)
        elif method == "independent":
            release = synthesize.marginals(vault, loss=loss, total=total, cliques=[(name,) for name in domain.names])
        else:
            release = synthesize.batched(vault, loss=loss, total=total, workload=synthesize.all_marginals(3))
        release.rows.to_parquet(str(place / "synthetic.parquet"))
        made = pq.read_table(place / "synthetic.parquet")
        rows = np.stack([made[name].to_numpy().astype(np.int64) for name in domain.names], axis=1)
        folder.cleanup()
        return rows

    return run


def sfumato_mst(codes, sizes, ordered, **options):
    return sfumato(codes, sizes, ordered, method="mst", **options)


def sfumato_independent(codes, sizes, ordered, **options):
    return sfumato(codes, sizes, ordered, method="independent", **options)


class Grouped:
    """A table whose rare values are merged by noisy one-way counts, for recipes with private-pgm's inference."""

    def __init__(self, codes, sizes, *, sigma, random):
        from mbi import LinearMeasurement

        self.random = random
        self.names = [f"c{index}" for index in range(len(sizes))]
        full = dict(zip(self.names, map(int, sizes), strict=True))
        table = dict(zip(self.names, codes.T, strict=True))
        self.groups, self.measured, self.shape = {}, [], {}
        for name in self.names:
            noisy = _count([name], table, full) + random.normal(scale=sigma, size=full[name])
            kept = noisy >= 3 * sigma
            group = np.where(kept, np.cumsum(kept) - 1, kept.sum())
            self.groups[name], self.shape[name] = group, int(group.max()) + 1
            sizes_of = np.sqrt(np.bincount(group, minlength=self.shape[name]))
            merged = np.bincount(group, weights=noisy, minlength=self.shape[name])
            # one variance per measurement: merged cells are rescaled as in the published code, so they are too noisy
            self.measured.append(LinearMeasurement(merged, (name,), sigma * float(sizes_of.mean())))
        self._table = {name: self.groups[name][table[name]] for name in self.names}

    def count(self, columns):
        return _count(columns, self._table, self.shape)

    def noisy(self, columns, sigma):
        from mbi import LinearMeasurement

        counts = self.count(columns)
        return LinearMeasurement(counts + self.random.normal(scale=sigma, size=counts.size), columns, sigma)

    def estimate(self, measured, *, start=None):
        from mbi import Domain, estimation

        domain = Domain(self.names, [self.shape[name] for name in self.names])
        return estimation.MirrorDescent().estimate(domain, measured, iters=1000, warm_start=start)

    def error(self, columns, model):
        return float(np.abs(self.count(columns) - model.project(columns).datavector()).sum())

    def choose(self, scores, exponent):
        """Choose by the exponential mechanism with the Gumbel trick: scores of sensitivity one, at ``exponent``."""
        return int((scores * exponent / 2 + self.random.gumbel(size=len(scores))).argmax())

    def rows(self, model, seed):
        from mbi import Dataset

        np.random.seed(seed)  # noqa: NPY002  (the peer samples from the global generator)
        rows = model.synthetic_data()
        found = rows.to_dict() if isinstance(rows, Dataset) else rows
        columns = []
        for name in self.names:
            members = [np.flatnonzero(self.groups[name] == group) for group in range(self.shape[name])]
            column = np.asarray(found[name]).astype(int)
            picks = self.random.random(len(column))
            columns.append(np.array([members[g][int(p * len(members[g]))] for g, p in zip(column, picks, strict=True)]))
        return np.stack(columns, axis=1)


def mbi_mst(codes, sizes, ordered, *, epsilon, delta, seed):  # noqa: ARG001
    """Return the published MST recipe over private-pgm's inference: thirds for one-way tables, selection, and pairs."""
    rho = _rho(epsilon, delta)
    columns = len(sizes)

    def run():
        table = Grouped(codes, sizes, sigma=math.sqrt(columns * 3 / (2 * rho)), random=np.random.default_rng(seed))
        model = table.estimate(table.measured)
        errors = {pair: table.error(pair, model) for pair in combinations(table.names, 2)}
        tree, component = [], {name: name for name in table.names}
        for _ in range(columns - 1):
            open_pairs = [pair for pair in errors if component[pair[0]] != component[pair[1]]]
            scores = np.array([errors[pair] for pair in open_pairs])
            pair = open_pairs[table.choose(scores, math.sqrt(8 * rho / 3 / (columns - 1)))]
            tree.append(pair)
            old, new = component[pair[1]], component[pair[0]]
            component = {name: new if where == old else where for name, where in component.items()}
        sigma = math.sqrt(len(tree) * 3 / (2 * rho))
        pairs = [table.noisy(pair, sigma) for pair in tree]
        return table.rows(table.estimate([*table.measured, *pairs]), seed)

    return run


def mbi_aim(codes, sizes, ordered, *, epsilon, delta, seed):  # noqa: ARG001
    """Return the published AIM recipe over private-pgm's inference, limited to pairs, two rounds per column, and 1
    MB.
    """
    from mbi import Domain, junction_tree

    rho = _rho(epsilon, delta)
    columns = len(sizes)
    rounds, megabytes = 2 * columns, 1.0

    def run():
        sigma, exponent = math.sqrt(rounds / (2 * 0.9 * rho)), math.sqrt(8 * 0.1 * rho / rounds)
        table = Grouped(codes, sizes, sigma=sigma, random=np.random.default_rng(seed))
        domain = Domain(table.names, [table.shape[name] for name in table.names])
        pairs = list(combinations(table.names, 2))
        measured, spent = list(table.measured), columns / (2 * sigma**2)
        model = table.estimate(measured)
        while spent < rho * (1 - 1e-9):
            if rho - spent < 2 * (1 / (2 * sigma**2) + exponent**2 / 8):  # the last round takes the rest
                sigma, exponent = math.sqrt(1 / (2 * 0.9 * (rho - spent))), math.sqrt(8 * 0.1 * (rho - spent))
            spent += 1 / (2 * sigma**2) + exponent**2 / 8
            present = [measurement.clique for measurement in measured]
            room = max(megabytes * spent / rho, 1.0001 * junction_tree.hypothetical_model_size(domain, present))
            fits = [p for p in pairs if junction_tree.hypothetical_model_size(domain, [*present, p]) <= room]
            expected = math.sqrt(2 / math.pi) * sigma
            scores = [table.error(p, model) - expected * domain.size(p) for p in fits]
            pair = fits[table.choose(np.array(scores), exponent)]
            measured.append(table.noisy(pair, sigma))
            before = model.project(pair).datavector()
            model = table.estimate(measured, start=model)
            if np.abs(model.project(pair).datavector() - before).sum() <= expected * domain.size(pair):
                sigma, exponent = sigma / 2, exponent * 2
        return table.rows(model, seed)

    return run


def _count(columns, table, shape):
    cells = np.ravel_multi_index([table[column] for column in columns], [shape[column] for column in columns])
    return np.bincount(cells, minlength=math.prod(shape[column] for column in columns)).astype(float)


def dpmm(codes, sizes, *, model, epsilon, delta, seed, **options):
    import pandas as pd

    names = [f"c{index}" for index in range(len(sizes))]
    frame = pd.DataFrame(codes, columns=names)
    domain = dict(zip(names, map(int, sizes), strict=True))

    def run():
        generative = model(epsilon=epsilon, delta=delta, n_jobs=1, **options)
        generative.set_random_state(np.random.RandomState(seed))
        generative.set_domain(domain=domain)
        generative.fit(frame)
        return generative.generate(n_records=len(frame))[names].to_numpy()

    return run


def dpmm_mst(codes, sizes, ordered, **options):  # noqa: ARG001
    from dpmm.models.mst import MSTGM

    return dpmm(codes, sizes, model=MSTGM, **options)


def dpmm_aim(codes, sizes, ordered, **options):  # noqa: ARG001
    from dpmm.models.aim import AIMGM

    return dpmm(codes, sizes, model=AIMGM, max_model_size=1, **options)


def _rho(epsilon, delta):
    """Return the rho of Bun and Steinke's Proposition 1.3, for peers without a tighter conversion."""
    log = math.log(1 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


CONTESTANTS = {
    "sfumato-batched": sfumato,
    "sfumato-mst": sfumato_mst,
    "sfumato-independent": sfumato_independent,
    "mbi-mst": mbi_mst,
    "mbi-aim": mbi_aim,
    "dpmm-mst": dpmm_mst,
    "dpmm-aim": dpmm_aim,
}


def main(contestant, source, target, *figures):
    epsilon, delta, seed, bound = figures
    resource.setrlimit(resource.RLIMIT_CPU, (int(bound), int(bound) + 10))
    with np.load(source) as table:
        codes, sizes, ordered = table["codes"], table["sizes"], table["ordered"]
    run = CONTESTANTS[contestant](codes, sizes, ordered, epsilon=float(epsilon), delta=float(delta), seed=int(seed))
    del codes  # Sfumato reads them from its file
    start = time.process_time()
    found = run()
    seconds = time.process_time() - start
    np.save(target, found.astype(np.int64))
    print(json.dumps({"cpu_s": seconds, "peak_mb": peak_megabytes()}))


def peak_megabytes():
    """Return the peak memory of this program; ``ru_maxrss`` would include the memory of the parent process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
