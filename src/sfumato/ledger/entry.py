"""Queries in canonical form, and the journal's entries, each bound to all earlier ones by a hash."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from sfumato.domain import Unit
from sfumato.errors import LossError
from sfumato.ledger.account import charge_text, refuse_damaged, unit_text
from sfumato.privacy.loss import Charge
from sfumato.strict_documents import JSON, canonical

ADD_REMOVE = "add/remove"  # neighboring tables differ by the presence of one unit
_LONGEST = 200  # characters of parameters in a line of the journal

RENAMED: Final = {"aim": "batched", "annealed": "aim"}
"""Names of methods of synthesis in older ledgers and files, with their names in commands.

The published AIM is recorded as ``aim-2022``.  So an entry ``aim`` is always by the two-round method, once called so.
"""


def method_title(method: str) -> str:
    """Return a recorded method in words, with its name in commands if that is another one.

    >>> method_title("aim"), method_title("mst"), method_title("related")
    ('batched (recorded as aim)', 'mst', 'linked tables')
    """
    if method == "related":
        return "linked tables"
    return f"{RENAMED[method]} (recorded as {method})" if method in RENAMED else method


def system_user() -> str:
    """Return the name of the system's user who runs this program."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the user of a container may have no name
        return f"user {os.getuid()}"


def digest(value: JSON) -> str:
    """Return the SHA-256 of the canonical form, hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _digest_of(*parts: str) -> str:
    """Return the digest of a list, from the canonical forms of its parts."""
    return hashlib.sha256(f"[{','.join(parts)}]".encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    """A query to one version of one dataset.

    ``dataset_version`` is the number of a declared version of the data.  ``parameters`` hold everything that decides
    the distribution of the answer, with the loss, in canonical form (sorted attributes, a normalized predicate). They
    are copied, so later changes to the argument do not change the query.

    Raises:
        InputError: a parameter that is no JSON value.

    >>> question = Question("query", "count", {"where": None, "epsilon": "1/10"}, "1")
    >>> question == Question("query", "count", {"epsilon": "1/10", "where": None}, "1")
    True
    >>> len(question.key)
    64
    """

    family: str
    method: str
    parameters: Mapping[str, JSON]
    dataset_version: str
    _parameters: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parameters", canonical(self.parameters))
        object.__setattr__(self, "parameters", json.loads(self._parameters))

    def __hash__(self) -> int:
        return hash(self.to_json)

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Read the result of :attr:`to_json`."""
        return cls(**json.loads(text))

    @cached_property
    def to_json(self) -> str:
        """The canonical form of the question."""
        return (
            f'{{"dataset_version":{canonical(self.dataset_version)},"family":{canonical(self.family)},'
            f'"method":{canonical(self.method)},"parameters":{self._parameters}}}'
        )

    @cached_property
    def key(self) -> str:
        """The SHA-256 of :attr:`to_json`, hexadecimal."""
        return hashlib.sha256(self.to_json.encode()).hexdigest()


def journalled_version(secret: str, content: str) -> str:
    """Digest the content of a version under a secret, so that no one else can recompute it.

    A plain digest would confirm a guess of the whole table to every reader of the journal.

    Args:
        secret: the secret of the dataset, drawn when the dataset was entered.
        content: a name of all rows and columns.
    """
    return hmac.digest(bytes.fromhex(secret), content.encode(), "sha256").hex()


def sealed(number: int, digest: str) -> str:
    """Return a digest for the journal: equal contents of two versions have different ones."""
    return hashlib.sha256(f"{number} {digest}".encode()).hexdigest()


class Kind(StrEnum):
    """The kind of an event that an entry records."""

    RELEASE = "release"  # charged to the dataset, and to the first analyst
    REPEAT = "repeat"  # a stored release shown to another analyst: charged to that analyst only
    CAP = "cap"  # a steward set or lifted the cap of an analyst: no charge
    RETRY = "retry"  # a process died before the answer, so the release is computed once more without a charge
    VERSION = "version"  # the owner declared a version of the data: no charge
    FAILED = "failed"  # noise was drawn for a release and no answer stored: it stays charged and is never answered


