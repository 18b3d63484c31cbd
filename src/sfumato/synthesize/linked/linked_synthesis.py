"""Synthesize linked tables: a parent and its sequence of children, under one loss for all rows of a unit.

A graphical model of the *head* (the parent, the number of children, the first child) takes half of the loss.  The
models of the *tails* share the other half; a tail describes a child given the parent, its place and the previous child.
Units are drawn from the head, and children slot by slot from the tails.

Neighboring tables differ by all rows of one unit, in all tables.  The head has one row per unit (L1 and squared L2
sensitivity 1 per marginal).  The rows of each further table weigh at most W together (W and W^2); see
:mod:`sfumato.vault.unit_measurables`.  The losses of head and tails add up.  Everything else derives from noisy
measurements and public descriptions.

The marginals follow McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data".  The weights, the chain of children and its calibration are this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Unpack

from sfumato.arguments import expect
from sfumato.domain.linked_domain import ChildTable, LinkedTables, link_tables
from sfumato.domain.table_schema import Schema
from sfumato.errors import QueryError
from sfumato.privacy.loss import Loss
from sfumato.synthesize.auto import compared
from sfumato.synthesize.binning import WIDE
from sfumato.synthesize.budget_allocation import NoisyTotal, RowTotal, describe_total, refuse_wrong_total
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.initial_marginals import refuse_fine
from sfumato.synthesize.linked.child_measures import refuse_uncountable
from sfumato.synthesize.linked.first_child import FirstChildModel, fit_first_child, impossible_firsts
from sfumato.synthesize.linked.linked_release import HEAD, LinkedRelease, ModelSizes
from sfumato.synthesize.linked.next_child import KnownColumns, fit_next_child
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.batched import expected_error, refuse_loss, run_batched
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.interface import (
    Mechanisms,
    Payload,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    stated_loss,
    states_loss,
)
from sfumato.vault.release import loss_json
from sfumato.vault.schema_vault import SchemaVault
from sfumato.workload.counting_queries import all_marginals

_HALF = Fraction(1, 2)
_WAYS = 3


@states_loss
def synthesize_linked(
    vault: SchemaVault,
    *,
    children: Sequence[ChildTable] = (),
    total: RowTotal | None = None,
    settings: ModelSizes | None = None,
    **stated: Unpack[StatedLoss],
) -> LinkedRelease:
    """Release synthetic tables of a schema whose rows are linked as in the protected tables.

    Args:
        vault: the protected tables, from ``sf.open_schema``.
        children: the child tables with the order and the bound of their rows.  Default: all private tables, ordered by
            their first date or unordered, with the bounds of the schema.
        total: where the number of units comes from.  Default: the noisy tables.
        settings: sizes of the models.
        **stated: the whole loss, for all rows of one unit in all tables: ``loss``, or ``epsilon`` with or without
            ``delta``.

    Raises:
        DomainError: the schema is a draft, or a child table is invalid.
        InputError: the vault has the wrong type.
        LossError: the loss cannot be divided.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    expect(vault, SchemaVault, "the vault of linked tables is what sf.open_schema returns")
    settings = settings or ModelSizes()
    linked = link_tables(vault.schema, children)
    return release_units(vault.of_units(linked), linked, loss=loss, total=total or NoisyTotal(), settings=settings)


@states_loss
def linked_without_delta(
    schema: Schema, *, children: Sequence[ChildTable] = (), total: RowTotal | None = None, **stated: Unpack[StatedLoss]
) -> tuple[str, ...]:
    """Return how much less noise a delta of 1e-9 would leave at the same epsilon, in sentences, before any charge.

    The figure is the noise on a cell of two columns of the table that gains most: the head, or a further table, whose
    noise is in units.  There is no sentence if the loss has a delta, or if a delta helps little.

    Raises:
        DomainError: the schema is a draft, or a child table is invalid.
        LossError: the loss cannot be divided.
    """
    loss = stated_loss(stated)
    linked = link_tables(schema, children)
    row_total = total or NoisyTotal()
    refuse_wrong_total(linked.unit_domain, loss, row_total)
    shares = part_shares(linked)
    parts = [(linked.unit_domain, 1 - sum(shares.values(), Fraction(0)), 1)]
    parts += [(table.domain, shares[table.name], table.unit_weight) for table in linked.derived]

    def noise(stated: Loss) -> tuple[float, ...]:
        pairs = [all_marginals(min(2, len(domain))) for domain, _, _ in parts]
        return tuple(
            (expected_error(domain, stated.divisible * share, row_total, pair) or 0.0) / unit_weight
            for (domain, share, unit_weight), pair in zip(parts, pairs, strict=True)
        )

    return compared(loss, noise)


def wide_child_columns(schema: Schema, *, children: Sequence[ChildTable] = ()) -> tuple[str, ...]:
    """Return a sentence on the columns of child tables in whose many cells noise adds up, before any charge.

    Raises:
        DomainError: the schema is a draft, or a child table is invalid.
    """
    wide = [
        f"{child.table.name}.{each.name} ({each.size:,} cells)"
        for child in link_tables(schema, children).children
        for each in child.table.attributes
        if each.size > WIDE
    ]
    many = (
        "columns of child tables are measured in single cells alone, so noise may place values of many cells anywhere"
    )
    return (f"{many}: {', '.join(wide)}; declare edges",) if wide else ()


