"""The measurement interface: the operations, requests and results of a method on a protected table.

A release stores named arrays and JSON values in the ledger, as bytes that load without code.  The bytes are a line of
JSON and then the arrays, compressed if they are many.  Encoding a few numbers takes microseconds.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar, runtime_checkable

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.unit import Acceptance
from sfumato.errors import InputError, LedgerError, LossError
from sfumato.ledger.entry import RENAMED
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Loss, Number, Rho
from sfumato.strict_documents import read_json
from sfumato.vault.measurables import Counting, IntegerArray, Measurable, Measurement, StoredMarginal
from sfumato.vault.scores import Scores

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.domain.view import BoundedView

Payload: TypeAlias = Mapping[str, Any]
"""The stored result of a release: arrays and JSON values by name."""

_PLAIN, _COMPRESSED = b"p", b"z"
_MOST_BYTES = 1 << 36
_SMALL = 1 << 12  # bytes; compressing fewer saves no page of a database
_LEVEL = 3  # zlib's level: a tenth more bytes than its default over a million counts, in a third of the time
_ENCODER = json.JSONEncoder(allow_nan=False)

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Measures(Protocol):
    """Operations on a protected table, or on one derived from it.  Each call charges before it counts."""

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        ...

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """Return noisy answers to all measurements, together at ``loss``.

        Pure epsilon takes discrete Laplace noise of the question's L1 sensitivity; rho (and the rho that (epsilon,
        delta) admits) takes discrete Gaussian noise of its L2 sensitivity.  ``shares`` divide the loss over the
        questions (positive, summing to at most one).  Default: equal shares.
        """
        ...

    def generator(self) -> np.random.Generator:
        """Return a new generator to draw rows of public models: post-processing, never noise.

        The operating system seeds it; over a simulated table the seed of the simulation does.
        """
        ...


class Mechanisms(Measures, Protocol):
    """Operations on a protected table.  Each call charges its loss before it touches the data."""

    def stored_marginals(self) -> tuple[StoredMarginal, ...]:
        """Return noisy marginals of all rows from earlier releases of this version; their use is free."""
        ...

    def select(self, scores: Scores, loss: Loss) -> int:
        """Return the index of a candidate with nearly the largest score.

        The exact exponential mechanism (McSherry and Talwar 2007) has loss epsilon.  For rho it takes epsilon =
        sqrt(8 rho), because a bounded range of epsilon is epsilon^2/8-zCDP (Cesar and Rogers 2021).
        """
        ...

    def prepare(self, queries: Counting) -> Prepared:
        """Check counting queries once, for methods that choose among them and measure some of them many times.

        Nothing is counted or spent yet.  The result ends with the release.

        Raises:
            DomainError, QueryError, SizeError: the queries do not fit the domain, or could not be counted.
        """
        ...

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """Return values of undeclared text columns in enough units, with noisy numbers in column ``units``.

        The mechanism is the stability threshold (Korolova, Kenthapadi, Mishra, Ntoulas 2009).
        """
        ...


class Prepared(Protocol):
    """Counting queries that were checked once.  Each call charges its loss before it touches the data."""

    def select(self, answers: IntegerArray, loss: Loss, *, among: IntegerArray) -> int:
        """Return the index of a query with nearly the largest error.

        It is :meth:`Mechanisms.select` for :class:`sfumato.vault.scores.AbsoluteErrors` of the queries ``among``.

        Args:
            answers: public integers, one per query, also for queries that are no candidates.
            loss: the loss of this choice.
            among: indices of the candidates.

        Raises:
            BudgetError: the rest of the release's reservation is smaller than the loss.
            QueryError: ``answers`` are no such integers, or ``among`` no such indices.
        """
        ...

    def measure(self, query: int, loss: Loss) -> Measurement:
        """Return a noisy answer to the query at an index, like :meth:`Mechanisms.measure` for this query alone.

        Raises:
            BudgetError, QueryError: as for :meth:`select`.
        """
        ...


@dataclass(frozen=True)
class ReleaseRequest:
    """The identity of a release in the journal: equal requests for the same data are one release.

    Attributes:
        family: the family of the method.
        method: the name of the method in the journal.
        parameters: JSON values that hold everything that shapes the answer, except the loss.
        words: a description of the request for the journal; no part of its identity.
        former_method: the name of the method in older ledgers; a release that is stored under it is repeated.
        displaced_method: a name in older ledgers that looks like this method and was another one; a release that is
            stored under it is never repeated by this method.
    """

    family: str
    method: str
    parameters: Mapping[str, Any]
    words: str = field(default="", compare=False, repr=False)
    former_method: str = field(default="", compare=False, repr=False)
    displaced_method: str = field(default="", compare=False, repr=False)


def former_request(request: ReleaseRequest, former: Sequence[str], own: Sequence[str]) -> ReleaseRequest:
    """Return the request under the name that an older ledger has for its answer.

    Args:
        request: the request.
        former: the former names under which the ledger has an answer to it.
        own: the same for answers that the analyst received.

    Raises:
        InputError: the analyst received the answer of another method, which had the name of this one.
    """
    if request.former_method in former:
        return replace(request, method=request.former_method)
    if request.displaced_method in own:
        current = RENAMED[request.displaced_method]
        raise InputError(
            f"this ledger holds this release under the name {request.displaced_method!r}, which the method {current!r} "
            f"had; name {current!r} to repeat it at no cost, or change the request, for example its loss"
        )
    return request


@dataclass(frozen=True)
class ReleasedPayload:
    """A stored payload that may be shown.

    Attributes:
        payload: the arrays and JSON values by name.
        guarantee: the guarantee in words.
        cost: the privacy loss of this call in words.
        provenance: the request, domain, unit, journal entry and version of the program.
        digest: the SHA-256 of the stored bytes of the payload, in hexadecimal digits.
        view: the view of several tables that the payload describes; None if it describes one table.
        accepted: the acceptance of the description; None if it is unknown.
    """

    payload: dict[str, Any]
    guarantee: str
    cost: str
    provenance: Mapping[str, Any]
    digest: str
    view: BoundedView | None = None
    accepted: Acceptance | None = None


@runtime_checkable
class VaultInterface(Protocol):
    """A table behind mechanisms under one reserved loss, such as a vault."""

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        ...

    @property
    def limit(self) -> Loss | None:
        """The privacy budget, if it is known."""
        ...

    @property
    def view(self) -> BoundedView | None:
        """The view whose rows the table has; None if it is one table."""
        ...

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """See :meth:`sfumato.engine.port.Encoded.refuse_keys`."""
        ...

    def release(
        self,
        request: ReleaseRequest,
        loss: Loss | Charge,
        run: Callable[[Mechanisms], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,
    ) -> ReleasedPayload:
        """See :meth:`sfumato.vault.vault.Vault.release`."""
        ...


def loss_from_json(written: Mapping[str, str | None]) -> Loss:
    """Return the loss that :func:`sfumato.vault.release.loss_json` wrote."""
    match dict(written):
        case {"epsilon": str(epsilon), "delta": str(delta), **rest} if not rest:
            return EpsilonDelta(epsilon, delta)
        case {"epsilon": str(epsilon), **rest} if not rest:
            return Epsilon(epsilon)
        case {"rho": str(rho), **rest} if not rest:
            return Rho(rho)
        case _:
            raise ValueError(written)


class StatedLoss(TypedDict, total=False):
    """The keywords of a loss.  Numbers are read exactly: a float is the shortest decimal that prints it.

    Attributes:
        loss: the loss as one object, instead of the two numbers.
        epsilon: the epsilon of the release.  Smaller is more private and less accurate.
        delta: the delta that goes with ``epsilon``, such as 1e-9.  At the same epsilon, many measured tables have less
            noise with a delta, and a single count has more.
    """

    loss: Loss | None
    epsilon: Number | None
    delta: Number | None


_KEYWORDS = {"loss": "Loss | None", "epsilon": "Number | None", "delta": "Number | None"}


def stated_loss(stated: StatedLoss) -> Loss:
    """Return the loss that a caller states.

    Raises:
        LossError: no loss or several losses are stated, or a number is invalid.
        TypeError: the function has no such keyword.

    >>> stated_loss({"epsilon": 0.1}), stated_loss({"epsilon": "0.1", "delta": 1e-9})
    (Epsilon('0.1'), EpsilonDelta('0.1', '1e-09'))
    """
    if unknown := stated.keys() - _KEYWORDS.keys():
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    loss, epsilon, delta = stated.get("loss"), stated.get("epsilon"), stated.get("delta")
    if loss is not None and epsilon is None and delta is None:
        return loss
    if loss is not None or epsilon is None:
        raise LossError(
            "state a loss once: as loss=, or as epsilon= with or without delta=, such as epsilon=0.5, delta=1e-9; "
            "a loss is Epsilon(...), EpsilonDelta(..., ...) or Rho(...)",
            culprit=loss,
        )
    return Epsilon(epsilon) if delta is None else EpsilonDelta(epsilon, delta)


def states_loss(function: _Function) -> _Function:
    """Show the keywords of :class:`StatedLoss` in the signature of a function, instead of ``**stated``."""
    visible = signature(function)
    *others, _ = visible.parameters.values()
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _KEYWORDS.items()
    ]
    function.__signature__ = visible.replace(parameters=[*others, *keywords])  # type: ignore[attr-defined]
    return function


_VAULTS: set[type] = set()  # classes that passed the check


def refuse_no_vault(vault: object) -> None:
    """Refuse a value that is no vault, such as the path of a table.

    Raises:
        InputError: the value is no vault.
    """
    if type(vault) in _VAULTS:  # the check of every method takes longer than a plan
        return
    if isinstance(vault, VaultInterface):
        _VAULTS.add(type(vault))
    else:
        raise InputError(
            f"a method takes the vault that sf.open(table, domain=...) returns, not {type(vault).__name__}",
            culprit=vault,
        )


def encode(payload: Payload) -> bytes:
    """Return the bytes of a payload.

    Raises:
        ValueError: an array of Python objects, or a value that JSON does not know.

    >>> import numpy as np
    >>> decode(encode({"counts": np.arange(3), "method": "histogram"}))
    {'method': 'histogram', 'counts': array([0, 1, 2])}
    """
    arrays = {name: value for name, value in payload.items() if isinstance(value, np.ndarray)}
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("an array of Python objects cannot be stored")
    stored = {name: _narrow(array) for name, array in arrays.items()}
    head = {
        "values": {name: value for name, value in payload.items() if name not in arrays},
        "arrays": [
            [name, array.dtype.str, array.shape, *([] if (kind := stored[name].dtype) == array.dtype else [kind.str])]
            for name, array in arrays.items()
        ],
    }
    text = _ENCODER.encode(head)  # unsorted, because the order of columns matters
    body = b"".join([text.encode(), b"\n", *(array.tobytes() for array in stored.values())])
    return _COMPRESSED + zlib.compress(body, _LEVEL) if len(body) > _SMALL else _PLAIN + body


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return many integers in the narrowest type: that halves the time and size of their compression."""
    if array.dtype.kind != "i" or array.nbytes <= _SMALL:
        return array
    least, most = int(array.min()), int(array.max())
    kind = max(np.min_scalar_type(min(least, -1)), np.min_scalar_type(min(-most - 1, -1)))
    return array.astype(kind) if kind.itemsize < array.dtype.itemsize else array


