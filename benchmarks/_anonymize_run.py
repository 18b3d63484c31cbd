"""Run one contestant of the anonymization benchmark once, in a process and, for peers, an environment of its own.

python _anonymize_run.py CONTESTANT TABLE.csv K HIERARCHIES

``TABLE.csv`` has the quasi-identifiers only.  The program prints, as JSON, the CPU seconds from rows in memory to
classes (the better of two calls), and the figures that the loss needs.  Imports and reading are not timed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def anonypy(table, k, _):
    import pandas as pd
    from anonypy.mondrian import Mondrian

    frame = pd.read_csv(table)
    start = time.process_time()
    parts = Mondrian(frame, list(frame.columns)).partition(k)
    seconds = time.process_time() - start
    boxes = [(frame.loc[part].min(), frame.loc[part].max(), len(part)) for part in parts]
    return seconds, {"classes": [[low.tolist(), high.tolist(), rows] for low, high, rows in boxes]}


def sfumato_mondrian(table, k, _, cutter="greedy"):
    import numpy as np
    import pyarrow.csv

    from sfumato.anonymize.clustering import mondrian_cuts
    from sfumato.anonymize.clustering.space import Intervals, Space
    from sfumato.anonymize.microdata import Microdata, group, pack

    read = pyarrow.csv.read_csv(table)
    values = np.stack([column.to_numpy() for column in read.columns], axis=1)
    start = time.process_time()
    least, greatest = values.min(axis=0), values.max(axis=0)
    classes = group(pack(list((values - least).T), (greatest - least + 1).tolist()))
    data = Microdata(
        quasi=tuple(read.column_names),
        codes=(values - least)[classes.members],
        counts=classes.sums(np.ones(len(values), dtype=np.int64)),
    )
    scales = [
        Intervals(tuple(map(str, range(low, high + 1))), np.arange(low, high + 1.0), float(high - low))
        for low, high in zip(least, greatest, strict=True)
    ]
    space = Space.embed(data, scales, weights=[1.0] * len(scales))
    parts = mondrian_cuts.partition(space, cutter=getattr(mondrian_cuts, cutter), rule=mondrian_cuts.Rule(k))
    seconds = time.process_time() - start
    low, high = parts.boxes(space)
    ends = [
        np.stack([codes[ranks] for codes, ranks in zip(space.codes, box.T, strict=True)], axis=1) for box in (low, high)
    ]
    rows = zip(ends[0].tolist(), ends[1].tolist(), parts.counts().tolist(), strict=True)
    return seconds, {"classes": [list(each) for each in rows]}


def sfumato_strict(table, k, hierarchies):
    return sfumato_mondrian(table, k, hierarchies, cutter="strict")


def sfumato_balanced(table, k, hierarchies):
    return sfumato_mondrian(table, k, hierarchies, cutter="balanced")


def anjana(table, k, hierarchies):
    import pandas as pd
    from anjana.anonymity import k_anonymity

    frame = pd.read_csv(table, dtype=str)
    found = {}
    for name in frame.columns:
        levels = pd.read_csv(Path(hierarchies) / f"{name}.csv", dtype=str)
        found[name] = {number: levels[column].to_numpy() for number, column in enumerate(levels.columns)}
    start = time.process_time()
    anonymous = k_anonymity(frame, [], list(frame.columns), k, 2.0, found)
    seconds = time.process_time() - start
    vector = []
    for name in frame.columns:
        fits = [level for level, labels in found[name].items() if set(anonymous[name]) <= set(labels)]
        vector.append(fits[0])
    return seconds, {"vector": vector, "suppressed": len(frame) - len(anonymous)}


def sfumato_optimal(table, k, hierarchies):
    import numpy as np
    import pyarrow.csv

    from sfumato.anonymize.criteria.criterion import KAnonymity
    from sfumato.anonymize.microdata import Microdata, group, pack
    from sfumato.anonymize.search.lattice import Lattice, Problem, allowed_rows
    from sfumato.anonymize.search.lattice_search import least_loss
    from sfumato.domain.hierarchy.levels import read_folder

    read = pyarrow.csv.read_csv(table)
    names = read.column_names
    folder = read_folder(hierarchies)
    used = tuple(folder[name] for name in names)
    start = time.process_time()
    columns = []
    for name, hierarchy in zip(names, used, strict=True):
        place = {leaf: code for code, leaf in enumerate(hierarchy.leaves)}
        encoded = read[name].combine_chunks().dictionary_encode()
        codes = np.array([place[str(value)] for value in encoded.dictionary.to_pylist()])
        columns.append(codes[encoded.indices.to_numpy()])
    classes = group(pack(columns, [len(hierarchy.leaves) for hierarchy in used]))
    data = Microdata(
        quasi=tuple(names),
        codes=np.stack(columns, axis=1)[classes.members],
        counts=classes.sums(np.ones(len(read), dtype=np.int64)),
    )
    task = Problem(
        data=data,
        hierarchies=used,
        criteria=(KAnonymity(k),),
        allowed=allowed_rows("0.02", data.rows),
        weights=(1.0,) * len(used),
    )
    node = least_loss(Lattice(task)).node
    seconds = time.process_time() - start
    return seconds, {"vector": list(node.vector), "suppressed": node.suppressed}


def main(contestant, table, k, hierarchies):
    contestants = {
        "anonypy": anonypy,
        "anjana": anjana,
        "sfumato-greedy": sfumato_mondrian,
        "sfumato-strict": sfumato_strict,
        "sfumato-balanced": sfumato_balanced,
        "sfumato-optimal": sfumato_optimal,
    }
    # twice, and the better: the first call of a contestant also loads its lazy imports
    runs = [contestants[contestant](table, int(k), hierarchies) for _ in range(2)]
    print(json.dumps({"seconds": min(seconds for seconds, _ in runs), **runs[-1][1]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
