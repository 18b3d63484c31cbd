"""Forms for tables that are made in the background, and the page on which to wait for one."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.http import release_jobs
from sfumato.app.http.access import Anyone, Steward, Worker
from sfumato.app.http.datasets import summary
from sfumato.app.http.problems import problem
from sfumato.app.requests.fields import LossFields
from sfumato.app.requests.releases import AnonymizeRequest, SynthesisFields
from sfumato.app.ui.question_pages import Short
from sfumato.app.ui.rendering import REFUSALS, fragment, gauge, page
from sfumato.errors import InputError
from sfumato.ledger.registry import Key
from sfumato.privacy.loss import Epsilon

router = APIRouter(include_in_schema=False)

Chosen = Annotated[list[Short], Field(max_length=64)]


class SynthesisForm(BaseModel):
    """What the form for a synthetic table sends."""

    method: Literal["auto", "histogram"]
    attributes: Chosen = []
    every: bool = False
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""

    def read(self) -> SynthesisFields:
        """The request as HTTP takes it.

        Raises:
            InputError: a histogram of nothing that was chosen, or of all attributes and of some.
        """
        if self.method == "histogram" and self.every == bool(self.attributes):
            raise InputError("tick the attributes of the histogram, or 'all of them'")
        loss = LossFields(epsilon=self.epsilon or None, delta=self.delta or None, rho=self.rho or None)
        return SynthesisFields(method=self.method, loss=loss, attributes=self.attributes)


class AnonymizationForm(BaseModel):
    """What the form for an anonymised table sends; ``criteria`` are one a line."""

    method: Literal["optimal", "samarati", "mondrian", "k-member"]
    quasi: Annotated[Chosen, Field(min_length=1)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    suppression: Short = "0"
    criteria: Annotated[str, Field(max_length=5000)] = ""

    def read(self) -> AnonymizeRequest:
        """The request as HTTP takes it."""
        criteria = [line.strip() for line in self.criteria.splitlines() if line.strip()]
        told = self.model_dump(include={"method", "quasi", "k", "suppression"})
        return AnonymizeRequest.model_validate({**told, "criteria": criteria})


@router.get("/datasets/{name}/releases", response_class=HTMLResponse)
def forms(name: str, key: Anyone, worker: Worker) -> Response:
    """Ask for a table."""
    return _forms(name, key, worker)


@router.post("/datasets/{name}/releases", response_class=HTMLResponse)
def synthesize(name: str, form: Annotated[SynthesisForm, Form()], key: Anyone, worker: Worker) -> Response:
    """Start a synthetic table."""
    try:
        return _waiting(release_jobs.release(name, form.read(), key, worker)["job"])
    except REFUSALS as error:
        return _forms(name, key, worker, error)


@router.post("/datasets/{name}/anonymizations", response_class=HTMLResponse)
def anonymize(name: str, form: Annotated[AnonymizationForm, Form()], key: Steward, worker: Worker) -> Response:
    """Start an anonymised table."""
    try:
        return _waiting(release_jobs.anonymization(name, form.read(), key, worker)["job"])
    except REFUSALS as error:
        return _forms(name, key, worker, error)


@router.get("/releases/{job_id}", response_class=HTMLResponse)
def wait(job_id: str, key: Anyone, worker: Worker) -> Response:
    """How far a release is; the page looks again by itself."""
    return page("release.html.j2", key=key, job=release_jobs.progress(job_id, key, worker))


@router.get("/releases/{job_id}/progress", response_class=HTMLResponse)
def progress(job_id: str, key: Anyone, worker: Worker) -> Response:
    """The part of the page that changes."""
    return fragment("progress.html.j2", job=release_jobs.progress(job_id, key, worker))


def _waiting(job_id: str) -> Response:
    return RedirectResponse(f"/releases/{job_id}", 303)


def _forms(name: str, key: Key, worker: Worker, error: Exception | None = None) -> Response:
    loaded = worker.loaded(name)
    found = None if error is None else problem(error)
    return page(
        "releases.html.j2",
        key=key,
        dataset=summary(loaded),
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        problem=found,
        status=200 if found is None else found["status"],
    )