_NEVER_STORED = "cOV"  # kinds of arrays: complex numbers, objects and raw bytes
_DAMAGED = (
    *(InputError, ValueError, TypeError, KeyError),
    *(AttributeError, RecursionError, OverflowError, zlib.error),
)


def decode(stored: bytes, *, most: int = _MOST_BYTES) -> dict[str, Any]:
    """Return the payload that ``encode`` stored, of at most ``most`` bytes.  The bytes are not trusted.

    Raises:
        LedgerError: the bytes are not a stored payload.
    """
    try:
        return _decoded(stored, most)
    except _DAMAGED as error:
        raise LedgerError("a stored answer cannot be read back; restore the ledger from a backup") from error


def _decoded(stored: bytes, most: int) -> dict[str, Any]:
    kind, body = stored[:1], stored[1:]
    if kind not in (_PLAIN, _COMPRESSED):
        raise ValueError
    if kind == _COMPRESSED:
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(body, most)
        if not unpacking.eof:  # truncated, or larger than any stored payload
            raise ValueError
    start = body.find(b"\n") + 1 or len(body)
    head = read_json(body[:start])
    payload: dict[str, Any] = dict(head["values"])
    for name, called, shape, *narrow in head["arrays"]:
        dtype = np.dtype(called)
        held = np.dtype(*narrow) if narrow else dtype
        if dtype.kind in _NEVER_STORED or (narrow and (dtype.kind, held.kind) != ("i", "i")):
            raise ValueError
        count = math.prod(shape)
        most -= count * dtype.itemsize
        if count < 0 or most < 0:
            raise ValueError
        flat = np.frombuffer(body, held, count=count, offset=start)
        start += flat.nbytes
        payload[name] = flat.reshape(shape).astype(dtype)  # a separate copy
    if start != len(body):
        raise ValueError
    return payload
