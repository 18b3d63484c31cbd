"""Tables that belong together, to be synthesized: which children, in which order, and how many rows of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sfumato.app.api.fields import Name, StrictModel
from sfumato.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.domain.linked_domain import LinkedTables
    from sfumato.domain.table_schema import Schema


class ChildFields(StrictModel):
    """A table of which a person has several rows; what is left out is as the schema says."""

    table: Name
    order: Name | None = None
    falling: bool = False
    most: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[int, Field(ge=1, le=2)] = 1
    final: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None

    def stated(self) -> dict[str, Any]:
        """What was said of it, by the names that a child table has for it."""
        said: dict[str, Any] = {"falling": self.falling, "memory": self.memory}
        said |= {} if self.order is None else {"order": self.order}
        said |= {} if self.most is None else {"most": self.most}
        return said | ({} if self.final is None else {"final": (self.final[0], self.final[1])})


def linked_tables(schema: Schema, children: Sequence[ChildFields]) -> LinkedTables:
    """The tables of a schema to be synthesized together: with the children named, or else with all.

    Rows of a child follow each other by its first date where no order is named; a ``final`` column and value is one
    after which a person has no further row.

    Raises:
        InputError: a table that is none of the children.
        DomainError: an order, a bound or an end that it cannot have.
    """
    from sfumato.domain.linked_domain import link_tables

    every = link_tables(schema)
    known = {child.table.name: child for child in every.children}
    for each in children:
        if each.table not in known:
            raise InputError(f"{each.table!r} is no child table here; {', '.join(known)} are", culprit=each.table)
        if each.most is not None and each.most > (bound := schema.bounds(each.table).rows):
            raise InputError(
                f"of {each.table} at most the {bound} rows that the schema bounds are kept, not {each.most}"
            )
    chosen = [replace(known[each.table], **each.stated()) for each in children]
    return link_tables(schema, chosen) if chosen else every