def release_units(
    vault: VaultInterface, linked: LinkedTables, *, loss: Loss, total: RowTotal, settings: ModelSizes
) -> LinkedRelease:
    """Release linked tables from a vault of units, such as one from :meth:`SchemaVault.of_units`."""
    if vault.domain.hash != linked.unit_domain.hash:
        raise QueryError("this vault is not of the units of these related tables", culprit=linked.hash)
    refuse_loss(vault, loss, total)
    for domain in (linked.unit_domain, *(table.domain for table in linked.derived)):
        refuse_fine(domain, SizeLimits().marginal)
    for table in linked.derived:
        refuse_uncountable(table)
    parameters = {
        "related": linked.describe(),
        "total": describe_total(total),
        "settings": settings.describe(),
    }
    names = ", ".join(child.table.name for child in linked.children)
    request = ReleaseRequest("synthesize", "related", parameters, f"synthetic units with {names}")
    stored = vault.release(
        request, loss, lambda mechanisms: _measured(mechanisms, loss, linked, total=total, settings=settings)
    )
    unit_model, child_models, notes = restore_models(linked, stored.payload)
    errors = {f"{HEAD}: {name}": value for name, value in expected_errors(unit_model.measured).items()}
    for table in linked.derived:
        part_errors = expected_errors(child_models[table.name].measured)
        errors |= {f"{table.name}: {name}": value / table.unit_weight for name, value in part_errors.items()}
    return LinkedRelease(
        guarantee=stored.guarantee,
        cost=stored.cost,
        accepted=stored.accepted,
        expected_error=errors,
        provenance=stored.provenance,
        linked=linked,
        settings=settings,
        unit_model=unit_model,
        child_models=child_models,
        notes=notes,
        payload=stored.payload,
        seed=int(stored.digest[:16], 16),
        loss=loss_json(loss),
    )


def _measured(
    mechanisms: Mechanisms, loss: Loss, linked: LinkedTables, *, total: RowTotal, settings: ModelSizes
) -> Payload:
    """Measure the protected tables in exact shares of ``loss``, and return the payload of all models."""
    divisible = loss.divisible
    shares = part_shares(linked)
    numbers = tuple(child.number for child in linked.direct if child.most > 1)  # these count all children
    limits = SizeLimits(cells=settings.head_cells, prior_marginals=False, leading=numbers)
    own = divisible * (1 - sum(shares.values(), Fraction(0)))
    workload = all_marginals(min(_WAYS, len(linked.unit_domain)))
    unit_model = run_batched(mechanisms, own, total, workload, limits=limits, zeros=first_row_zeros(linked))
    notes, models = [], {}
    derived: list[Graphical] = []
    limits = SizeLimits(cells=settings.tail_cells, prior_marginals=False)
    for child in linked.children:
        parent, name = linked.parent_of(child), child.table.name
        models[name] = unit_model
        if parent is not None:
            first = FirstChildModel(linked, child, models[parent.table.name])
            models[name], seen = fit_first_child(mechanisms, divisible * shares[first.table.name], first, limits=limits)
            derived.append(models[name])
            if not seen:
                notes.append(
                    f"noise outweighs what the rows of {name} could tell at this loss: no row of {parent.table.name} "
                    "has any"
                )
        if (table := linked.next_child(child)) is None:
            continue
        known = KnownColumns(linked, child, models[name])
        model, seen = fit_next_child(mechanisms, divisible * shares[table.name], known, limits=limits)
        derived.append(model)
        if not seen:
            of = "a unit" if parent is None else f"a row of {parent.table.name}"
            notes.append(
                f"noise outweighs what {name} beyond the first of {of} could tell at this loss: they are drawn as the "
                "first ones are"
            )
    payload: dict[str, Any] = {f"{HEAD} {name}": value for name, value in unit_model.payload().items()}
    for place, model in enumerate(derived):
        payload |= {f"tail {place} {part}": value for part, value in model.payload().items()}
    return payload | {"notes": notes}


def part_shares(linked: LinkedTables) -> dict[str, Fraction]:
    """Return the share of the loss of each derived table by name.  The head of the units has the rest.

    All derived tables together have half of the loss.  Child tables have equal parts of it, and the head and the tail
    of a child table each have half of its part.
    """
    parts: dict[str, list[str]] = {}
    for child in linked.children:
        names = [table.name for table in (linked.first_child(child), linked.next_child(child)) if table is not None]
        if names:
            parts[child.table.name] = names
    return {name: _HALF / len(parts) / len(names) for names in parts.values() for name in names}


def restore_models(
    linked: LinkedTables, payload: Mapping[str, Any]
) -> tuple[Graphical, dict[str, Graphical], tuple[str, ...]]:
    """Restore the model of the units, the models of derived tables, and the notes of a stored release."""
    unit_model = Graphical.restore(linked.unit_domain, _part(payload, f"{HEAD} "))
    child_models = {
        table.name: Graphical.restore(table.domain, _part(payload, f"tail {place} "))
        for place, table in enumerate(linked.derived)
    }
    return unit_model, child_models, tuple(payload["notes"])


def _part(payload: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in payload.items() if name.startswith(prefix)}


def first_row_zeros(linked: LinkedTables) -> list[Zeros]:
    """Return the structural zeros of the units' head; see :func:`impossible_firsts`."""
    return [Zeros(names, cells) for child in linked.direct for names, cells in impossible_firsts(linked, child).items()]