@dataclass(frozen=True)
class StoredAnswer:
    """A stored answer to a question, with the number of its release in the journal."""

    question: Question
    number: int
    body: bytes


@dataclass(frozen=True)
class Event:
    """An event, before it has a number in the journal.

    ``charge`` is None if the release has no differential privacy guarantee, or nothing was released.  A charge is
    stated for ``unit`` under the relation ``neighbours``, and ``grid_charge`` is the amount that accounts add up.
    Entries of early ledgers have none of the three.  ``fixes_unit`` is true if the dataset had no unit before.

    Raises:
        InputError: details that are no JSON value.
        LossError: a negative charge.
    """

    kind: Kind
    question: Question
    charge: Charge | None
    analyst: str | None
    statement: str
    details: JSON
    unit: Unit | None = None
    neighbours: str | None = None
    grid_charge: Charge | None = None
    fixes_unit: bool = False

    def __post_init__(self) -> None:
        if self.details is not None:
            object.__setattr__(self, "details", json.loads(self.details_text))
        amounts = () if self.charge is None else (self.charge.epsilon, self.charge.rho, self.charge.delta)
        if any(each is not None and each.numerator < 0 for each in amounts):
            raise LossError("a charge is never negative", culprit=self.charge)

    def stating(self, neighbours: str, grid_charge: Charge, *, fixes_unit: bool) -> Event:
        """Return the same event with the fields that state its charge."""
        return replace(self, neighbours=neighbours, grid_charge=grid_charge, fixes_unit=fixes_unit)

    @cached_property
    def stated(self) -> dict[str, JSON]:
        """The fields that state the charge; none in old entries."""
        fields: dict[str, JSON] = {}
        if self.unit is not None:
            fields["unit"] = unit_text(self.unit)
        if self.neighbours is not None:
            fields["neighbours"] = self.neighbours
        if self.grid_charge is not None:
            fields["counted"] = charge_text(self.grid_charge)
        if self.fixes_unit:
            fields["fixes_unit"] = True
        return fields

    @cached_property
    def details_text(self) -> str:
        """The canonical form of the details."""
        return canonical(self.details)

    @cached_property
    def stated_text(self) -> str | None:
        """The canonical form of :attr:`stated`; None if it is empty."""
        return canonical(self.stated) if self.stated else None

    @cached_property
    def charge_text(self) -> str:
        """The canonical form of the charge."""
        return "null" if self.charge is None else canonical(charge_text(self.charge))

    @cached_property
    def key(self) -> str:
        """The name of the release: one question at one charge.  Another loss makes another release."""
        return _digest_of(canonical(self.question.key), self.charge_text)


@dataclass(frozen=True)
class Entry:
    """An event in its place: ``number`` counts from 1 within the dataset, ``time`` is UTC in ISO 8601."""

    number: int
    time: str
    event: Event
    previous: str
    hash: str

    @property
    def kind(self) -> Kind:
        """The kind of the event."""
        return self.event.kind

    @property
    def family(self) -> str:
        """The family of the method: query, synthesize, anonymize, local."""
        return self.event.question.family

    @property
    def method(self) -> str:
        """The method of the family."""
        return self.event.question.method

    @property
    def title(self) -> str:
        """The family and the method in words."""
        return f"{self.family} {method_title(self.method)}"

    @property
    def question(self) -> Question:
        """The question of the event."""
        return self.event.question

    @property
    def charge(self) -> Charge | None:
        """The exact charge; None if nothing with a differential privacy guarantee was released."""
        return self.event.charge

    @property
    def unit(self) -> Unit | None:
        """The unit of the charge; None if nothing was charged, and in entries of early ledgers."""
        return self.event.unit

    @property
    def neighbours(self) -> str | None:
        """The relation of the tables that the charge compares."""
        return self.event.neighbours

    @property
    def statement(self) -> str:
        """The guarantee in words."""
        return self.event.statement

    @property
    def asked(self) -> str:
        """The query in words: from its details, or else its short parameters."""
        match self.event.details:
            case {"asked": str(words)}:
                return words
            case _ if self.kind in (Kind.CAP, Kind.VERSION):
                return self.statement
            case _:
                return _short_parameters(self.question)

    @property
    def accepted(self) -> str | None:
        """The person who accepted the domain of a release, and the time; "nobody" if its file was edited by hand.

        None if the journal does not say, such as in entries of other kinds.
        """
        match self.event.details:
            case {"accepted": {"by": str(by), "at": str(at)}}:
                return f"{by}, {at}"
            case {"accepted": None}:
                return "nobody"
            case _:
                return None

    @property
    def confirmed(self) -> str | None:
        """The findings that were confirmed with the acceptance, and the state of the draft; None if unknown."""
        match self.event.details:
            case {"accepted": {"confirmed": list(kinds)}}:
                words = f"confirmed {', '.join(map(str, kinds))}"
            case {"accepted": {"edited": bool()}}:
                words = "nothing to confirm"
            case _:
                return None
        match self.event.details:
            case {"accepted": {"edited": True}}:
                return f"{words}; the draft was edited"
            case {"accepted": {"edited": False}}:
                return f"{words}; the draft was not edited"
            case _:
                return words

    @property
    def analyst(self) -> str | None:
        """The analyst of the request, if the ledger has analysts."""
        return self.event.analyst


