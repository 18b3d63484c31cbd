"""Local recoding of a vault's table: ``mondrian``, ``k_member`` and ``microaggregate``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import cast

import numpy as np

from sfumato.anonymize import k_member_clustering, mdav, mondrian_cuts
from sfumato.anonymize.asked import Asked
from sfumato.anonymize.classes import Classes
from sfumato.anonymize.criteria import CRITERIA, Criterion, KAnonymity, safe
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.mondrian_cuts import Cutter, Region, Rule
from sfumato.anonymize.plan import Plan, of_classes
from sfumato.anonymize.problem import check_criteria
from sfumato.anonymize.quasi import Missing, Quasi, read
from sfumato.anonymize.release import Anonymized, disclose
from sfumato.anonymize.source import microdata
from sfumato.anonymize.space import Space
from sfumato.arguments import expect, expect_all, whole
from sfumato.domain import Attribute, Categorical
from sfumato.engine.port import Recodable
from sfumato.errors import InfeasibleError, InputError
from sfumato.model.simulation import generator
from sfumato.vault.keeper import refuse_no_vault
from sfumato.vault.vault import Vault

EFFORT = 6  # trials of the local search a small tuple: reaches the best published losses on UCI Adult


class Cut(StrEnum):
    """Where Mondrian cuts."""

    GREEDY = "greedy"
    BALANCED = "balanced"
    RELAXED = "relaxed"
    STRICT = "strict"
    IN_ORDER = "in-order"


_CUTTERS: Mapping[Cut, Cutter] = {
    Cut.GREEDY: mondrian_cuts.greedy,
    Cut.BALANCED: mondrian_cuts.balanced,
    Cut.RELAXED: mondrian_cuts.relaxed,
    Cut.STRICT: mondrian_cuts.strict,
    Cut.IN_ORDER: mondrian_cuts.in_order,
}


def mondrian(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    criteria: Sequence[Criterion],
    keep: Sequence[str] = (),
    cut: Cut = Cut.GREEDY,
) -> Anonymized:
    """Multidimensional recoding by cutting in two (LeFevre et al. 2006).  No row suppressed, no differential privacy.

    Args:
        vault: the table.
        quasi: what an attacker may know; with a hierarchy its cells are used, otherwise free intervals.
        criteria: what every published class satisfies; none that needs a population, and for the relaxed
            cut none on sensitive values, as which of a tuple's rows go where is drawn later.
        keep: further columns to publish as they are.
        cut: where a region is cut; greedy loses least.

    Raises:
        InputError: what is asked does not make sense; the message says why.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: the whole table as one class does not satisfy the criteria.
    """
    refuse_no_vault(vault)
    expect_all(criteria, Criterion, CRITERIA)
    expect(cut, Cut, "the cut is one of sf.anonymize.Cut")
    asked = Asked("mondrian", read(quasi, vault.domain), tuple(criteria), "0", {"cut": cut.value})
    _refuse(asked, sensitive_allowed=cut is not Cut.RELAXED)

    def decide() -> Plan:
        data = microdata(cast(Recodable, vault.encoded), asked.quasi, asked.criteria)
        check_criteria(asked.criteria, data)
        space = _space(vault, data, asked.quasi)

        sensitive = list(data.sensitive.items())

        def publishable(region: Region) -> bool:
            one = Classes(
                members=region.tuples[:1],
                counts=region.rows.sum(keepdims=True),
                population=None,
                sensitive={name: histogram[region.tuples].sum(axis=0)[None] for name, histogram in sensitive},
                overall=data.overall,
                declared=data.declared,
            )
            return bool(safe(asked.criteria, one)[0])

        rule = Rule(max(each.least_rows for each in asked.criteria), publishable)
        if not rule.holds(Region(np.arange(len(data.counts)), data.counts)):
            wanted = " and ".join(map(str, asked.criteria))
            raise InfeasibleError(f"the whole table as one class does not satisfy {wanted}", culprit=asked.criteria)
        partition = mondrian_cuts.partition(space, cutter=_CUTTERS[cut], rule=rule)
        return of_classes(data, space, partition, asked=asked, domain=vault.domain)

    return disclose(vault, asked, keep, decide)


def k_member(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    k: int,
    keep: Sequence[str] = (),
    effort: int = EFFORT,
    watch: Callable[[str], None] | None = None,
) -> Anonymized:
    """Local recoding of least loss that we know of: k-member with local search.  No differential privacy.

    Args:
        vault: the table.
        quasi: what an attacker may know; with a hierarchy its cells are used, otherwise free intervals.
        k: least rows of a class.
        keep: further columns to publish as they are.
        effort: trials of the local search for each tuple with fewer than k rows.
        watch: told in a few words what comes next; large tables take minutes.

    Raises:
        InputError: what is asked does not make sense; the message says why.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: the table has fewer than k rows.
    """
    refuse_no_vault(vault)
    effort = whole(effort, "the effort is a whole number of trials")
    asked = Asked("k-member", read(quasi, vault.domain), (KAnonymity(k),), "0", {"effort": effort})
    _refuse(asked, sensitive_allowed=False)

    def decide() -> Plan:
        data = microdata(cast(Recodable, vault.encoded), asked.quasi, asked.criteria)
        check_criteria(asked.criteria, data)
        space = _space(vault, data, asked.quasi)
        # the same table and question give the same classes, whatever is kept, so that asking twice reveals no more
        digest = hashlib.sha256(f"{vault.encoded.version} {asked.request(())}".encode()).digest()
        rng = generator(int.from_bytes(digest[:8], "big"))
        partition = k_member_clustering.partition(space, k=k, effort=effort, rng=rng, watch=watch)
        return of_classes(data, space, partition, asked=asked, domain=vault.domain)

    return disclose(vault, asked, keep, decide)


def microaggregate(vault: Vault, *, quasi: Sequence[str], k: int, keep: Sequence[str] = ()) -> Anonymized:
    """Groups of k to 2k - 1 rows close to each other (MDAV), published with their means.

    No differential privacy.  Distances are Euclidean after every attribute is divided by its standard deviation.
    Missing and unknown values have no mean: their rows are suppressed.

    Args:
        vault: the table.
        quasi: numbers that an attacker may know.
        k: least rows of a group.
        keep: further columns to publish as they are.

    Raises:
        InputError: what is asked does not make sense, or an attribute is no number.
        DomainError: an attribute that is not there.
        InfeasibleError: the table has fewer than k rows.
    """
    refuse_no_vault(vault)
    expect_all(quasi, str, "quasi-identifiers are a list of names")
    for name in quasi:
        if isinstance(vault.domain[name], Categorical):
            raise InputError(f"{name!r} has categories, which have no mean; use k_member", culprit=name)
    known = (_with_mean(each, vault.domain[each.name]) for each in read(quasi, vault.domain))
    asked = Asked("microaggregate", tuple(known), (KAnonymity(k),), "0", {})

    def decide() -> Plan:
        data = microdata(cast(Recodable, vault.encoded), asked.quasi, asked.criteria)
        check_criteria(asked.criteria, data)
        space = _space(vault, data, asked.quasi)
        values = mdav.positions(space)
        groups = mdav.partition(mdav.standardised(values, space.counts), space.counts, k=k)
        names = [tuple(f"{mean:g}" for mean in each) for each in mdav.means(values, groups)]
        return of_classes(data, space, groups, asked=asked, domain=vault.domain, names=names)

    return disclose(vault, asked, keep, decide)


def _with_mean(quasi: Quasi, attribute: Attribute) -> Quasi:
    """The quasi-identifier without rows that have no number."""
    return quasi if attribute.size == attribute.declared else replace(quasi, missing=Missing.SUPPRESS)


def _space(vault: Vault, data: Microdata, quasi: Sequence[Quasi]) -> Space:
    scales = [each.scale(vault.domain[each.name]) for each in quasi]
    return Space.of(data, scales, weights=[each.weight for each in quasi])


def _refuse(asked: Asked, *, sensitive_allowed: bool) -> None:
    if not asked.criteria:
        raise InputError("name at least one criterion, such as k-anonymity", culprit=asked)
    for criterion in asked.criteria:
        if criterion.population is not None:
            raise InputError(f"{asked.method} does not look at a population; use the optimal search", culprit=criterion)
        if criterion.sensitive is not None and not sensitive_allowed:
            raise InputError(
                f"{asked.method} with this cut deals equal rows to several classes and cannot promise {criterion};"
                " use another cut",
                culprit=criterion,
            )
