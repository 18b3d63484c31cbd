"""Options of commands that take several tables: ``--schema``, ``--view`` and other bounds of a view.

Whoever adds a command over a schema imports its options from here: :data:`SchemaOption`, :data:`ViewOption`,
:data:`UnitRowsOption`, :data:`PerOption`; :func:`read_view` makes a :class:`TableView` of them, which
:class:`sfumato.app.cli.conventions.Source` opens as a vault, and :meth:`TableView.encoded` for what is no release.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.domain import Domain, GroupBound, Unit
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.view import BoundedView
    from sfumato.engine.port import Recodable

SchemaOption = Annotated[
    Path | None,
    typer.Option("--schema", help="Schema of several tables, a YAML file; the table then is their folder or database."),
]
ViewOption = Annotated[
    Path | None,
    typer.Option(
        "--view", help="With --schema: a file with the SELECT whose rows are taken, SELECT * or one row a person."
    ),
]
UnitRowsOption = Annotated[
    int | None,
    typer.Option(
        "--unit-rows", min=1, help="With --schema: rows of one person that are kept, in place of what the schema says."
    ),
]
PerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--per",
        help="With --schema: GROUPING=ROWS or GROUPING=ROWS,GROUPS, as 'month(admitted)=2,4', in place of all that "
        "the schema says by groups; several times.",
    ),
]


@dataclass(frozen=True)
class TableView:
    """A bounded view of the tables of a schema, as a command names it.

    Attributes:
        path: of the schema.
        schema: accepted.
        view: with its bounds.
    """

    path: Path
    schema: Schema
    view: BoundedView

    @property
    def domain(self) -> Domain:
        """What is publicly known of its rows."""
        return self.view.domain

    def encoded(self, tables: str) -> Recodable:
        """Its rows, counted by nobody yet: for their owner.

        Raises:
            TableError: a table is missing, cannot be read, or its keys are none.
        """
        from sfumato.engine.views.joined import open_tables

        return open_tables(self.schema, tables).encode(self.view)


def read_schema(path: Path) -> Schema:
    """A schema that releases may rest on.

    Raises:
        DomainError: it cannot be read, is a draft, was changed since it was accepted, or derives what cannot be
            computed.
    """
    from sfumato.domain.table_schema import load_schema
    from sfumato.query.statements.derived_columns import check_derived

    described = load_schema(path)
    described.refuse_draft()
    check_derived(described)
    return described


def read_view(
    schema: Path | None, view: Path | None, *, rows: int | None = None, per: Sequence[str] | None = None
) -> TableView | None:
    """The view that a command is about; None where it names no schema.

    Raises:
        InputError: a view without a schema or the reverse, a file that cannot be read, or a wrong bound.
        DomainError: the schema cannot be read, or nobody accepted it as it stands.
        QueryError: the statement is outside the grammar.
    """
    refuse_without_schema(schema, view=view is not None, unit_rows=rows is not None, per=bool(per))
    if schema is None:
        return None
    if view is None:
        raise InputError("say which rows of the tables are meant: --view FILE, a SELECT over the tables of --schema")
    from sfumato.query.statements.table_statement import parse_view

    described = read_schema(schema)
    found = parse_view(view_text(view), described)
    made = TableView(schema, described, replace(found, unit=other_bounds(found.unit, rows=rows, per=per)))
    _ = made.domain  # refuses bounds by what is no grouping of it
    return made


def refuse_without_schema(schema: Path | None, **given: bool) -> None:
    """Refuse what is for several tables where one is meant.

    Raises:
        InputError: such an option, by its name.
    """
    if schema is None and (named := [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]):
        is_or_are = "is" if len(named) == 1 else "are"
        raise InputError(
            f"{' and '.join(named)} {is_or_are} about several tables: name their schema by --schema", culprit=named
        )


def other_bounds(unit: Unit, *, rows: int | None, per: Sequence[str] | None) -> Unit:
    """The bounds of a unit, with those that a command names in their place.

    Raises:
        InputError: a bound by groups that is none.
    """
    if rows is None and not per:
        return unit
    return unit.bounded(rows=rows or unit.rows, per=tuple(map(_group_bound, per)) if per else unit.per)


def _group_bound(text: str) -> GroupBound:
    from sfumato.domain.unit import GroupBound

    name, _, most = text.rpartition("=")
    numbers = [part.strip() for part in most.split(",")]
    if not name.strip() or not 1 <= len(numbers) <= len(("rows", "groups")) or not all(map(str.isdecimal, numbers)):
        raise InputError(f"--per takes GROUPING=ROWS or GROUPING=ROWS,GROUPS, as 'month(admitted)=2,4', not {text!r}")
    rows, groups = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else None
    return GroupBound.named(name.strip(), rows=rows, groups=groups)


def view_text(path: Path) -> str:
    """The statement in the file of a view.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the view {path}: {reason}", culprit=path) from None
    return text.strip().removesuffix(";")
