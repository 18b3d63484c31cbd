"""The methods of ``sfumato synthesize``, and which options each of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.privacy.loss import Loss
    from sfumato.synthesize.synthetic import Synthetic
    from sfumato.synthesize.total import Total
    from sfumato.synthesize.workload import Marginals
    from sfumato.vault.vault import Vault

_WAY = 2


class Method(StrEnum):
    """How the table is made."""

    AUTO = "auto"
    HISTOGRAM = "histogram"
    MARGINALS = "marginals"
    MATRIX = "matrix"
    MWEM = "mwem"
    MST = "mst"
    AIM = "aim"
    ANNEALED = "annealed"


_TAKEN = {
    Method.AUTO: {"marginals", "way"},
    Method.HISTOGRAM: {"marginals"},
    Method.MARGINALS: {"marginals"},
    Method.MATRIX: {"marginals", "way"},
    Method.MWEM: {"marginals", "way", "rounds"},
    Method.MST: {"zeros"},
    Method.AIM: {"marginals", "way", "zeros"},
    Method.ANNEALED: {"marginals", "way", "zeros"},
}


@dataclass(frozen=True)
class Asked:
    """The options that shape a release; None for those that were not given."""

    method: Method
    marginals: list[str] | None
    way: int | None
    rows: int | None
    rounds: int | None
    zeros: Path | None

    def __post_init__(self) -> None:
        given = {
            "marginals": bool(self.marginals),
            "way": self.way is not None,
            "rounds": self.rounds is not None,
            "zeros": self.zeros is not None,
        }
        if ignored := [f"--{name}" for name, is_given in given.items() if is_given and name not in _TAKEN[self.method]]:
            takers = [method for method, taken in _TAKEN.items() if ignored[0].removeprefix("--") in taken]
            raise InputError(
                f"--method {self.method} takes no {' and no '.join(ignored)}; {ignored[0]} is for {', '.join(takers)}"
            )
        if given["marginals"] and given["way"]:
            raise InputError("--marginals names the marginals and --way means all of a size; give one of them")
        for clique in self.cliques:
            if not all(clique) or len(set(clique)) < len(clique):
                raise InputError(f"--marginals takes different attributes, comma-separated, not {','.join(clique)!r}")
        if self.method is Method.MARGINALS and not self.cliques:
            raise InputError("say which attributes belong together: --marginals age,occupation")

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """The marginals named."""
        return tuple(tuple(name.strip() for name in clique.split(",")) for clique in self.marginals or ())

    @property
    def workload(self) -> Marginals:
        """The marginals named, or all of so many attributes."""
        from sfumato.synthesize.workload import Marginals, all_marginals

        return Marginals(cliques=self.cliques) if self.cliques else all_marginals(self.way or _WAY)


def released(vault: Vault, loss: Loss, asked: Asked) -> Synthetic:
    """Release a synthetic table as asked.

    Raises:
        SfumatoError: as the method says.
    """
    from sfumato import synthesize as methods
    from sfumato.synthesize.zeros import load_zeros

    total: Total = methods.Summed() if asked.rows is None else methods.Public(asked.rows)
    zeros = () if asked.zeros is None else load_zeros(asked.zeros, vault.domain)
    match asked.method:
        case Method.AUTO:
            return methods.auto(vault, loss=loss, total=total, workload=asked.workload)
        case Method.HISTOGRAM:
            names = tuple(dict.fromkeys(name for clique in asked.cliques for name in clique))
            return methods.histogram(vault, loss=loss, total=total, attributes=names or None)
        case Method.MARGINALS:
            return methods.marginals(vault, loss=loss, total=total, cliques=asked.cliques)
        case Method.MATRIX:
            return methods.matrix(vault, loss=loss, total=total, workload=asked.workload)
        case Method.MWEM:
            return _mwem(vault, loss, asked)
        case Method.MST:
            return methods.mst(vault, loss=loss, total=total, zeros=zeros)
        case Method.AIM:
            return methods.aim(vault, loss=loss, total=total, workload=asked.workload, zeros=zeros)
        case Method.ANNEALED:
            return methods.annealed(vault, loss=loss, total=total, workload=asked.workload, zeros=zeros)


def _mwem(vault: Vault, loss: Loss, asked: Asked) -> Synthetic:
    from fractions import Fraction

    from sfumato import synthesize as methods
    from sfumato.synthesize.auto import REPETITIONS, ROUNDS

    queries = asked.workload.length(vault.domain)
    rounds = min(ROUNDS, queries) if asked.rounds is None else asked.rounds
    if rounds > queries:
        raise InputError(f"MWEM measures no query twice and there are {queries}; take --rounds {queries}")
    total = methods.Charged(Fraction(1, 20)) if asked.rows is None else methods.Public(asked.rows)
    schedule = methods.Schedule(rounds=rounds, repetitions=REPETITIONS)
    return methods.mwem(vault, loss=loss, total=total, workload=asked.workload, schedule=schedule)
