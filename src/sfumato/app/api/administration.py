"""What stewards ask for: a draft to be made or accepted, a dataset to register, an analyst's cap, a key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sfumato.app.api.questions import LossFields, Name, StrictModel
from sfumato.privacy.loss import exact

LimitText = Annotated[str, Field(min_length=1, max_length=200, examples=["1", "1,1e-9", "rho=0.5"])]


class DatasetRequest(StrictModel):
    """A dataset to register: where its table lies, its accepted domain, and the most that may ever be released.

    The limit may be one of each month, such as ``0.5 a month for 12 months``.  A schema in the place of the domain
    registers several tables, which lie in a folder or a database.
    """

    name: Name
    source: Annotated[str, Field(min_length=1, max_length=2000)]
    domain: dict[str, Any]
    limit: LimitText
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    discoverable: Annotated[list[Name], Field(max_length=64)] = []
    second_budget: bool = False  # confirms that a table may be registered under a second name


class DraftRequest(StrictModel):
    """A table, a folder of tables or a database to be described; ``unit`` and ``name`` are of several tables."""

    source: Annotated[str, Field(min_length=1, max_length=2000)]
    unit: Name | None = None
    name: Name | None = None


class AcceptanceRequest(StrictModel):
    """A domain or a schema to be accepted as it stands; with its ``source``, risks are looked for in the tables."""

    domain: dict[str, Any]
    source: Annotated[str, Field(min_length=1, max_length=2000)] | None = None


class CapRequest(StrictModel):
    """What an analyst may spend of a dataset; no loss lifts the cap, and one of 0 shuts the analyst out."""

    analyst: Name
    loss: LossFields | None = None

    @property
    def shuts_out(self) -> bool:
        """Whether nothing may be spent."""
        amounts = {} if self.loss is None else self.loss.model_dump(exclude_none=True)
        return bool(amounts) and not any(exact(amount) for amount in amounts.values())


class TermsRequest(StrictModel):
    """On which terms a dataset is asked; limits are in the measure of its own limit."""

    granted_only: bool = False
    default_cap: LimitText | None = None
    most: LimitText | None = None
    approval_above: LimitText | None = None


class GrantRequest(StrictModel):
    """An analyst to be let in, or shut out."""

    analyst: Name
    shut_out: bool = False


class KeyRequest(StrictModel):
    """A key to issue."""

    name: Name
    scope: Literal["steward", "analyst", "monitor"]
    days: Annotated[int, Field(ge=1, le=3650)]


class RotationRequest(StrictModel):
    """A key to issue in the place of another, which goes on working for some hours."""

    overlap_hours: Annotated[int, Field(ge=0, le=24 * 30)] = 0


class RenameRequest(StrictModel):
    """What a dataset is to be called."""

    name: Name


class RetirementRequest(StrictModel):
    """Whether nothing more is to be released of a dataset."""

    retired: bool = True
