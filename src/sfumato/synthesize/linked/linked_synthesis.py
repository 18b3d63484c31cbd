"""Synthetic people across tables: a parent and the sequence of its children, under one loss for a whole unit.

A graphical model of the *head* (the parent, how many children, the first child) takes half of the loss, and one of the
*tail* of each child table (a child given the parent, its place and the one before it) shares the other half.  Units are
drawn from the head, children slot by slot from the tails.

Neighbours differ by all rows of one unit, in all tables.  The head has one row a unit (L1 and squared L2 sensitivity 1
for a marginal), and the rows of each further table weigh at most W together (W and W^2): see
:mod:`sfumato.vault.unit_measurables`.
The losses of head and tails add up.  Everything else is made of noisy measurements and public descriptions.

After McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for differentially private
synthetic data", for the marginals; the weights, the chain of children and its calibration are this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from sfumato.arguments import expect
from sfumato.domain.linked_domain import ChildTable, LinkedTables, link_tables
from sfumato.domain.table_schema import Schema
from sfumato.errors import QueryError
from sfumato.privacy.loss import Loss
from sfumato.synthesize.auto import compared
from sfumato.synthesize.budget_allocation import NoisyTotal, RowTotal, describe_total, refuse_wrong_total
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.initial_marginals import refuse_fine
from sfumato.synthesize.linked.child_measures import refuse_uncountable
from sfumato.synthesize.linked.first_child import FirstChildModel, barred_firsts, fit_first_child
from sfumato.synthesize.linked.linked_release import HEAD, ModelSizes, RelatedRelease
from sfumato.synthesize.linked.next_child import KnownColumns, fit_next_child
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.aim import expected_error, refuse_loss, run_aim
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.interface import Mechanisms, Payload, Request, VaultInterface
from sfumato.vault.release import loss_json
from sfumato.vault.schema_vault import SchemaVault
from sfumato.workload.counting_queries import all_marginals

_HALF = Fraction(1, 2)
_WAYS = 3


def related(
    vault: SchemaVault,
    *,
    loss: Loss,
    children: Sequence[ChildTable] = (),
    total: RowTotal | None = None,
    settings: ModelSizes | None = None,
) -> RelatedRelease:
    """Release synthetic tables of a schema, whose rows belong together as those of the real ones do.

    Args:
        vault: the protected tables, as ``sf.open_schema`` opens them.
        loss: the whole cost, for all rows of one unit in all tables.
        children: which tables, in which order their rows come, and how many of a unit are kept; without, all that
            belong to a unit directly, by their first date or in no order, with as many rows as the schema bounds.
        total: where the number of units comes from; without, from the noisy tables themselves.
        settings: how large the models may get.

    Raises:
        DomainError: the schema is a draft, or a child table is none.
        InputError: no such vault.
        LossError: a loss that cannot be divided.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    expect(vault, SchemaVault, "related tables are released of what sf.open_schema returns")
    settings = settings or ModelSizes()
    described = link_tables(vault.schema, children)
    return synthesized(vault.of_units(described), described, loss=loss, total=total or NoisyTotal(), settings=settings)


def related_without_delta(
    schema: Schema, *, loss: Loss, children: Sequence[ChildTable] = (), total: RowTotal | None = None
) -> tuple[str, ...]:
    """Return how much less noise a delta of 1e-9 would leave at the same epsilon, in sentences, before any charge.

    The figure is the noise on a cell of two columns of the table for which a delta matters most: the head, or a further
    table, whose noise is counted in units.  There is no sentence for a loss that has a delta, or if it helps little.

    Raises:
        DomainError: the schema is a draft, or a child table is none.
        LossError: a loss that cannot be divided.
    """
    described = link_tables(schema, children)
    asked = total or NoisyTotal()
    refuse_wrong_total(described.head, loss, asked)
    shares = part_shares(described)
    parts = [(described.head, 1 - sum(shares.values(), Fraction(0)), 1)]
    parts += [(table.domain, shares[table.name], table.whole) for table in described.derived]

    def noise(stated: Loss) -> tuple[float, ...]:
        pairs = [all_marginals(min(2, len(domain))) for domain, _, _ in parts]
        return tuple(
            (expected_error(domain, stated.divisible * share, asked, pair) or 0.0) / whole
            for (domain, share, whole), pair in zip(parts, pairs, strict=True)
        )

    return compared(loss, noise)


