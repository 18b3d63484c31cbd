"""The interface of criteria for classes that are safe to publish, and the criteria on the size of a class.

A criterion tests one class at a time.  It declares two properties that a search may prune with:

* ``monotone``: the union of two classes that satisfy the criterion satisfies it, so a table that satisfies it still
  does after further generalization;
* ``monotone_with_suppression``: a class that satisfies the criterion still does after any merge, so further
  generalization never suppresses more rows.

A class counts units if the domain names them (``CountedIn.UNITS``): a unit with several rows counts once.  Both
properties are proven for classes whose counts add up in a merge.  Units add up if each has rows of one tuple only and
one value of the sensitive attribute.  Otherwise a unit of both classes counts once in their union, and may have other
values there.  ``monotone_with_spread`` states that both properties hold nevertheless.  They hold for a minimum number
of units, because a union has at least as many units as either class.  No other criterion has them, so a search must not
prune with it.

A criterion is implemented twice.  ``safe_classes`` tests all classes at once, in floating point, for the search.
``is_safe`` tests one class in exact integers, by the definition, before anything is published.  The two share no code.

Cells for missing and unknown values never make a class look safer.  Diversity must hold with them and among the
declared values alone.  In t-closeness they are at the largest distance from any value.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, final, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.parameters import (
    check_value,
    is_supported,
    parse_value,
    spell_parameters,
    split_optional,
)
from sfumato.anonymize.criteria.tally import ClassTally
from sfumato.domain import Domain
from sfumato.engine.port import SparseTable
from sfumato.errors import InputError

Mask = NDArray[np.bool_]


class CountedIn(StrEnum):
    """The things that a criterion counts in a class."""

    UNITS = "units"  # different units, if the domain names them by an id; otherwise every row is a unit
    ROWS = "rows"


@dataclass(frozen=True)
class Criterion(ABC):
    """A condition on a class, with its attacker model.  Classes without rows satisfy every criterion except
    delta-presence.

    A criterion is a frozen dataclass.  Its text is its ``name`` and its fields.  Fields have the types ``int``,
    ``float``, ``Fraction`` (which accepts ``int`` and ``float`` too), ``str``, an enum of ``StrEnum``, or one of these
    ``| None`` with default None.  A ``population`` is a ``SparseTable``, which has no text form.  Other types are
    refused when the class is defined, because a saved recoding could not be applied.  The base class checks that each
    value has the type of its field; ``_check_values`` refuses values that are out of range.
    """

    count: CountedIn = field(default=CountedIn.UNITS, kw_only=True)

    name: ClassVar[str]
    attacker: ClassVar[str]
    monotone: ClassVar[bool] = True
    monotone_with_suppression: ClassVar[bool] = False
    monotone_with_spread: ClassVar[bool] = False
    spares_empty: ClassVar[bool] = True  # no row of an empty class is published
    field_types: ClassVar[Mapping[str, Any]]

    if TYPE_CHECKING:

        @property
        def sensitive(self) -> str | None:
            """The protected sensitive attribute, or None."""

        @property
        def population(self) -> SparseTable | None:
            """The population to compare classes with, or None."""

        @property
        def least_rows(self) -> int:
            """The minimum rows of a nonempty class that satisfies the criterion."""

    else:  # a subclass field with one of these names needs ``field()``, or the property would be its default
        sensitive = population = None
        least_rows = 1

    def __init_subclass__(cls) -> None:
        """Refuse a subclass whose fields have no check, an accidental default, or no text form.

        Raises:
            TypeError: the definition is invalid.
        """
        super().__init_subclass__()
        hints = {name: hint for name, hint in get_type_hints(cls).items() if get_origin(hint) is not ClassVar}
        cls.field_types = hints
        if "__post_init__" in vars(cls):
            raise TypeError(f"{cls.__name__} checks its values in _check_values, instead of __post_init__")
        for name in hints.keys() & inspect.get_annotations(cls).keys():
            kind, optional = split_optional(hints[name])
            if name not in vars(cls) and any(name in vars(base) for base in cls.__mro__[1:]):
                raise TypeError(f"{cls.__name__}.{name} needs '= field()', or {getattr(cls, name)!r} is its default")
            if not is_supported(kind) or (kind is SparseTable) is not (name == "population"):
                raise TypeError(f"{cls.__name__}.{name} has a type that no criterion can have: {hints[name]}")
            if optional and vars(cls).get(name, MISSING) is not None:
                raise TypeError(f"{cls.__name__}.{name} needs '= None', because text leaves None out")

    @final
    def __post_init__(self) -> None:
        for name, hint in self.field_types.items():
            value = check_value(getattr(self, name), hint, f"{self.name}: {name}")
            object.__setattr__(self, name, value)
        self._check_values()

    @abstractmethod
    def _check_values(self) -> None:
        """Refuse values that are out of range.

        Raises:
            InputError: a value is out of range.
        """

    def check_domain(self, domain: Domain) -> None:
        """Refuse a domain without the sensitive attribute.

        Raises:
            DomainError: the domain does not have the attribute.
            InputError: the domain does not have a value that the criterion names.
        """
        if self.sensitive is not None:
            domain.index(self.sensitive)

    def state(self, domain: Domain) -> str:  # noqa: ARG002 -- for criteria that name a value
        """Return the criterion in words, with labels of a domain."""
        return str(self)

    def safe_classes(self, classes: Classes) -> Mask:
        """Return which classes satisfy the criterion."""
        held = self._safe_classes(classes)
        return classes.or_empty(held) if self.spares_empty else held

    def is_safe(self, tally: ClassTally) -> bool:
        """Return whether a class satisfies the criterion, by its definition in exact integers."""
        return (self.spares_empty and tally.rows == 0) or self._is_safe(tally)

    @abstractmethod
    def _safe_classes(self, classes: Classes) -> Mask: ...

    @abstractmethod
    def _is_safe(self, tally: ClassTally) -> bool: ...

    @classmethod
    def parse_field(cls, name: str, text: str) -> Any:  # noqa: ANN401 -- of the field's type
        """Parse the value of a field by its declared type.

        Raises:
            InputError: the text is no value of that type.
        """
        return parse_value(text, cls.field_types[name], f"{cls.name}: {name}")

    def spell(self) -> str:
        """Return the criterion as text, without its population.

        >>> KAnonymity(10).spell()
        'k-anonymity:k=10'
        """
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "count"}
        if self.count is CountedIn.ROWS:
            values["count"] = self.count
        written = {key: value for key, value in values.items() if key != "population" and value is not None}
        return f"{self.name}:{spell_parameters(written)}"


@dataclass(frozen=True)
class KAnonymity(Criterion):
    """Every class has at least k rows (Samarati and Sweeney 1998), or different units.

    An attacker searches for a unit, so k rows of one unit would hide nothing.
    """

    k: int

    name: ClassVar[str] = "k-anonymity"
    monotone_with_suppression: ClassVar[bool] = True
    monotone_with_spread: ClassVar[bool] = True
    attacker: ClassVar[str] = "prosecutor: knows that a person is in the table, and their quasi-identifiers"

    def _check_values(self) -> None:
        at_least("k", self.k, 1)

    @property
    def least_rows(self) -> int:
        """The value of k."""
        return self.k

    def _safe_classes(self, classes: Classes) -> Mask:
        return np.asarray(classes.sizes >= self.k)

    def _is_safe(self, tally: ClassTally) -> bool:
        return tally.size >= self.k

    def __str__(self) -> str:
        return f"{self.k}-anonymity"


@dataclass(frozen=True, eq=False)
class KMap(Criterion):
    """Every published class has at least k people in the population (Sweeney 2001).

    People are the different units of the population, or its rows if it names no units.
    """

    k: int
    population: SparseTable = field()

    name: ClassVar[str] = "k-map"
    monotone_with_suppression: ClassVar[bool] = True
    monotone_with_spread: ClassVar[bool] = True
    attacker: ClassVar[str] = "journalist: knows a person of the population, not whether they are in the table"

    def _check_values(self) -> None:
        at_least("k", self.k, 1)

    def _safe_classes(self, classes: Classes) -> Mask:
        assert classes.people is not None
        return np.asarray(classes.people >= self.k)

    def _is_safe(self, tally: ClassTally) -> bool:
        return tally.people is not None and tally.people >= self.k

    def __str__(self) -> str:
        return f"{self.k}-map"


@dataclass(frozen=True, eq=False)
class DeltaPresence(Criterion):
    """The share of a class's population that is in the table lies in ``[low, high]`` (Nergiz et al. 2007).

    A class with people but without rows fails for ``low`` above zero, and suppression cannot repair it.  The share is a
    share of units if units are counted: the attacker asks whether any row of a unit is in the table.
    """

    low: Fraction
    high: Fraction
    population: SparseTable = field()

    name: ClassVar[str] = "delta-presence"
    spares_empty: ClassVar[bool] = False  # the absence of a class shows that none of its people is in the table
    attacker: ClassVar[str] = "knows a person of the population and asks whether they are in the table"

    def _check_values(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise InputError("delta-presence needs 0 <= low <= high <= 1", culprit=(self.low, self.high))

    def _safe_classes(self, classes: Classes) -> Mask:
        assert classes.people is not None
        share = classes.sizes / np.maximum(classes.people, 1)
        inside: Mask = (share >= float(self.low)) & (share <= float(self.high))
        return inside

    def _is_safe(self, tally: ClassTally) -> bool:
        share = Fraction(tally.size, tally.people) if tally.people else Fraction(0)
        return Fraction(self.low) <= share <= Fraction(self.high)

    def __str__(self) -> str:
        return f"delta-presence in [{float(self.low):g}, {float(self.high):g}]"


def safe(criteria: Sequence[Criterion], classes: Classes) -> Mask:
    """Return which classes satisfy every criterion."""
    result = np.ones(len(classes), dtype=bool)
    for criterion in criteria:
        result &= criterion.safe_classes(classes)
    return result


CRITERIA_WANTED = "criteria are a list, such as [KAnonymity(10)]"
"""Error message for an argument that is not a list of criteria."""


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a parameter below its least value, or NaN.

    Raises:
        InputError: the parameter is below its least value, or NaN.
    """
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, not {value}", culprit=value)
