"""One run of one contestant of the census benchmark, in a process (and, for peers, an environment) of its own.

    python _census_run.py CONTESTANT IN.npz OUT.npy EPSILON DELTA SEED

``IN.npz`` holds ``codes`` (rows x columns), ``sizes`` and ``ordered``; synthetic codes go to ``OUT.npy``;
CPU seconds and peak memory are printed as JSON.  Imports are made before the clock starts.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from itertools import combinations

import numpy as np


def sfumato(codes, sizes, ordered, *, epsilon, delta, seed, method="aim"):
    from sfumato.domain import Categorical, Domain, Integer, Unknown
    from sfumato.engine.arrays import ArrayTable
    from sfumato.model.simulation import generator
    from sfumato.privacy.loss import EpsilonDelta
    from sfumato.synthesize.aim import aim
    from sfumato.synthesize.mst import mst
    from sfumato.synthesize.total import Summed
    from sfumato.synthesize.workload import all_marginals
    from sfumato.vault.fake import FakeVault

    def attribute(index):
        size, name = int(sizes[index]), f"c{index}"
        if ordered[index]:
            return Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP)
        return Categorical(name=name, values=tuple(range(size)), unknown=Unknown.DROP)

    domain = Domain(tuple(attribute(index) for index in range(len(sizes))))
    loss = EpsilonDelta(epsilon, delta)

    def run():
        vault = FakeVault(ArrayTable(domain, codes), seed=seed)
        if method == "mst":
            release = mst(vault, loss=loss, total=Summed())
        else:
            release = aim(vault, loss=loss, total=Summed(), workload=all_marginals(3))
        return release.model.sample(generator(seed))

    return run


def sfumato_mst(codes, sizes, ordered, **options):
    return sfumato(codes, sizes, ordered, method="mst", **options)


def mbi_mst(codes, sizes, ordered, *, epsilon, delta, seed):  # noqa: ARG001
    """The published MST recipe over private-pgm's inference: thirds for one-way tables, choosing, and pairs."""
    from mbi import Dataset, Domain, LinearMeasurement, estimation

    random = np.random.default_rng(seed)
    names = [f"c{index}" for index in range(len(sizes))]
    rho = _rho(epsilon, delta)

    def count(columns, table, shape):
        cells = np.ravel_multi_index([table[column] for column in columns], [shape[column] for column in columns])
        return np.bincount(cells, minlength=math.prod(shape[column] for column in columns)).astype(float)

    def estimate(domain, measured):
        return estimation.MirrorDescent().estimate(domain, measured, iters=1000)

    def run():
        full = dict(zip(names, map(int, sizes), strict=True))
        table = dict(zip(names, codes.T, strict=True))
        sigma = math.sqrt(len(names) * 3 / (2 * rho))
        groups, measured, shape = {}, [], {}
        for name in names:
            noisy = count([name], table, full) + random.normal(scale=sigma, size=full[name])
            kept = noisy >= 3 * sigma
            group = np.where(kept, np.cumsum(kept) - 1, kept.sum())
            groups[name], shape[name] = group, int(group.max()) + 1
            sizes_of = np.sqrt(np.bincount(group, minlength=shape[name]))
            merged = np.bincount(group, weights=noisy, minlength=shape[name])
            # one variance a measurement: merged cells are too noisy, as in the published code they are rescaled
            measured.append(LinearMeasurement(merged, (name,), sigma * float(sizes_of.mean())))
        table = {name: groups[name][table[name]] for name in names}
        domain = Domain(names, [shape[name] for name in names])
        model = estimate(domain, measured)
        pairs = list(combinations(names, 2))
        errors = {
            pair: float(np.abs(count(pair, table, shape) - model.project(pair).datavector()).sum()) for pair in pairs
        }
        tree, component = [], {name: name for name in names}
        each = math.sqrt(8 * rho / 3 / (len(names) - 1))
        for _ in range(len(names) - 1):
            open_pairs = [pair for pair in pairs if component[pair[0]] != component[pair[1]]]
            scores = np.array([errors[pair] for pair in open_pairs]) * each / 2
            pair = open_pairs[int((scores + random.gumbel(size=len(scores))).argmax())]
            tree.append(pair)
            old, new = component[pair[1]], component[pair[0]]
            component = {name: new if where == old else where for name, where in component.items()}
        sigma = math.sqrt(len(tree) * 3 / (2 * rho))
        for pair in tree:
            noisy = count(pair, table, shape) + random.normal(scale=sigma, size=shape[pair[0]] * shape[pair[1]])
            measured.append(LinearMeasurement(noisy, pair, sigma))
        np.random.seed(seed)  # noqa: NPY002  (the peer samples from the global generator)
        rows = estimate(domain, measured).synthetic_data()
        found = rows.to_dict() if isinstance(rows, Dataset) else rows
        columns = []
        for name in names:
            members = [np.flatnonzero(groups[name] == group) for group in range(shape[name])]
            column = np.asarray(found[name]).astype(int)
            picks = random.random(len(column))
            columns.append(np.array([members[g][int(p * len(members[g]))] for g, p in zip(column, picks, strict=True)]))
        return np.stack(columns, axis=1)

    return run


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
    """The rho of Bun and Steinke's Proposition 1.3: what a peer without a tighter conversion may use."""
    log = math.log(1 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


CONTESTANTS = {
    "sfumato-aim": sfumato,
    "sfumato-mst": sfumato_mst,
    "mbi-mst": mbi_mst,
    "dpmm-mst": dpmm_mst,
    "dpmm-aim": dpmm_aim,
}


def main(contestant, source, target, epsilon, delta, seed):
    with np.load(source) as table:
        codes, sizes, ordered = table["codes"], table["sizes"], table["ordered"]
    run = CONTESTANTS[contestant](codes, sizes, ordered, epsilon=float(epsilon), delta=float(delta), seed=int(seed))
    start = time.process_time()
    found = run()
    seconds = time.process_time() - start
    np.save(target, found.astype(np.int64))
    print(json.dumps({"cpu_s": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main(*sys.argv[1:])