def synthesized(
    vault: VaultInterface, described: LinkedTables, *, loss: Loss, total: RowTotal, settings: ModelSizes
) -> RelatedRelease:
    """The release from the vault of whole units, such as :meth:`SchemaVault.of_units` makes."""
    if vault.domain.hash != described.head.hash:
        raise QueryError("this vault is not of the units of these related tables", culprit=described.hash)
    refuse_loss(vault, loss, total)
    for domain in (described.head, *(table.domain for table in described.derived)):
        refuse_fine(domain, SizeLimits().marginal)
    for table in described.derived:
        refuse_uncountable(table)
    parameters = {
        "related": described.describe(),
        "total": describe_total(total),
        "settings": settings.describe(),
    }
    names = ", ".join(child.table.name for child in described.children)
    request = Request("synthesize", "related", parameters, f"synthetic units with {names}")
    settled = vault.release(
        request, loss, lambda mechanisms: _measured(mechanisms, loss, described, total=total, settings=settings)
    )
    head, tails, notes = restored(described, settled.payload)
    errors = {f"{HEAD}: {name}": value for name, value in expected_errors(head.measured).items()}
    for table in described.derived:
        part_errors = expected_errors(tails[table.name].measured)
        errors |= {f"{table.name}: {name}": value / table.whole for name, value in part_errors.items()}
    return RelatedRelease(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=errors,
        provenance=settled.provenance,
        related=described,
        settings=settings,
        head=head,
        tails=tails,
        notes=notes,
        payload=settled.payload,
        seed=int(settled.digest[:16], 16),
        loss=loss_json(loss),
    )


def _measured(
    mechanisms: Mechanisms, loss: Loss, described: LinkedTables, *, total: RowTotal, settings: ModelSizes
) -> Payload:
    """Everything that is asked of the protected tables, in exact shares of ``loss``."""
    whole = loss.divisible
    shares = part_shares(described)
    numbers = tuple(child.number for child in described.direct if child.most > 1)  # which all children are counted by
    limits = SizeLimits(cells=settings.head_cells, prior_marginals=False, leading=numbers)
    own = whole * (1 - sum(shares.values(), Fraction(0)))
    workload = all_marginals(min(_WAYS, len(described.head)))  # of sequences a head has the number and the first alone
    head = run_aim(mechanisms, own, total, workload, limits=limits, zeros=first_row_zeros(described))
    payload: dict[str, Any] = {f"{HEAD} {name}": value for name, value in head.payload().items()}
    notes, place, heads = [], 0, {}
    limits = SizeLimits(cells=settings.tail_cells, prior_marginals=False)
    for child in described.children:
        above, name = described.above(child), child.table.name
        heads[name] = head
        if above is not None:
            opening = FirstChildModel(described, child, heads[above.table.name])
            heads[name], seen = fit_first_child(mechanisms, whole * shares[opening.table.name], opening, limits=limits)
            payload |= {f"tail {place} {part}": value for part, value in heads[name].payload().items()}
            place += 1
            if not seen:
                notes.append(
                    f"noise outweighs what the rows of {name} could tell at this loss: no row of {above.table.name} "
                    "has any"
                )
        if (table := described.tail(child)) is None:
            continue
        evidence = KnownColumns(described, child, heads[name])
        tail, seen = fit_next_child(mechanisms, whole * shares[table.name], evidence, limits=limits)
        payload |= {f"tail {place} {part}": value for part, value in tail.payload().items()}
        place += 1
        if not seen:
            of = "a unit" if above is None else f"a row of {above.table.name}"
            notes.append(
                f"noise outweighs what {name} beyond the first of {of} could tell at this loss: they are drawn as the "
                "first ones are"
            )
    return payload | {"notes": notes}


def part_shares(described: LinkedTables) -> dict[str, Fraction]:
    """The share of the loss of each table that is derived beside the head, by its name; the head has the rest.

    All of them together have half.  Each child table has the same of it, and where it has a head of its own and a tail,
    half of this each.
    """
    parts: dict[str, list[str]] = {}
    for child in described.children:
        names = [table.name for table in (described.opening(child), described.tail(child)) if table is not None]
        if names:
            parts[child.table.name] = names
    return {name: _HALF / len(parts) / len(names) for names in parts.values() for name in names}


def restored(
    described: LinkedTables, payload: Mapping[str, Any]
) -> tuple[Graphical, dict[str, Graphical], tuple[str, ...]]:
    """The models of head and tails that a release has stored, and what it says to the reader."""
    head = Graphical.restore(described.head, _part(payload, f"{HEAD} "))
    tails = {
        table.name: Graphical.restore(table.domain, _part(payload, f"tail {place} "))
        for place, table in enumerate(described.derived)
    }
    return head, tails, tuple(payload["notes"])


def _part(payload: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in payload.items() if name.startswith(prefix)}


def first_row_zeros(described: LinkedTables) -> list[Zeros]:
    """Cells of the head that no unit is in: a first child where there is none, none where there is one, or further ones
    after what is final.
    """
    return [
        Zeros(names, cells) for child in described.direct for names, cells in barred_firsts(described, child).items()
    ]
