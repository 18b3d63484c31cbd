"""The vault: a protected table, its public description and its ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain
from sfumato.domain.unit import Acceptance
from sfumato.domain.view import BoundedView
from sfumato.domain.view_words import describe_view
from sfumato.engine.port import Encoded
from sfumato.errors import BudgetError, EngineError, QueryError, SfumatoError, TableError
from sfumato.ledger import JSON, Account, Event, Kind, Question, StoredAnswer
from sfumato.ledger.entry import digest
from sfumato.notebook_html import html_table
from sfumato.privacy.entropy import DrawnEntropy, OsEntropy
from sfumato.privacy.loss import Charge, EpsilonDelta, Loss
from sfumato.privacy.threshold import StabilityThreshold
from sfumato.vault.interface import Mechanisms, Payload, ReleasedPayload, ReleaseRequest, decode, encode, former_request
from sfumato.vault.measurables import Measurable, Measurement, StoredMarginal, questions_json
from sfumato.vault.mechanisms import (
    STORED,
    ExactTables,
    PrivacyFilter,
    TableMechanisms,
    noises,
    selection,
    selection_charge,
    stored_marginals,
)
from sfumato.vault.release import charged_text, cost, guarantee_text, loss_json
from sfumato.vault.scores import Scores

if TYPE_CHECKING:
    from sfumato.engine.table_files import Content
    from sfumato.engine.views.joined import TableViews
    from sfumato.ledger.reservation import Admission, Reservation


_LISTED = 6  # attributes in the text of a vault


REUSING = "synthesize"
"""The family whose methods may use stored marginals."""

REUSED = "reused"
"""The key in such a payload of the journal entries whose stored marginals it was made of, by their numbers."""


class Journal(Protocol):
    """The operations of a ledger that a vault uses."""

    @property
    def limit(self) -> Loss | None:
        """The privacy budget; None if it is not known."""
        ...

    def remaining(self, analyst: str | None = None) -> Account:
        """See :meth:`sfumato.ledger.Ledger.remaining`."""
        ...

    def answers(self, methods: Collection[tuple[str, str]], version: str, *, analyst: str | None) -> list[StoredAnswer]:
        """See :meth:`sfumato.ledger.Ledger.answers`."""
        ...

    def recorded_owners(self, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
        """See :meth:`sfumato.ledger.Ledger.recorded_owners`."""
        ...

    def reserve(
        self,
        event: Event,
        *,
        noise_drawn: Callable[[], bool],
        retry_key: str | None,
        admission: Admission | None,
    ) -> AbstractContextManager[Reservation]:
        """See :meth:`sfumato.ledger.Ledger.reserve`."""
        ...


@dataclass(frozen=True)
class Vault:
    """A protected table that answers through mechanisms, charges first, and repeats stored answers.

    Every call of a mechanism on the vault itself is a separate release.  ``release`` gives a method mechanisms
    that together may spend one charge, under one journal entry.
    """

    encoded: Encoded
    ledger: Journal
    version: str  # the number of the data's version in the ledger
    analyst: str | None = None
    view: BoundedView | None = None  # the view that the rows belong to; None: they are rows of one table
    owners: tuple[tuple[str, str], ...] = ()  # each table of a schema, with the path from its rows to their owner
    acceptance: Acceptance | None = None  # the person who accepted the schema; None: the domain has its own
    admission: Admission | None = None  # a condition on each charge besides the budget
    content: Content | None = field(default=None, repr=False, compare=False)  # the table's content when it was encoded
    _views: list[TableViews] = field(default_factory=list, repr=False, compare=False)  # none or one, shared by analysts
    _tables: ExactTables | None = field(default=None, repr=False, compare=False)  # shared by the vaults of all analysts

    def __post_init__(self) -> None:
        self.domain.refuse_draft()
        if self._tables is None or self._tables.encoded is not self.encoded:
            object.__setattr__(self, "_tables", ExactTables(self.encoded))

    @property
    def _exactly(self) -> ExactTables:
        assert self._tables is not None
        return self._tables

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self.encoded.domain

    @property
    def limit(self) -> Loss | None:
        """The privacy budget of the table; None if it is not known."""
        return self.ledger.limit

    @property
    def remaining(self) -> Account:
        """The analyst's cap with the spent and the remaining loss; the dataset's budget if the analyst has no cap.

        ``.left`` is exact, and ``str()`` gives the account in words.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        own = None if self.analyst is None else self.ledger.remaining(self.analyst)
        return self.ledger.remaining() if own is None or own.limit is None else own

    def __repr__(self) -> str:
        left = budget_terms(lambda: self.remaining)["Left"]
        return f"<Vault of {_listed(self.domain.names)}; unit: {self.domain.unit}; {left}>"

    def _repr_html_(self) -> str:
        terms = {"Attributes": ", ".join(self.domain.names), "Unit": str(self.domain.unit)}
        terms |= budget_terms(lambda: self.remaining)
        return html_table((), list(terms.items()), labels=1)

    def for_analyst(self, analyst: str, *, admission: Admission | None = None) -> Vault:
        """Return this vault for an analyst: each release is also charged to the analyst's cap, if it is admitted."""
        return replace(self, analyst=analyst, admission=admission)

    def for_view(self, view: BoundedView) -> Vault:
        """Return the vault of a view of this table, under the same ledger, version and unit.

        Args:
            view: a view of the table of :func:`sfumato.domain.unit_views.one_table_schema`.

        Raises:
            QueryError: the view is of another table or unit.
            EngineError: the table was written since it was opened, or can no longer be read.
        """
        from sfumato.domain.unit_views import one_table_schema
        from sfumato.engine.encoded import EncodedRows
        from sfumato.engine.views.joined import TableViews

        schema = one_table_schema(self.domain)
        if self.view is not None or self.domain.derives or not isinstance(self.encoded, EncodedRows):
            raise QueryError("only a table has views, and these rows are those of a view or of several tables")
        if view.view.tables != frozenset(schema.tables):
            raise QueryError("this view is of another table; make it of the table of this vault")
        if (view.unit.column, view.unit.schema) != (schema.unit.column, schema.unit.schema):
            raise QueryError("this view is of other units; make it of those of this vault")
        if not self._views:
            self._views.append(TableViews())
        encoded = self._views[0].encoded(self.encoded, view, self.content)
        return replace(self, encoded=encoded, view=view, acceptance=self.acceptance or self.domain.accepted_by)

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse undeclared columns whose values cannot be released, before anything is charged.

        Raises:
            QueryError, TableError: see :meth:`sfumato.engine.port.Encoded.refuse_keys`.
        """
        self.encoded.refuse_keys(columns)

    def release(
        self,
        request: ReleaseRequest,
        loss: Loss | Charge,
        run: Callable[[Mechanisms], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,
    ) -> ReleasedPayload:
        """Reserve ``charge``, run a method with mechanisms that can spend no more, store its payload and return it.

        A request was answered before if the journal has a payload for an equal release: the same request, loss and
        charge, on the same version of the table with the same domain, view and owners.  That payload is returned,
        and the dataset is not charged.  An analyst who was not charged for it before is charged to their own cap.

        If ``run`` raises before noise is drawn, the charge stands.  The next equal request runs the method under that
        charge, without another one.  If ``run`` raises after noise was drawn, the release is closed as failed.
        The next equal request is a new release with a new charge.

        Args:
            request: the identity of the release.
            loss: the loss that the guarantee states.  It is a :class:`Charge` if no single measure states the
                mechanism's loss, such as for a stability threshold.
            run: the method.
            charge: the charge to reserve; by default, the charge of ``loss``.  It is smaller than that if the
                mechanisms of ``run`` have less loss in some measure, such as the rho of a selection.
            retry_key: the same text for all attempts at one request.

        Raises:
            BudgetError: the limit or the analyst's cap refuses the charge; or the mechanisms of ``run`` would spend
                more than ``charge``; or the stored payload was made of marginals that the analyst was not charged for.
            LossError: the limit does not have the measure of the charge.
            UnitError: the ledger adds up losses of another unit, or for other owners of the rows.
            VersionError: the table is not the version that was declared last.
            RetryKeyError: the retry key was used for another question.
            InputError: a parameter is no JSON value; or a name or the statement is not printable text.
            EngineError: the rows changed since they were encoded, and nothing was charged; or the engine failed in
                ``run``, and the charge stands.
            LedgerError: the ledger was moved, changed or failed; or the release was closed as failed in the meantime.
            SfumatoError: any other error of ``run`` or of the admission.
        """
        charge = charge or loss.charge
        noise = DrawnEntropy(_ENTROPY)
        parameters = {**request.parameters, "loss": loss_json(loss)}
        request = self._under_former_name(request, parameters)
        event = self._event(request, parameters, charge, guarantee_text(loss, self.domain.unit))
        reusing = request.family == REUSING
        if reusing and self.analyst is not None:
            self._refuse_answered(event.question)
        with self._reserve(event, lambda: noise.drawn, retry_key) as reservation:
            if reservation.answer is None:
                stored = self._stored if reusing else tuple
                within = PrivacyFilter(charge)
                with _failures_of_one_kind(), noise:
                    payload = run(TableMechanisms(self._exactly, within=within, entropy=noise, stored=stored))
                reservation.store(encode(payload))
        released = self._released_payload(request, parameters, reservation)
        if reusing and self.analyst is not None:
            self._refuse_made_of_others(released.payload)  # again: another analyst may have released it since
        return released

    def disclose(
        self,
        request: ReleaseRequest,
        run: Callable[[Encoded], Payload],
        *,
        statement: str,
        retry_key: str | None = None,
    ) -> ReleasedPayload:
        """Release something exact without differential privacy, and state so in the journal.

        A request that was answered before returns its stored payload, as in :meth:`release`.  Nothing is charged.  If
        ``run`` raises, the next equal request runs it again.

        Args:
            request: the identity of the release.
            run: the method; it gets the exact rows.
            statement: the promise of the release: quasi-identifiers, criterion, attacker, suppression and the loss of
                information.
            retry_key: the same text for all attempts at one request.

        Raises:
            UnitError: the ledger is for other owners of the rows.
            VersionError: the table is not the version that was declared last.
            RetryKeyError: the retry key was used for another question.
            InputError: a parameter is no JSON value; or a name or the statement is not printable text.
            EngineError: the rows changed since they were encoded.
            LedgerError: the ledger was moved, was changed or failed.
            SfumatoError: any other error of ``run`` or of the admission.
        """
        statement = f"no DP guarantee: {statement}"
        event = self._event(request, request.parameters, None, statement)
        with self._reserve(event, lambda: True, retry_key) as reservation:
            if reservation.answer is None:
                reservation.store(encode(run(self.encoded)))
        return self._released_payload(request, request.parameters, reservation)

    def _reserve(
        self, event: Event, noise_drawn: Callable[[], bool], retry_key: str | None
    ) -> AbstractContextManager[Reservation]:
        return self.ledger.reserve(event, noise_drawn=noise_drawn, retry_key=retry_key, admission=self.admission)

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.interface.Mechanisms.measure`; one journal entry."""
        added = noises(self.domain, questions, loss, shares)
        parameters = {
            **questions_json(questions),
            "shares": None if shares is None else [str(share) for share in shares],
        }
        released = self.release(
            ReleaseRequest("vault", "measure", parameters),
            loss,
            lambda mechanisms: {
                str(index): measurement.values
                for index, measurement in enumerate(mechanisms.measure(questions, loss, shares=shares))
            },
        )
        return tuple(
            Measurement(question, released.payload[str(index)], noise)
            for index, (question, noise) in enumerate(zip(questions, added, strict=True))
        )

    def select(self, scores: Scores, loss: Loss) -> int:
        """See :meth:`sfumato.vault.interface.Mechanisms.select`; one journal entry."""
        mechanism = selection(self.domain, scores, loss)  # refuse before the charge if the scores cannot be computed
        charge = selection_charge(mechanism, loss)
        request = ReleaseRequest("vault", "select", {"scores": scores.canonical()})
        released = self.release(
            request, loss, lambda mechanisms: {"index": mechanisms.select(scores, loss)}, charge=charge
        )
        return int(released.payload["index"])

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """See :meth:`sfumato.vault.interface.Mechanisms.threshold`; one journal entry."""
        self.refuse_keys(columns)
        parameters = {"columns": list(columns), "of": loss_json(loss)}
        request = ReleaseRequest("vault", "threshold", parameters)
        charge = StabilityThreshold(loss, keys_per_unit=self.domain.unit.rows).charge

        def run(mechanisms: Mechanisms) -> Payload:
            table = mechanisms.threshold(columns, loss)
            units = np.asarray(table["units"].to_numpy(), dtype=np.int64)
            return {"keys": [table[column].to_pylist() for column in columns], "units": units}

        payload = self.release(request, charge, run).payload
        return pa.table(
            {column: pa.array(keys, pa.string()) for column, keys in zip(columns, payload["keys"], strict=True)}
            | {"units": pa.array(payload["units"])}
        )

    def _stored(self) -> tuple[StoredMarginal, ...]:
        """Return the marginals of earlier releases, to the analyst if there is one."""
        answers = self.ledger.answers(STORED, self.version, analyst=self.analyst)
        return stored_marginals(self.domain, answers, self.view)

    def _refuse_answered(self, question: Question) -> None:
        """Refuse a request, before it is charged, if the analyst may not see its stored answer."""
        method = (question.family, question.method)
        for answer in self.ledger.answers([method], question.dataset_version, analyst=None):
            if answer.question.parameters == question.parameters:
                self._refuse_made_of_others(decode(answer.body))

    def _refuse_made_of_others(self, payload: Payload) -> None:
        """Refuse a payload that was made of marginals that the analyst was not charged for.

        Raises:
            BudgetError: the analyst was not charged for one of the marginals, so the charge of the payload does not
                cover its loss to them.
        """
        made_of = set(payload.get(REUSED, ()))
        charged = self.ledger.answers(STORED, self.version, analyst=self.analyst) if made_of else []
        if made_of - {answer.number for answer in charged}:
            raise BudgetError(
                "this release was made of marginals that your account was not charged for; ask for these marginals "
                "first, or for a release with other parameters"
            )

    def _under_former_name(self, request: ReleaseRequest, parameters: Mapping[str, Any]) -> ReleaseRequest:
        """Return the request under the name of its method for which the ledger has an answer."""
        if not request.former_method:
            return request
        methods = [(request.family, name) for name in (request.former_method, request.displaced_method) if name]
        identity = self._event(request, parameters, None, "").question.parameters

        def answered(analyst: str | None) -> list[str]:
            stored = self.ledger.answers(methods, self.version, analyst=analyst)
            return [each.question.method for each in stored if each.question.parameters == identity]

        former = answered(None)
        return former_request(request, former, answered(self.analyst) if former and self.analyst else former)

    def _event(
        self, request: ReleaseRequest, parameters: Mapping[str, Any], charge: Charge | None, statement: str
    ) -> Event:
        """Return the release as an event of the journal.

        The event does not depend on the rows.  An equal request is free within a version, and charged in the next one.
        """
        self.encoded.ready()
        view = {} if self.view is None else {"view": self.view.hash}
        owners = {"owners": digest(dict(self.owners))} if self.owners else {}
        parameters = {**parameters, "domain": self.domain.hash, **view, **owners}
        question = Question(request.family, request.method, parameters, self.version)
        details = self._details(request)
        return Event(Kind.RELEASE, question, charge, self.analyst, statement, details, self.domain.unit)

    def _details(self, request: ReleaseRequest) -> dict[str, JSON]:
        accepted = self.acceptance or self.domain.accepted_by
        details: dict[str, JSON] = {"asked": request.words} if request.words else {}
        if self.view is not None:
            words = request.words or f"{request.family}, {request.method}"
            details |= {"asked": f"{words} of {describe_view(self.view)}", "view": json.loads(self.view.canonical)}
        details |= {"owners": dict(self.owners)} if self.owners else {}
        details["accepted"] = None if accepted is None else accepted.journal_entry()
        return details

    def _released_payload(
        self, request: ReleaseRequest, parameters: Mapping[str, Any], reservation: Reservation
    ) -> ReleasedPayload:
        event, answer = reservation.event, reservation.stored()
        return ReleasedPayload(
            payload=decode(answer),
            digest=hashlib.sha256(answer).hexdigest(),
            view=self.view,
            accepted=self.acceptance or self.domain.accepted_by,
            guarantee=event.statement,
            cost=charged_text(event.charge, dataset=reservation.charged, analyst=reservation.charged_analyst),
            provenance={
                "family": request.family,
                "method": request.method,
                "parameters": dict(parameters),
                "domain": self.domain.hash,
                "unit": str(self.domain.unit),
                "journal_entry": reservation.number,
                "sfumato": _version(),
            },
        )


_ENTROPY: Final = OsEntropy()
"""The source of noise of all vaults.  No vault takes another one, because noise from a seed gives no guarantee."""


@contextmanager
def _failures_of_one_kind() -> Iterator[None]:
    """Raise one error with one message for all failures of the engine, because their reasons may depend on rows."""
    try:
        yield
    except (EngineError, TableError) as error:
        raise EngineError(
            "the engine failed while it computed this release, and what was charged stands; see that the engine "
            "has memory and temporary space, and ask again (SFUMATO_TRACE=1 shows the reason)"
        ) from error


@cache  # reading a package's metadata takes as long as an answer
def _version() -> str:
    return version("sfumato")


def budget_terms(remaining: Callable[[], Account]) -> dict[str, str]:
    """Return a budget in words; a vault has a text even if its ledger cannot be read."""
    try:
        account = remaining()
    except SfumatoError:
        return {"Left": "its ledger is not open"}
    return {
        "Guarantee of all releases together": account.guarantee,
        "Spent": cost(account.spent),
        "Left": str(account),
    }


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