@dataclass(frozen=True)
class DataVersion:
    """A declared version.

    Attributes:
        number: counts the versions of the dataset from 1.
        time: when it was declared, UTC in ISO 8601.
        declared_by: the name of who declared it.
        digest: a digest of the content under the ledger's secret and the number, hexadecimal.
        files: such a digest of the bytes of the files in which it was; empty if there were no files.
    """

    number: int
    time: str
    declared_by: str
    digest: str
    files: str

    @classmethod
    def from_entry(cls, entry: Entry) -> DataVersion:
        """Return the version that an entry declares."""
        parameters = entry.question.parameters
        with refuse_damaged("an entry"):
            number, files = int(str(parameters["number"])), str(parameters.get("files", ""))
            return cls(number, entry.time, str(parameters["by"]), str(parameters["digest"]), files)


def _short_parameters(question: Question) -> str:
    parameters = {
        name: value for name, value in question.parameters.items() if name not in ("domain", "loss", "shares")
    }
    plain = {name: value for name, value in parameters.items() if isinstance(value, str | int | float)}
    plain |= {
        name: ", ".join(map(str, value))
        for name, value in parameters.items()
        if isinstance(value, list) and value and all(isinstance(each, str | int | float) for each in value)
    }
    text = "; ".join(f"{name} {plain[name]}" for name in parameters if name in plain)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def entry_hash(previous: str, number: int, time: str, event: Event) -> str:
    """Return the SHA-256 over the previous hash and all fields of an entry."""
    parts = [
        canonical(previous),
        str(number),
        canonical(time),
        canonical(event.kind.value),
        canonical(event.question.to_json),
        event.charge_text,
        canonical(event.analyst),
        canonical(event.statement),
        event.details_text,
    ]
    return _digest_of(*parts, *([] if event.stated_text is None else [event.stated_text]))


def answer_hash(previous: str, place: int, number: int, time: str, *, bound: str | None, body: bytes) -> str:
    """Return the SHA-256 over the previous hash and all fields of a stored answer.

    Args:
        previous: the hash of the entry, or the answer, that was written before it.
        place: the number of the answer.
        number: the number of the entry that it answers.
        time: when it was stored.
        bound: when it was bound, if an early ledger stored it without a hash; None otherwise.
        body: the answer.
    """
    times = f"{canonical(time)},{'null' if bound is None else canonical(bound)}"
    text = f'["answer","{previous}","{place}","{number}",{times},"{hashlib.sha256(body).hexdigest()}"]'
    return hashlib.sha256(text.encode()).hexdigest()


def genesis(dataset: str, limit_text: str, opened: str, unit: Unit | None) -> str:
    """Return the hash before the first entry: of name, limit and unit of the dataset, and the time of its creation."""
    return digest([dataset, limit_text, opened, *([] if unit is None else [unit_text(unit)])])
