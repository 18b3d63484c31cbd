"""The requests for synthetic tables and for anonymized tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from sfumato.app.api.methods import AnonymizationMethod, CountOption, CutOption, MissingValues, split_names
from sfumato.app.api.questions import LossFields, Name, NumberText, StrictModel
from sfumato.errors import InputError, QueryError

if TYPE_CHECKING:
    from sfumato.anonymize import Anonymized, Hierarchy, Keep, Quasi, RowLimit
    from sfumato.anonymize.criteria import Criterion
    from sfumato.domain import Domain
    from sfumato.domain.linked_domain import LinkedTables
    from sfumato.domain.table_schema import Schema
    from sfumato.synthesize.budget_allocation import RowTotal
    from sfumato.synthesize.preview import Preview
    from sfumato.synthesize.synthesis_method import Task
    from sfumato.synthesize.synthetic import Synthetic
    from sfumato.vault.vault import Vault
    from sfumato.workload.counting_queries import Marginals


_WAY = 2
_WEIGHTED = re.compile(r"(.*)@([0-9]+(?:\.[0-9]+)?)")
_MOST_NAMES = 1000
_MOST_SECONDS = 86_400

Names = Annotated[list[Name], Field(max_length=_MOST_NAMES)]


class ChildFields(StrictModel):
    """A table with several rows per person.  Fields that are left out are as in the schema."""

    table: Name
    order: Name | None = None
    falling: bool = False
    most: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[int, Field(ge=1, le=2)] = 1
    final: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None

    def stated(self) -> dict[str, Any]:
        """Return the given fields, by their names in a child table."""
        fields: dict[str, Any] = {"falling": self.falling, "memory": self.memory}
        fields |= {} if self.order is None else {"order": self.order}
        fields |= {} if self.most is None else {"most": self.most}
        return fields | ({} if self.final is None else {"final": (self.final[0], self.final[1])})


def linked_tables(schema: Schema, children: Sequence[ChildFields]) -> LinkedTables:
    """Return the tables of a schema to synthesize together, with the named children or else with all.

    Without an order, the rows of a child follow each other by its first date.  ``final`` is a column and its value
    after which a person has no further row.

    Raises:
        InputError: a table is no child.
        DomainError: a child cannot have this order, bound or end.
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


class SynthesisFields(StrictModel):
    """A synthetic table to make in the background, or linked tables if the dataset has several."""

    method: Literal["auto", "histogram", "related"]
    loss: LossFields
    attributes: Annotated[list[Name], Field(max_length=64)] = []
    zeros: Annotated[list[dict[str, Any]], Field(max_length=_MOST_NAMES)] = []
    reuse: bool = True
    children: Annotated[list[ChildFields], Field(max_length=64)] = []

    def linked(self, schema: Schema | None) -> LinkedTables:
        """Return the linked tables of the method ``related``.

        Raises:
            InputError: the dataset has one table, a field for one table is given, or a child is unknown.
            DomainError: a child cannot be as stated.
        """
        if schema is None:
            raise InputError("this dataset has one table; linked tables need a dataset with several tables")
        if self.attributes or self.zeros or not self.reuse:
            raise InputError("linked tables take neither attributes nor rules, and use nothing released before")
        return linked_tables(schema, self.children)

    def read(self, domain: Domain) -> SynthesizeRequest:
        """Return the request for one table.

        ``zeros`` are rules for impossible combinations, in the form of a file of such rules.  ``reuse`` lets
        ``batched`` use earlier releases of the same table.

        Raises:
            InputError: auto got some attributes only, or an attribute is not in the domain.
            QueryError: rules do not fit the domain.
        """
        from sfumato.synthesize.structural_zeros import read_zeros

        if self.children:
            raise InputError("children are for linked tables; leave them out")
        if self.method != "auto" and (self.zeros or not self.reuse):
            raise InputError("a histogram takes no rules and uses nothing that was released before; leave both to auto")
        if self.zeros:
            read_zeros(self.zeros, domain)
        if self.method == "auto" and self.attributes:
            raise InputError("auto takes all attributes; leave them out, or choose the histogram")
        for attribute in self.attributes:
            domain.index(attribute)
        return SynthesizeRequest(
            method=self.method,
            loss=self.loss,
            marginals=[self.attributes] if self.attributes else [],
            way=min(_WAY, len(domain)) if self.method == "auto" else None,
            rules=self.zeros,
            reuse=self.reuse,
        )


