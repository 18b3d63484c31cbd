"""The canonical form of a question: equal questions, however they were built, have equal JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import predicate as p
from sfumato.privacy.accountant import Charge
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, plain
from sfumato.vault.questions import (
    AbsoluteErrors,
    Bins,
    Counting,
    Distance,
    Dropped,
    Groups,
    Marginal,
    MarginalErrors,
    Measurable,
    Moments,
    RankErrors,
    Scores,
    Sum,
    Units,
    Weighted,
)

_WRITTEN = 64  # edges of bins that stand in the journal one by one


def question(asked: Measurable | Scores) -> dict[str, Any]:  # noqa: C901, PLR0912  (one case a kind of question)
    """A question as JSON values; large public arrays stand as their digest."""
    match asked:
        case Marginal():
            own = {"attributes": list(asked.attributes), "where": where(asked.where), "groups": _groups(asked.groups)}
            return {"kind": "marginal", **own}
        case Counting():
            return {"kind": "counting", "attributes": list(asked.attributes), "matrix": _digest(asked.matrix)}
        case Distance():
            own = {"attributes": list(asked.attributes), "groups": _groups(asked.groups)}
            return {"kind": "distance", **own, "reference": _digest(asked.reference)}
        case Sum():
            own = {"value": asked.value, "by": list(asked.by), "unit": plain(asked.unit), "where": where(asked.where)}
            return {"kind": "sum", **own}
        case Moments():
            own = {"value": asked.value, "by": list(asked.by), "unit": plain(asked.unit), "where": where(asked.where)}
            return {"kind": "moments", **own, "degree": asked.degree}
        case Weighted():
            return {"kind": "weighted", "attributes": list(asked.attributes), "weights": _digest(asked.weights)}
        case Dropped():
            return {"kind": "dropped", "most": asked.most, "where": where(asked.where)}
        case Units():
            return {"kind": "units", "by": list(asked.by), "where": where(asked.where)}
        case Bins():
            own = {
                "value": asked.value,
                "by": list(asked.by),
                "edges": _edges(asked.edges),
                "where": where(asked.where),
            }
            return {"kind": "bins", **own}
        case AbsoluteErrors():
            return {"kind": "absolute-errors", "of": question(asked.queries), "answers": _digest(asked.answers)}
        case MarginalErrors():
            return {
                "kind": "marginal-errors",
                "of": [question(distance) for distance in asked.distances],
                "weights": [plain(weight) for weight in asked.weights],
                "penalties": [plain(penalty) for penalty in asked.penalties],
            }
        case RankErrors():
            own = {"value": asked.value, "probability": str(asked.probability), "where": where(asked.where)}
            return {"kind": "rank-errors", **own, "edges": _edges(asked.edges), "parts": asked.parts}
        case _:
            assert_never(asked)


def where(condition: p.Predicate | None) -> Any:  # noqa: ANN401  (JSON)
    """A condition as JSON values, parts of conjunctions and disjunctions in a fixed order."""
    match condition:
        case None:
            return None
        case p.Among(attribute=attribute, codes=codes):
            return {"among": [attribute, sorted(codes)]}
        case p.All(parts=parts):
            return {"all": sorted((where(part) for part in parts), key=repr)}
        case p.Any(parts=parts):
            return {"any": sorted((where(part) for part in parts), key=repr)}
        case p.Not(part=part):
            return {"not": where(part)}
        case _:
            assert_never(condition)


def loss(asked: Loss | Charge) -> Mapping[str, str | None]:
    """A loss, or an exact charge, as JSON values."""
    match asked:
        case Epsilon(value=value):
            return {"epsilon": plain(value)}
        case Rho(value=value):
            return {"rho": plain(value)}
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return {"epsilon": plain(epsilon), "delta": plain(delta)}
        case Charge(epsilon=pure, rho=rho, delta=delta):
            return {"epsilon": None if pure is None else plain(pure), "rho": plain(rho), "delta": plain(delta)}
        case _:
            assert_never(asked)


def _groups(groups: Groups | None) -> Any:  # noqa: ANN401  (JSON)
    return None if groups is None else [None if group is None else list(group) for group in groups]


def _edges(edges: tuple[float, ...]) -> Any:  # noqa: ANN401  (JSON)
    return list(edges) if len(edges) <= _WRITTEN else _digest(np.array(edges))


def _digest(array: NDArray[Any]) -> dict[str, Any]:
    plain_array = np.ascontiguousarray(array)
    digest = hashlib.sha256(plain_array.tobytes()).hexdigest()
    return {"shape": list(plain_array.shape), "dtype": str(plain_array.dtype), "sha256": digest}
