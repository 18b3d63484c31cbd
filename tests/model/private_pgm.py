"""Inference by private-pgm (``mbi``) in a process of its own, because JAX starts threads and changes its settings.

``python private_pgm.py`` reads a JSON list of requests from its standard input, and prints the marginals
of each as JSON.  It imports nothing of Sfumato.
"""

import json
import sys

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)

from mbi import CliqueVector, Domain, Factor, LinearMeasurement, MarkovRandomField, marginal_oracles  # noqa: E402
from mbi.estimation import MirrorDescent  # noqa: E402


def of_potentials(domain, tables, total):
    """Return the model with the given logarithmic potentials."""
    cliques = [tuple(clique) for clique, _ in tables]
    factors = {
        clique: Factor(domain.project(clique), np.array(values, dtype=float))
        for clique, (_, values) in zip(cliques, tables, strict=True)
    }
    potentials = CliqueVector(domain, cliques, factors)
    marginals = marginal_oracles.message_passing_stable(potentials, total)
    return MarkovRandomField(potentials=potentials, marginals=marginals, total=total)


def of_measurements(domain, tables, total, *, deviations):
    """Return the model that mirror descent fits to noisy counts."""
    measured = [
        LinearMeasurement(np.array(values, dtype=float).ravel(), tuple(clique), stddev=deviation)
        for (clique, values), deviation in zip(tables, deviations, strict=True)
    ]
    return MirrorDescent().estimate(domain, measured, known_total=total, iters=2_000, tol=1e-9)


def answer(request):
    """Return the marginals that a request asks for."""
    domain = Domain(list(request["sizes"]), list(request["sizes"].values()))
    if "deviations" in request:
        model = of_measurements(domain, request["tables"], request["total"], deviations=request["deviations"])
    else:
        model = of_potentials(domain, request["tables"], request["total"])
    return [np.asarray(model.project(tuple(clique)).datavector()).tolist() for clique in request["asked"]]


if __name__ == "__main__":
    json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)
