"""The application that uvicorn runs, one a worker process."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from sfumato.app.http import datasets, descriptions, operation, problems, release_jobs, stewards
from sfumato.app.http.access import CrossOrigin, KeyLookup, Pace, RequestGuard
from sfumato.app.http.notices import Notices
from sfumato.app.http.openid import Provider
from sfumato.app.http.problems import describe_itself, to_standard_error
from sfumato.app.http.processes import end_with_parent
from sfumato.app.http.service import Service
from sfumato.app.http.settings import Settings
from sfumato.app.http.work import Quotas
from sfumato.app.outbound import outbound

LEDGER = "SFUMATO_LEDGER"
_PATIENCE = 50_000  # new objects that wait to be looked through together
_ENTRANCES = 300  # keys and links a minute that one address may try, a sixth of them at once


def application() -> FastAPI:
    """The application over the database that the environment names: what each worker calls."""
    to_standard_error()
    end_with_parent()
    settings = Settings.of_environment()
    service = Service(
        os.environ[LEDGER],
        places=settings.places,
        table_bytes=settings.table_bytes,
        snapshots=settings.snapshots,
    )
    service.quotas = Quotas(settings.limits)
    reached = outbound(settings.webhook_ca_file, settings.webhook_proxy)
    made = create(service, settings, notices=Notices(service, webhook=settings.webhook, reached=reached))
    gc.collect()
    gc.freeze()  # what a worker begins with stays: looking through it for what nobody needs any more took a sixth
    gc.set_threshold(_PATIENCE)  # of the time of a question
    return made


def create(service: Service, settings: Settings | None = None, *, notices: Notices | None = None) -> FastAPI:
    """The application over a service, which tells notices while it runs."""
    from importlib.metadata import version

    from sfumato.app.ui import pages

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if notices is not None:
            notices.watch()
        yield
        if notices is not None:
            notices.end()
        service.close()

    app = FastAPI(title="Sfumato", version=version("sfumato"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.key_lookup = KeyLookup(service)
    app.state.readiness = operation.Readiness(service)
    settings = Settings() if settings is None else settings
    provider = settings.provider
    app.state.pace = Pace(settings.a_minute)
    app.state.base_url = settings.base_url
    app.state.provider = None if provider is None else Provider(provider, back=f"{settings.address}{pages.BACK}")
    app.state.entrance = Pace(_ENTRANCES)
    problems.install(app)
    for router in (datasets.router, descriptions.router, stewards.router, release_jobs.router, operation.router):
        app.include_router(router)
    pages.mount(app)

    describe_itself(app)
    if settings.origins:
        app.add_middleware(CrossOrigin, origins=settings.origins)
    app.add_middleware(RequestGuard)
    return app
