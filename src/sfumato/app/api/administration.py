"""The requests of stewards: drafts, acceptances, datasets, caps, terms and keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sfumato.app.api.questions import LossFields, Name, StrictModel
from sfumato.privacy.loss import exact

LimitText = Annotated[str, Field(min_length=1, max_length=200, examples=["1", "1,1e-9", "rho=0.5"])]


class DatasetRequest(StrictModel):
    """A dataset to register: the place of its table, its accepted domain, and its privacy budget.

    The limit may be a budget per month, such as ``0.5 a month for 12 months``.  A schema instead of the domain
    registers several tables in a folder or a database.
    """

    name: Name
    source: Annotated[str, Field(min_length=1, max_length=2000)]
    domain: dict[str, Any]
    limit: LimitText
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    discoverable: Annotated[list[Name], Field(max_length=64)] = []
    second_budget: bool = False  # confirms that a table may be registered under a second name


class DraftRequest(StrictModel):
    """A table, a folder of tables or a database to describe.  ``unit`` and ``name`` are for several tables."""

    source: Annotated[str, Field(min_length=1, max_length=2000)]
    unit: Name | None = None
    name: Name | None = None


class AcceptanceRequest(StrictModel):
    """A domain or a schema to accept unchanged.  If ``source`` is given, risks are also looked for in the tables.

    ``confirm`` names the kinds of findings that the steward confirms.
    """

    domain: dict[str, Any]
    source: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    confirm: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20)] = []


class CapRequest(StrictModel):
    """The cap of an analyst on a dataset.  No loss lifts the cap, and a loss of 0 shuts the analyst out."""

    analyst: Name
    loss: LossFields | None = None

    @property
    def shuts_out(self) -> bool:
        """True if the analyst can spend nothing."""
        amounts = {} if self.loss is None else self.loss.model_dump(exclude_none=True)
        return bool(amounts) and not any(exact(amount) for amount in amounts.values())


class TermsRequest(StrictModel):
    """The terms of a dataset.  Limits are in the measure of its own limit."""

    granted_only: bool = False
    default_cap: LimitText | None = None
    most: LimitText | None = None
    approval_above: LimitText | None = None


class GrantRequest(StrictModel):
    """An analyst to let in or to shut out."""

    analyst: Name
    shut_out: bool = False


class KeyRequest(StrictModel):
    """A key to issue."""

    name: Name
    scope: Literal["steward", "analyst", "officer", "monitor"]
    days: Annotated[int, Field(ge=1, le=3650)]


class RotationRequest(StrictModel):
    """A key that replaces another.  The old key works for some more hours."""

    overlap_hours: Annotated[int, Field(ge=0, le=24 * 30)] = 0


class RenameRequest(StrictModel):
    """A new name for a dataset."""

    name: Name


class RetirementRequest(StrictModel):
    """The end of all releases of a dataset, or its withdrawal."""

    retired: bool = True
