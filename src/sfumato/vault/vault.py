"""The vault: a protected table, its public description and its ledger behind a handful of doors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from typing import Any, Protocol, Unpack

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain
from sfumato.engine.port import Encoded
from sfumato.errors import LedgerError
from sfumato.ledger import Question, Receipt
from sfumato.ledger.ledger import Terms
from sfumato.ledger.question import JSON
from sfumato.privacy.accountant import Charge, charge_for
from sfumato.privacy.entropy import DrawnEntropy, Entropy, OsEntropy
from sfumato.privacy.loss import EpsilonDelta, Loss
from sfumato.privacy.stability import StabilityThreshold
from sfumato.vault import canonical
from sfumato.vault.doors import Doors
from sfumato.vault.noise import noises
from sfumato.vault.payload import Payload, decode, encode
from sfumato.vault.promise import billed, promise
from sfumato.vault.purse import Purse
from sfumato.vault.questions import Measurable, Measurement, Scores, beyond_bounds
from sfumato.vault.session import Session, chooser, selection_charge
from sfumato.vault.tallies import Tallies


@dataclass(frozen=True)
class Request:
    """What a release is called in the journal: the same request of the same data is the same question.

    ``parameters`` are JSON values that hold everything that shapes the answer, except the loss.  ``words`` say what
    is asked to whoever reads the journal; they are no part of the question.  ``raw`` names the columns that are read
    as they stand in the table, which then belong to the version of the data; where it is not None, so do the rows that
    the bound of a unit leaves out.
    """

    family: str
    method: str
    parameters: Mapping[str, Any]
    words: str = field(default="", compare=False, repr=False)
    raw: tuple[str, ...] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Settled:
    """A released payload, the promise it was released under, and its place in the journal.

    ``digest`` names the payload, which is public: the same answer has the same digest, hexadecimal.
    """

    payload: dict[str, Any]
    guarantee: str
    cost: str
    provenance: Mapping[str, Any]
    digest: str


class Journal(Protocol):
    """What a vault needs of a ledger."""

    @property
    def limit(self) -> Loss | None:
        """The most that may ever be released; None where the ledger is not opened yet and nobody has named it."""
        ...

    def release(
        self,
        question: Question,
        charge: Charge | None,
        compute: Callable[[], bytes],
        *,
        drawn: Callable[[], bool],
        **terms: Unpack[Terms],
    ) -> Receipt:
        """See :meth:`sfumato.ledger.Ledger.release`."""
        ...


@dataclass(frozen=True)
class Vault:
    """A protected table that answers through its doors, charges first, and remembers what it said.

    Every call of a door on the vault itself is a release of its own.  ``release`` gives a method doors
    that together may spend one charge, under one journal entry.
    """

    encoded: Encoded
    ledger: Journal
    analyst: str | None = None
    entropy: Entropy = OsEntropy()  # noqa: RUF009  (the operating system's, shared by all vaults)
    _tallies: Tallies = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.domain.refuse_draft()
        object.__setattr__(self, "_tallies", Tallies(self.encoded))

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self.encoded.domain

    @property
    def limit(self) -> Loss | None:
        """The most that may ever be released of the table; None where the ledger is still to be opened."""
        return self.ledger.limit

    def asked_by(self, analyst: str) -> Vault:
        """The same vault, charging what it releases to the analyst's cap as well."""
        asked = replace(self, analyst=analyst)
        object.__setattr__(asked, "_tallies", self._tallies)  # what was counted is kept
        return asked

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse columns whose values cannot be found, before anything is charged.

        Raises:
            QueryError, TableError: see :meth:`sfumato.engine.port.Encoded.refuse_keys`.
        """
        self.encoded.refuse_keys(columns)

    def release(
        self,
        request: Request,
        loss: Loss | Charge,
        run: Callable[[Doors], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,
    ) -> Settled:
        """Reserve ``loss``, run a method on doors that can spend no more, store its payload, return it.

        A request that was answered before returns the stored payload and costs the dataset nothing.  If ``run``
        raises after noise was drawn, the release stays charged and is never answered; asking again is charged again.

        Args:
            request: what is asked.
            loss: what the release is promised to cost.
            run: the method.
            charge: what is reserved, where the mechanisms of ``run`` cost less in some measure than any of that loss.
            retry_key: the same for all attempts at one request.

        Raises:
            BudgetError: the ledger refuses the charge, or the method asks for more than it reserved.
        """
        charge = charge or (loss if isinstance(loss, Charge) else charge_for(loss))
        noise = DrawnEntropy(self.entropy)
        return self._settle(
            request,
            charge,
            lambda: run(Session(self._tallies, purse=Purse(charge), entropy=noise)),
            drawn=lambda: noise.drawn,
            statement=promise(loss, self.domain.unit),
            parameters={**request.parameters, "loss": canonical.loss(loss)},
            retry_key=retry_key,
        )

    def disclose(
        self, request: Request, run: Callable[[Encoded], Payload], *, statement: str, retry_key: str | None = None
    ) -> Settled:
        """Release something exact, with no differential privacy, and write so in the journal.

        ``statement`` says what is promised instead: quasi-identifiers, criterion, attacker, suppression, loss.
        """
        return self._settle(
            request,
            None,
            lambda: run(self.encoded),
            drawn=lambda: True,
            statement=f"no DP guarantee: {statement}",
            parameters=request.parameters,
            retry_key=retry_key,
        )

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.doors.Doors.measure`; one journal entry."""
        mechanisms = noises(self.domain, questions, loss, shares)
        parameters = {
            "questions": [canonical.question(asked) for asked in questions],
            "shares": None if shares is None else [str(share) for share in shares],
        }
        settled = self.release(
            Request("vault", "measure", parameters, raw=beyond_bounds(questions)),
            loss,
            lambda doors: {
                str(index): measurement.values
                for index, measurement in enumerate(doors.measure(questions, loss, shares=shares))
            },
        )
        return tuple(
            Measurement(asked, settled.payload[str(index)], noise)
            for index, (asked, noise) in enumerate(zip(questions, mechanisms, strict=True))
        )

    def select(self, scores: Scores, loss: Loss) -> int:
        """See :meth:`sfumato.vault.doors.Doors.select`; one journal entry."""
        mechanism = chooser(self.domain, scores, loss)  # refuses what cannot be computed, before anything is charged
        charge = selection_charge(mechanism, loss)
        request = Request("vault", "select", {"scores": canonical.question(scores)})
        settled = self.release(request, loss, lambda doors: {"index": doors.select(scores, loss)}, charge=charge)
        return int(settled.payload["index"])

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """See :meth:`sfumato.vault.doors.Doors.threshold`; one journal entry."""
        self.refuse_keys(columns)
        asked = {"columns": list(columns), "of": canonical.loss(loss)}
        request = Request("vault", "threshold", asked, raw=columns)
        charge = StabilityThreshold.for_loss(loss, keys_per_unit=self.domain.unit.rows).charge

        def run(doors: Doors) -> Payload:
            found = doors.threshold(columns, loss)
            units = np.asarray(found["units"].to_numpy(), dtype=np.int64)
            return {"keys": [found[column].to_pylist() for column in columns], "units": units}

        payload = self.release(request, charge, run).payload
        return pa.table(
            {column: pa.array(keys, pa.string()) for column, keys in zip(columns, payload["keys"], strict=True)}
            | {"units": pa.array(payload["units"])}
        )

    @property
    def _accepted(self) -> JSON:
        """Who accepted the description that the release rests on, as the journal keeps it; None: nobody."""
        accepted = self.domain.accepted_by
        return None if accepted is None else {"by": accepted.by, "at": accepted.at}

    def _settle(
        self,
        request: Request,
        charge: Charge | None,
        compute: Callable[[], Payload],
        *,
        drawn: Callable[[], bool],
        statement: str,
        parameters: Mapping[str, Any],
        retry_key: str | None,
    ) -> Settled:
        question = Question(
            family=request.family,
            method=request.method,
            parameters={**parameters, "domain": self.domain.hash},
            dataset_version=(self.encoded.version if request.raw is None else self.encoded.version_with(request.raw)),
        )
        receipt = self.ledger.release(
            question,
            charge,
            lambda: encode(compute()),
            drawn=drawn,
            analyst=self.analyst,
            retry_key=retry_key,
            statement=statement,
            unit=self.domain.unit,
            details=({"asked": request.words} if request.words else {}) | {"accepted": self._accepted},
        )
        answer = _answered(receipt)
        return Settled(
            payload=decode(answer),
            digest=hashlib.sha256(answer).hexdigest(),
            guarantee=statement,
            cost=billed(receipt, charge),
            provenance={
                "family": request.family,
                "method": request.method,
                "parameters": dict(parameters),
                "domain": self.domain.hash,
                "unit": str(self.domain.unit),
                "journal_entry": receipt.number,
                "sfumato": _version(),
            },
        )


@cache  # reading a package's metadata takes as long as answering
def _version() -> str:
    return version("sfumato")


def _answered(receipt: Receipt) -> bytes:
    if receipt.answer is None:
        raise LedgerError("the ledger returned a release without its answer", culprit=receipt.number)
    return receipt.answer
