"""Full-domain recoding of a vault's table: ``optimal`` and ``samarati``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from sfumato.anonymize.criteria.criterion import CRITERIA_WANTED, Criterion
from sfumato.anonymize.release.anonymized import Anonymized, disclose
from sfumato.anonymize.release.decision import Decision, full_domain_decision
from sfumato.anonymize.release.request import (
    AnonymizationRequest,
    Quasi,
    RowLimit,
    microdata,
    read_quasi,
    share_of_rows,
)
from sfumato.anonymize.release.unchanged_columns import Keep, UnchangedColumns
from sfumato.anonymize.search.lattice import Lattice, Problem, allowed_rows
from sfumato.anonymize.search.lattice_search import Certificate, TieBreak, least_loss, lowest_height, nearest
from sfumato.arguments import expect, expect_all
from sfumato.engine.port import Recodable
from sfumato.errors import InfeasibleError
from sfumato.vault.interface import refuse_no_vault
from sfumato.vault.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The part of the lattice to search, and the time limit.

    Attributes:
        height: search only recodings whose levels sum to this; None: all recodings.
        seconds: stop after this time with the best recoding so far.  The certificate then has a lower bound on the
            least loss.
    """

    height: int | None = None
    seconds: float = math.inf


EVERYWHERE = Extent()


def optimal(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    criteria: Sequence[Criterion],
    suppression: str | Fraction | RowLimit,
    keep: Sequence[str | Keep] = (),
    extent: Extent = EVERYWHERE,
) -> Anonymized:
    """Release the full-domain recoding of least loss, with a certificate.  It has no differential privacy.

    Args:
        vault: the table.
        quasi: columns that an attacker may know, by name or with hierarchy, weight and policy for missing values.
        criteria: conditions on every published class.
        suppression: largest share of rows that may be suppressed, 0 to 1, read exactly (``"0.02"``), or a number of
            rows, ``RowLimit(30)``.
        keep: columns to publish unchanged; never name a direct identifier.  A quasi-identifier among them is not
            generalized, but the criteria count it.
        extent: the part of the lattice to search, and the time limit.  Default: the whole lattice, until the least loss
            is proven.

    Raises:
        InputError: an argument is invalid; the message names it.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: no recoding satisfies the criteria; the message names the nearest limit that would do.
    """
    _refuse_wrong(vault, criteria)
    expect(extent, Extent, "an extent is an Extent(...)")
    unchanged = UnchangedColumns.parse(keep)
    request = AnonymizationRequest(
        "optimal",
        read_quasi(quasi, vault.domain, unchanged),
        tuple(criteria),
        _share(vault, suppression),
        {"height": extent.height, "seconds": None if math.isinf(extent.seconds) else extent.seconds},
    )

    def decide() -> Decision:
        lattice = _lattice(vault, request)
        optimum = least_loss(lattice, height=extent.height, seconds=extent.seconds)
        if optimum.node is None:
            raise _infeasible(lattice, optimum.certificate, extent)
        return full_domain_decision(
            lattice, optimum.node.vector, request=request, domain=vault.domain, certificate=optimum.certificate
        )

    return disclose(vault, request, unchanged, decide)


def samarati(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    criteria: Sequence[Criterion],
    suppression: str | Fraction | RowLimit,
    keep: Sequence[str | Keep] = (),
    order: TieBreak = TieBreak.LEXICOGRAPHIC,
) -> Anonymized:
    """Release a full-domain recoding of the lowest feasible height (Samarati 2001).  It has no differential privacy.

    The lowest height does not imply the least loss; use ``optimal`` for that.

    Args:
        vault: the table.
        quasi: columns that an attacker may know.
        criteria: conditions on every published class; monotone under the allowed suppression.
        suppression: largest share of rows that may be suppressed, or a number of rows.
        keep: columns to publish unchanged, see :func:`optimal`.
        order: chooses among the feasible recodings of the lowest height.

    Raises:
        InputError: an argument is invalid; the message names it.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: no recoding satisfies the criteria; the message names the nearest limit that would do.
    """
    _refuse_wrong(vault, criteria)
    expect(order, TieBreak, "the order is one of sf.anonymize.TieBreak")
    unchanged = UnchangedColumns.parse(keep)
    request = AnonymizationRequest(
        "samarati",
        read_quasi(quasi, vault.domain, unchanged),
        tuple(criteria),
        _share(vault, suppression),
        {"order": order.value},
    )

    def decide() -> Decision:
        lattice = _lattice(vault, request)
        node = lowest_height(lattice, order=order)
        if node is None:
            raise _infeasible(lattice)
        return full_domain_decision(lattice, node.vector, request=request, domain=vault.domain, certificate=None)

    return disclose(vault, request, unchanged, decide)


def _refuse_wrong(vault: Vault, criteria: Sequence[Criterion]) -> None:
    refuse_no_vault(vault)
    expect_all(criteria, Criterion, CRITERIA_WANTED)


def _share(vault: Vault, suppression: str | Fraction | RowLimit) -> str:
    """Return the suppression limit as the journal states it."""
    if isinstance(suppression, RowLimit):
        return share_of_rows(cast(Recodable, vault.encoded), suppression)
    allowed_rows(suppression, 0)  # refuses an invalid share
    return str(suppression)


def _lattice(vault: Vault, request: AnonymizationRequest) -> Lattice:
    data = microdata(cast(Recodable, vault.encoded), request.quasi, request.criteria)
    problem = Problem(
        data=data,
        hierarchies=tuple(each.aligned(vault.domain[each.name]) for each in request.quasi),
        criteria=request.criteria,
        allowed=allowed_rows(request.suppression, data.rows),
        weights=tuple(each.weight for each in request.quasi),
    )
    return Lattice(problem)


def _infeasible(
    lattice: Lattice, certificate: Certificate | None = None, extent: Extent = EVERYWHERE
) -> InfeasibleError:
    """Return an error that names the nearest limit.  A stopped search may leave open whether a recoding exists."""
    problem = lattice.problem
    criteria = " and ".join(map(str, problem.criteria))
    rows = problem.data.rows
    within, excluded = f"with at most {problem.allowed} of {rows} rows suppressed", problem.data.why_excluded
    where = "" if extent.height is None else f" of height {extent.height}"
    if certificate is not None and certificate.bound < math.inf:
        message = f"no recoding{where} that satisfies {criteria} {within} was found in {extent.seconds:g} s: allow more"
        return InfeasibleError(message + excluded, culprit=problem.criteria)
    limit = nearest(lattice, height=extent.height).limit(rows)
    if certificate is None and len(problem.monotone_with_suppression) < len(problem.criteria):
        limit += ", and takes the optimal search"
    message = f"no recoding{where} satisfies {criteria} {within}: {limit}{excluded}"
    return InfeasibleError(message, culprit=problem.criteria)
