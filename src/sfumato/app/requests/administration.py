"""What stewards ask for: a dataset to register, an analyst's cap, a key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sfumato.app.requests.fields import LossFields, Name, StrictModel


class DatasetRequest(StrictModel):
    """A dataset to register: where its table lies, its accepted domain, and the most that may ever be released."""

    name: Name
    source: Annotated[str, Field(min_length=1, max_length=2000)]
    domain: dict[str, Any]
    limit: Annotated[str, Field(min_length=1, max_length=200, examples=["1", "1,1e-9", "rho=0.5"])]
    rows: Annotated[int, Field(ge=1, le=10**15)] | None = None
    discoverable: Annotated[list[Name], Field(max_length=64)] = []
    second_budget: bool = False  # confirms that a table may be registered under a second name


class CapRequest(StrictModel):
    """What an analyst may spend of a dataset; no loss lifts the cap."""

    analyst: Name
    loss: LossFields | None = None


class KeyRequest(StrictModel):
    """A key to issue."""

    name: Name
    scope: Literal["steward", "analyst"]
    days: Annotated[int, Field(ge=1, le=3650)]
