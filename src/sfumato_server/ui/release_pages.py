"""The pages of tables that are released in the background: their forms, their progress and their files.

A synthetic table that would take more than a tenth of the rest of the budget needs a confirmation, as a question does.
An anonymized table takes nothing of the budget.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.api.methods import AnonymizationMethod, CountOption
from sfumato.app.api.questions import LossFields, validate_fields
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields, linked_tables
from sfumato.errors import BudgetError, InputError
from sfumato.privacy.loss import Epsilon
from sfumato.strict_documents import read_yaml, read_yaml_texts
from sfumato_server import release_jobs
from sfumato_server.access import Anyone, CurrentService, Steward
from sfumato_server.datasets import summary
from sfumato_server.problems import problem
from sfumato_server.registry import Key
from sfumato_server.ui.budgets import Accounts, Spending, gauge, refused_loss, set_delta
from sfumato_server.ui.dataset_pages import pairs
from sfumato_server.ui.question_form import Short, stated_loss
from sfumato_server.ui.rendering import REFUSALS, fragment, page

_MAX_YAML = 20_000  # characters

Chosen = Annotated[list[Short], Field(max_length=64)]

router = APIRouter(include_in_schema=False)


class SynthesisForm(BaseModel):
    """The form of a synthetic table, or with ``children`` that of linked tables.

    ``confirmed`` is the cost that was confirmed, as the page stated it; empty for none.
    """

    method: Literal["auto", "histogram", "related"] = "auto"
    attributes: Chosen = []
    every: bool = False
    zeros: Annotated[str, Field(max_length=_MAX_YAML)] = ""
    fresh: bool = False
    children: Annotated[str, Field(max_length=_MAX_YAML)] = ""
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""
    confirmed: Short = ""

    def read(self) -> SynthesisFields:
        """Return the request as HTTP takes it.

        Raises:
            InputError: a histogram has no attributes, or both some and all.
        """
        if self.method == "histogram" and self.every == bool(self.attributes):
            raise InputError("tick the columns of the histogram, or 'all of them'")
        rules = self._rules()
        fields: dict[str, Any] = {"method": self.method, "loss": self.loss(), "zeros": rules}
        fields |= {"attributes": self.attributes} if self.method == "histogram" else {}  # else the form hides them
        fields |= {"children": self._children()} if self.children.strip() else {}
        return validate_fields(SynthesisFields, fields | ({"reuse": False} if self.fresh else {}))

    def loss(self) -> LossFields:
        """Return the loss of the table."""
        return stated_loss(self.epsilon, self.delta, self.rho)

    def sent_fields(self) -> dict[str, Any]:
        """Return the fields that were filled in, without the confirmation."""
        return self.model_dump(exclude_defaults=True, exclude={"confirmed"}) | {"method": self.method}

    def _children(self) -> list[dict[str, object]]:
        """Return the tables with several rows per person, from YAML.

        Raises:
            InputError: the YAML is not a list of tables.
        """
        tables = read_yaml(self.children, name="the list of tables")
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise InputError("tables are a list in YAML, such as '- {table: visits, order: admitted, most: 4}'")
        return tables

    def _rules(self) -> list[dict[str, object]]:
        """Return the rules, from YAML.

        Raises:
            InputError: the YAML is not a list of rules.
        """
        if not self.zeros.strip():
            return []
        rules = read_yaml_texts(self.zeros, name="the list of rules")
        if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
            raise InputError("rules are a list in YAML, such as '- {if: {age: 0..14}, then: {married: [no]}}'")
        return rules


class AnonymizationForm(BaseModel):
    """The form of an anonymized table; ``criteria`` has one per line."""

    method: AnonymizationMethod = AnonymizationMethod.OPTIMAL
    quasi: Chosen = []
    k: Short = ""
    suppression: Short = "0"
    criteria: Annotated[str, Field(max_length=5000)] = ""
    count: CountOption = CountOption.UNITS

    def read(self) -> AnonymizeRequest:
        """Return the request as HTTP takes it.

        Raises:
            InputError: a field is empty or invalid.
        """
        if not self.quasi:
            raise InputError("tick the quasi-identifiers: the columns that other people may know about a person")
        if not (self.k.strip().isascii() and self.k.strip().isdigit() and int(self.k)):
            raise InputError("write k, the smallest number of units that look alike, as a whole number such as 5")
        criteria = [line.strip() for line in self.criteria.splitlines() if line.strip()]
        fields = self.model_dump(include={"method", "quasi", "suppression", "count"})
        return validate_fields(AnonymizeRequest, {**fields, "k": int(self.k), "criteria": criteria})


@router.get("/datasets/{name}/releases", response_class=HTMLResponse)
def forms(name: str, key: Anyone, service: CurrentService) -> Response:
    """Show the forms for a release."""
    return _forms(name, key, service)


@router.post("/datasets/{name}/releases", response_class=HTMLResponse)
def synthesize(name: str, form: Annotated[SynthesisForm, Form()], key: Anyone, service: CurrentService) -> Response:
    """Start the release of a synthetic table; ask first if it is expensive."""
    try:
        order = release_jobs.synthesis_order(name, form.read(), key, service)
        account = Accounts.for_key(service, order.loaded, key).tightest
        request = order.loaded.dataset.name, key.name, form.sent_fields()
        spending = Spending(form.loss().loss(), account, request)
        if not (spending.is_confirmed(form.confirmed) or release_jobs.is_repeat(order, service)):
            return _forms(name, key, service, synthesis=form, spending=spending)
        return _wait_for(release_jobs.start(service, order)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, synthesis=form, error=error)


@router.post("/datasets/{name}/anonymizations", response_class=HTMLResponse)
def anonymize(name: str, form: Annotated[AnonymizationForm, Form()], key: Steward, service: CurrentService) -> Response:
    """Start the release of an anonymized table."""
    try:
        return _wait_for(release_jobs.anonymization(name, form.read(), key, service)["job"])
    except REFUSALS as error:
        return _forms(name, key, service, anonymization=form, error=error)


@router.get("/releases/{job_id}", response_class=HTMLResponse)
def wait(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """Show the progress of a release; the page refreshes it."""
    return page("release.html.j2", key=key, job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/progress", response_class=HTMLResponse)
def progress(job_id: str, key: Anyone, service: CurrentService) -> Response:
    """Render the part of the page that changes."""
    return fragment("progress.html.j2", job=release_jobs.progress(job_id, key, service))


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, service: CurrentService, form: release_jobs.Form = "csv") -> Response:
    """Send the rows as a file."""
    return release_jobs.rows(job_id, key, service, form)


def _wait_for(job_id: str) -> Response:
    return RedirectResponse(f"/releases/{job_id}", 303)


def _forms(  # noqa: PLR0913  (what the page shows beside the forms)
    name: str,
    key: Key,
    service: CurrentService,
    *,
    synthesis: SynthesisForm | None = None,
    anonymization: AnonymizationForm | None = None,
    spending: Spending | None = None,
    error: Exception | None = None,
) -> Response:
    """Render the forms as they were filled in, with a refusal or the request to confirm the cost."""
    loaded = service.check_access(name, key)
    content = None if error is None else problem(error)
    if content is not None and synthesis is not None and isinstance(error, BudgetError):
        content |= refused_loss(error, synthesis.loss(), Accounts.for_key(service, loaded, key))
    synthesis = SynthesisForm() if synthesis is None else synthesis
    return page(
        "releases.html.j2",
        key=key,
        attributes=loaded.domain.names if loaded.schema is None else (),
        linked=() if loaded.schema is None else [each.table.name for each in linked_tables(loaded.schema, ()).children],
        dataset=summary(loaded),
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        delta=set_delta(loaded.ledger.limit),
        gauge=gauge(loaded.ledger.remaining()),
        made=release_jobs.earlier_releases(loaded, key, service),
        synthesis=synthesis,
        anonymization=AnonymizationForm() if anonymization is None else anonymization,
        spending=spending,
        own=None if spending is None else gauge(spending.account),
        fields=[] if spending is None else [*pairs(synthesis.sent_fields()), ("confirmed", spending.statement)],
        action=f"/datasets/{name}/releases",
        what="release",
        button="Make it and spend it",
        remedy=" in the form below",
        expected=(),
        problem=content,
        status=200 if content is None else content["status"],
    )