def read_marginals(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the fields of a request for marginals as the command line writes them: ``age,sex`` or ``age,sex@4``.

    >>> read_marginals(["age,sex", "sex,town@4"])
    {'marginals': [['age', 'sex'], ['sex', 'town']], 'weights': ['1', '4']}
    """
    split = [_WEIGHTED.fullmatch(text) for text in texts]
    named = [text if match is None else match[1] for text, match in zip(texts, split, strict=True)]
    weights = ["1" if match is None else match[2] for match in split]
    return {"marginals": [split_names(text) for text in named], "weights": weights if any(split) else []}


class SynthesizeRequest(StrictModel):
    """A synthetic table, with the options of all methods.  An option that is not given is None or empty.

    ``marginals`` are measured first.  ``weights`` has a weight for each of them, or is empty.
    """

    method: Name
    loss: LossFields
    marginals: Annotated[list[list[str]], Field(max_length=_MOST_NAMES)] = []
    weights: Annotated[list[NumberText], Field(max_length=_MOST_NAMES)] = []
    way: Annotated[int, Field(ge=1)] | None = None
    rows: Annotated[int, Field(ge=1)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None
    zeros: Path | None = None
    rules: list[dict[str, Any]] = []
    reuse: bool = True
    bound_pairs: bool = False

    def refuse_unused(self) -> None:
        """Refuse options that the method ignores, and wrong marginals, before any row is read.

        Raises:
            InputError: the method is unknown, it ignores an option, or a marginal is wrong.
        """
        from sfumato.synthesize.auto import method_named, refuse_options
        from sfumato.synthesize.synthesis_method import Option

        given = {
            Option.MARGINALS: bool(self.marginals),
            Option.WAY: self.way is not None,
            Option.ROUNDS: self.rounds is not None,
            Option.ZEROS: self.zeros is not None,
            Option.NO_REUSE: not self.reuse,
            Option.BOUND_PAIRS: self.bound_pairs,
        }
        refuse_options(method_named(self.method), [option for option, is_given in given.items() if is_given])
        for clique in self.marginals:
            if not all(clique) or len(set(clique)) < len(clique):
                raise InputError(
                    f"a marginal of the argument marginals has different attributes, not {','.join(clique)!r}"
                )

    def workload(self, domain: Domain) -> Marginals:
        """Return the named marginals and all of ``way`` attributes.  Without named ones, ``way`` is 2 by default.

        Raises:
            QueryError: the weight of a marginal is no positive number.
        """
        from sfumato.workload.counting_queries import Marginals

        for name in (name for clique in self.marginals for name in clique):
            if "@" in name and name not in domain.names:
                weight = name.rpartition("@")[2]
                raise QueryError(
                    f"the weight of a marginal is a positive number such as 4 or 0.5, not {weight!r}", culprit=name
                )
        ways = self.way if self.marginals else self.way or min(_WAY, len(domain))
        return Marginals(ways, tuple(map(tuple, self.marginals)), tuple(map(Fraction, self.weights)))

    def without_delta(self, domain: Domain) -> tuple[str, ...]:
        """Say how much less noise a delta would leave at the same epsilon.  Return no sentence if it is not much.

        Raises:
            SfumatoError: the request does not fit the domain.
        """
        from sfumato import synthesize as methods

        workload = self.workload(domain)
        return methods.without_delta(
            domain, loss=self.loss.loss(), total=self._total(), workload=workload, method=self.method
        )

    def preview(self, domain: Domain) -> Preview:
        """Return the expected errors of the release; read no data and charge nothing.

        Raises:
            SfumatoError: the request does not fit the domain.
        """
        from sfumato.synthesize.auto import method_named
        from sfumato.synthesize.preview import preview_task

        return preview_task(domain, self.task(domain), method_named(self.method))

    def release(self, vault: Vault) -> Synthetic:
        """Release the table.

        Raises:
            SfumatoError: the method refuses the release.
        """
        from sfumato.synthesize.auto import method_named

        return method_named(self.method).release(vault, self.task(vault.domain))

    def task(self, domain: Domain) -> Task:
        """Return the task of the method.

        Raises:
            QueryError, DomainError: rules for impossible combinations do not fit the domain.
            InputError: the file of these rules cannot be read.
        """
        from sfumato.synthesize import SizeLimits
        from sfumato.synthesize.structural_zeros import load_zeros, read_zeros
        from sfumato.synthesize.synthesis_method import Task

        rules = read_zeros(self.rules, domain) if self.rules else ()
        return Task(
            loss=self.loss.loss(),
            total=self._total(),
            workload=self.workload(domain),
            limits=SizeLimits(prior_marginals=self.reuse, distance_bounds=self.bound_pairs),
            zeros=rules if self.zeros is None else load_zeros(self.zeros, domain),
            rounds=self.rounds,
        )

    def _total(self) -> RowTotal:
        from sfumato.synthesize import NoisyTotal, PublicTotal

        return NoisyTotal() if self.rows is None else PublicTotal(self.rows)


class AnonymizeRequest(StrictModel):
    """An anonymized table, with the options of ``sfumato anonymize``.

    ``hierarchies`` are documents with ``attribute`` and ``rows``, leaf first and top last.  ``criteria`` are further
    criteria in the form of the command line.  ``suppression`` is a share, and ``suppress_rows`` the same limit in rows.
    ``keep`` are columns to publish unchanged.  ``keep_anyway`` are such columns without a check of their content.
    ``seconds`` end optimal or k-member early.  ``cut`` is the rule for cuts of Mondrian.  ``count`` is what criteria
    count: the units of the domain, or rows.
    """

    method: Annotated[AnonymizationMethod, Field(strict=False)]
    quasi: Annotated[list[Name], Field(min_length=1, max_length=64)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    suppression: NumberText | None = None
    suppress_rows: Annotated[int, Field(ge=0)] | None = None
    criteria: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=32, default_factory=list)]
    keep: Annotated[list[Name], Field(max_length=_MOST_NAMES, default_factory=list)]
    keep_anyway: Annotated[list[Name], Field(max_length=_MOST_NAMES, default_factory=list)]
    missing: Annotated[MissingValues, Field(strict=False)] = MissingValues.CATEGORY
    hierarchies: Annotated[list[dict[str, Any]], Field(max_length=64, default_factory=list)]
    seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS, allow_inf_nan=False)] | None = None
    cut: Annotated[CutOption, Field(strict=False)] | None = None
    count: Annotated[CountOption, Field(strict=False)] = CountOption.UNITS

    def read(self) -> Anonymization:
        """Return the anonymization, with the hierarchies of the request.

        Raises:
            SfumatoError: an option is wrong, or the method ignores it.
        """
        from sfumato.anonymize import Hierarchy

        hierarchies = {each.attribute: each for each in map(Hierarchy.parse, self.hierarchies)}
        if len(hierarchies) != len(self.hierarchies) or not set(hierarchies) <= set(self.quasi):
            raise InputError("give each quasi-identifier one hierarchy at most, and nothing else")
        return self.read_with(hierarchies)

    def read_with(self, hierarchies: Mapping[str, Hierarchy]) -> Anonymization:
        """Return the anonymization, with given hierarchies.

        Raises:
            SfumatoError: an option is wrong, or the method ignores it.
        """
        from sfumato.anonymize import CountedIn, KAnonymity, Missing, Quasi, RowLimit, parse_criterion

        if self.suppression is not None and self.suppress_rows is not None:
            raise InputError("say how much may be suppressed as a share or in rows, not both")
        share = "0" if self.suppression is None else self.suppression
        missing = Missing(self.missing.value)
        criteria = [KAnonymity(self.k), *(parse_criterion(text) for text in self.criteria)]
        if self.count is CountOption.ROWS:
            criteria = [replace(each, count=CountedIn.ROWS) for each in criteria]
        anonymization = Anonymization(
            method=self.method,
            quasi=[Quasi(name=name, hierarchy=hierarchies.get(name), missing=missing) for name in self.quasi],
            criteria=criteria,
            suppression=share if self.suppress_rows is None else RowLimit(self.suppress_rows),
            keep=kept_columns(self.keep, self.keep_anyway),
            seconds=self.seconds,
            cut=self.cut,
        )
        anonymization.refuse_unused()
        return anonymization


def kept_columns(keep: Sequence[str], anyway: Sequence[str]) -> tuple[Keep, ...]:
    """Return the columns to publish unchanged.  The columns of ``anyway`` skip the check of their content."""
    from sfumato.anonymize import Keep

    only = tuple(name for name in dict.fromkeys(anyway) if name not in keep)
    return tuple(Keep(name=name, anyway=name in anyway) for name in (*keep, *only))


@dataclass(frozen=True, kw_only=True)
class Anonymization:
    """A method with its checked options."""

    method: AnonymizationMethod
    quasi: Sequence[Quasi]
    criteria: Sequence[Criterion]
    suppression: str | RowLimit
    keep: tuple[Keep, ...]
    seconds: float | None
    cut: str | None = None

    @property
    def kept_names(self) -> tuple[str, ...]:
        """The names of the columns that are published unchanged."""
        return tuple(each.name for each in self.keep)

    def refuse_unused(self) -> None:
        """Refuse options that the method ignores, before any row is read.

        Raises:
            InputError: the method takes no such suppression, criterion, time or cut.
        """
        from sfumato.anonymize import RowLimit
        from sfumato.anonymize.search.lattice import allowed_rows

        method, limit = self.method, self.suppression
        if isinstance(limit, RowLimit):
            some = limit.rows > 0
        else:
            allowed_rows(limit, 1)  # refuses a number that is no share
            some = Fraction(limit) > 0
        if method in (AnonymizationMethod.MONDRIAN, AnonymizationMethod.K_MEMBER) and some:
            raise InputError(f"{method} suppresses no row; leave out the suppression", culprit=limit)
        if method is AnonymizationMethod.K_MEMBER and len(self.criteria) > 1:
            raise InputError("k-member promises k-anonymity only; use mondrian for further criteria")
        if method not in (AnonymizationMethod.OPTIMAL, AnonymizationMethod.K_MEMBER) and self.seconds is not None:
            raise InputError(f"{method} cannot stop early; leave out the seconds", culprit=self.seconds)
        if method is not AnonymizationMethod.MONDRIAN and self.cut is not None:
            raise InputError(f"{method} cuts nothing; the cut is for mondrian", culprit=self.cut)

    def check_columns(self, domain: Domain) -> None:
        """Refuse quasi-identifiers and sensitive attributes that cannot be one, before any row is read.

        Raises:
            SfumatoError: no attribute of the domain, or one that is both.
        """
        from sfumato.anonymize.release.request import check_columns

        for each in self.quasi:
            domain.index(each.name)
        check_columns(self.criteria, [each.name for each in self.quasi], domain)

    def release(self, vault: Vault, *, watch: Callable[[str], None] | None = None) -> Anonymized:
        """Search, write the journal, and return the rows.  ``watch`` is called with each step of a long search."""
        from sfumato import anonymize as methods

        quasi, criteria, suppression, keep = self.quasi, self.criteria, self.suppression, self.keep
        match self.method:
            case AnonymizationMethod.OPTIMAL:
                extent = methods.Extent(seconds=math.inf if self.seconds is None else self.seconds)
                return methods.optimal(
                    vault, quasi=quasi, criteria=criteria, suppression=suppression, keep=keep, extent=extent
                )
            case AnonymizationMethod.SAMARATI:
                return methods.samarati(vault, quasi=quasi, criteria=criteria, suppression=suppression, keep=keep)
            case AnonymizationMethod.MONDRIAN:
                cut = methods.Cut.GREEDY if self.cut is None else methods.Cut(self.cut)
                return methods.mondrian(vault, quasi=quasi, criteria=criteria, keep=keep, cut=cut)
            case AnonymizationMethod.K_MEMBER:
                search = methods.Search(seconds=math.inf if self.seconds is None else self.seconds)
                (k_anonymity,) = criteria
                assert isinstance(k_anonymity, methods.KAnonymity)
                return methods.k_member(vault, quasi=quasi, k=k_anonymity, keep=keep, search=search, watch=watch)
