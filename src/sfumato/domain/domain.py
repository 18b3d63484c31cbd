"""Attributes in order: the shape of every contingency table."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from sfumato.arguments import expect_all
from sfumato.domain.attribute import Attribute
from sfumato.domain.unit import Unit
from sfumato.errors import DomainError


@dataclass(frozen=True)
class Domain:
    """Attributes in order, the unit of privacy, and whether the owner has accepted the description.

    Public knowledge: nothing here may be read off the protected table without the owner's consent.

    >>> from sfumato.domain import Categorical, Unknown
    >>> sex = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
    >>> age = Categorical(name="age", values=("young", "old"), unknown=Unknown.CATEGORY)
    >>> domain = Domain((sex, age))
    >>> domain.shape, domain.size, domain.project(["age"]).names
    ((2, 3), 6, ('age',))
    """

    attributes: tuple[Attribute, ...]
    unit: Unit = field(default_factory=Unit.row)
    draft: bool = False

    def __post_init__(self) -> None:
        expect_all(self.attributes, Attribute, "the attributes of a domain are a list of Categorical, Integer and Real")
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not self.attributes:
            raise DomainError("a domain needs at least one attribute", culprit=self)
        if len(set(self.names)) != len(self.names):
            raise DomainError("a domain declares an attribute twice", culprit=self.names)

    def __hash__(self) -> int:
        return self._hash  # domains are keys of many caches, and have long tuples of edges and values

    @cached_property
    def _hash(self) -> int:
        return hash((self.attributes, self.unit, self.draft))

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Attribute names in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each attribute, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def size(self) -> int:
        """Number of cells of the full contingency table."""
        return math.prod(self.shape)

    def index(self, name: str) -> int:
        """Position of an attribute.

        Raises:
            DomainError: no attribute of that name.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise DomainError(
                f"no attribute {name!r} in the domain; it has {', '.join(self.names)}", culprit=name
            ) from None

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of a marginal: the named attributes in the order given."""
        return replace(self, attributes=tuple(self[name] for name in names))

    def accepted(self) -> Domain:
        """The same description, no longer a draft."""
        return replace(self, draft=False)

    def refuse_draft(self) -> None:
        """Refuse to release under a description that nobody accepted.

        Raises:
            DomainError: the domain is a draft.
        """
        if self.draft:
            raise DomainError(
                "this domain is a draft made from the data; edit it and set 'draft: false' before releasing anything",
                culprit=self,
            )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical description, hexadecimal; a draft and its accepted copy share it."""
        from sfumato.domain.document import describe

        text = json.dumps(describe(self.accepted()), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()
