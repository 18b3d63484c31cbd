"""Columns that are published unchanged, and the refusal of columns that identify people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.arguments import expect, expect_all
from sfumato.domain import Categorical, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.port import Recodable
from sfumato.errors import InputError, pluralize

SHARED = 2
"""A column is nearly unique if fewer units than this share one of its values on average."""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """A column to publish unchanged.

    ``anyway`` publishes it even if it is not in the domain, nearly unique, or free text.  The statement of the release
    and the journal then name it.
    """

    name: str
    anyway: bool = False

    def __post_init__(self) -> None:
        expect(self.name, str, "a kept column is called by its name")
        expect(self.anyway, bool, f"the anyway of column {self.name!r} is True or False")


@dataclass(frozen=True)
class UnchangedColumns:
    """The columns that a release publishes unchanged, in the given order."""

    columns: tuple[Keep, ...]

    @classmethod
    def parse(cls, keep: Sequence[str | Keep]) -> UnchangedColumns:
        """Return the columns that a caller named.

        Raises:
            InputError: a column has no name, or is named twice.
        """
        expect_all(keep, str | Keep, "kept columns are a list of names or Keep(...)")
        columns = tuple(Keep(name=each) if isinstance(each, str) else each for each in keep)
        if len({each.name for each in columns}) != len(columns):
            raise InputError("a kept column is named twice", culprit=keep)
        return cls(columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(each.name for each in self.columns)

    @property
    def anyway(self) -> tuple[str, ...]:
        """The names of the columns that are published without a check of their content."""
        return tuple(each.name for each in self.columns if each.anyway)

    def besides(self, quasi: Sequence[str]) -> UnchangedColumns:
        """Return the columns that are no quasi-identifiers."""
        return UnchangedColumns(tuple(each for each in self.columns if each.name not in quasi))

    def refuse_telling(self, source: Recodable) -> None:
        """Refuse columns that are not in the domain, nearly unique, or free text.

        The refusal and its message depend on the rows, so both are for the owner of the table.

        Raises:
            InputError: the message names the first such column without ``anyway``, and its number of distinct values.
        """
        for each in self.columns:
            if not each.anyway and (why := _why_telling(source, each.name)):
                raise InputError(
                    f"{each.name!r} is not published as it is: {why}; leave it out, or publish it knowingly with "
                    f"--keep-anyway {each.name} (Python: Keep(name={each.name!r}, anyway=True))",
                    culprit=each.name,
                )


NONE_UNCHANGED = UnchangedColumns(())


def _why_telling(source: Recodable, name: str) -> str:
    """Return in words why a column may identify people; empty if it may not."""
    values = reveal(source.held(name))
    distinct, held = len(values), sum(values["units"].to_pylist())
    undeclared = _undeclared(source, name, values[name].to_pylist())
    reasons = [
        reason
        for reason, applies in (
            ("the domain does not describe it", name not in source.domain.names),
            ("it is nearly unique", held < SHARED * distinct),
            (f"it holds {pluralize(undeclared, 'value')} that the domain does not declare, like free text", undeclared),
        )
        if applies
    ]
    if not reasons:
        return ""
    holders = "rows" if source.domain.unit.column is None else "units"
    shared = f", {holders} per value: {held / distinct:.3g} on average" if distinct else ""
    return f"{' and '.join(reasons)} (for the owner alone: {pluralize(distinct, 'distinct value')}{shared})"


def _undeclared(source: Recodable, name: str, values: Sequence[str]) -> int:
    """Return how many values of a categorical column would be published although the domain does not declare them.

    Rows with such a value are dropped unless the domain has a category for them.
    """
    attribute = source.domain[name] if name in source.domain.names else None
    if not isinstance(attribute, Categorical) or attribute.unknown is not Unknown.CATEGORY:
        return 0
    unknown = reveal(source.marginals([(name,)])[0])[attribute.declared + attribute.nullable :].sum()
    return len(set(values) - set(attribute.labels())) if unknown else 0
