"""Every aggregate is in ``AGGREGATES``, and SQL, HTTP, the page and the documentation list exactly those."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import inspect
import pkgutil
import re
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.query.conftest import DOMAIN

from sfumato import query
from sfumato.app.api.questions import AggregateFields
from sfumato.domain import Domain, Unit
from sfumato.errors import QueryError
from sfumato.query import aggregates
from sfumato.query.aggregates import AGGREGATES, FORMS, Aggregate, AggregateForm, Takes
from sfumato.query.statements.select_statement import parse
from sfumato_server.ui import question_form

DOCS = Path(__file__).resolve().parents[2] / "docs"
PEOPLE = Domain(DOMAIN.attributes, unit=Unit("id", rows=2))
ALLOWED = {Takes.NOTHING: [None], Takes.ATTRIBUTE: [None, "age"], Takes.NUMBER: ["age"]}


def made(form: AggregateForm, of: str | None) -> Aggregate:
    """The aggregate of a form, with 0.9 for each parameter."""
    given = [] if form.takes is Takes.NOTHING else [of]
    return form.make(*given, *(Fraction(9, 10) for _ in form.parameters))


def test_every_aggregate_of_the_folder_is_in_the_tuple() -> None:
    names = [module.name for module in pkgutil.iter_modules(aggregates.__path__)]
    modules = [import_module(f"{aggregates.__name__}.{name}") for name in names]
    classes = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    concrete = {each for each in classes if issubclass(each, Aggregate) and not inspect.isabstract(each)}
    assert concrete == set(AGGREGATES)
    assert len(AGGREGATES) == len(concrete)


def test_no_name_means_two_aggregates() -> None:
    functions = [form.function for form in FORMS if form.takes is Takes.NUMBER]
    for names in ([form.name for form in FORMS], [form.title for form in FORMS], functions):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_sql_and_http_read_each_form(form: AggregateForm) -> None:
    for of in ALLOWED[form.takes]:
        written = "DISTINCT id" if form.takes is Takes.NOTHING else of or "*"
        written += "".join(", 0.9" for _ in form.parameters)
        for function in (form.function, form.function.lower()):
            assert parse(f"SELECT {function}({written}) FROM t", PEOPLE).aggregates == (made(form, of),)
        fields = {"aggregate": form.name, "of": of, **dict.fromkeys(form.parameters, "0.9")}
        assert AggregateFields.model_validate(fields).read() == made(form, of)
    with pytest.raises(QueryError):
        AggregateFields(aggregate=form.name, of=None if form.takes is Takes.NUMBER else "age", probability="0.9").read()


@pytest.mark.parametrize("form", [form for form in FORMS if form.takes is Takes.NUMBER], ids=lambda form: form.name)
def test_too_many_and_too_few_arguments_are_refused_with_their_place(form: AggregateForm) -> None:
    few = ", ".join(["age", *("0.9" for _ in form.parameters)][:-1])
    many = ", ".join(["age", *("0.9" for _ in form.parameters), "0.9"])
    for given in (few,) if form.parameters else (few, many):  # sqlglot drops what follows the probability
        with pytest.raises(QueryError, match=r"line 1, column \d+: "):
            parse(f"SELECT {form.function}({given}) FROM t", PEOPLE)


def test_http_and_the_page_offer_what_there_is() -> None:
    names = [form.name for form in FORMS]
    assert AggregateFields.model_json_schema()["properties"]["aggregate"]["enum"] == names
    with pytest.raises(ValidationError, match="Input should be 'count', 'distinct'") as refused:
        AggregateFields(aggregate="mode")
    assert refused.value.errors()[0]["type"] == "literal_error"
    simple = {form.name: form.title for form in FORMS if form.name != "distinct" and not form.parameters}
    assert simple == question_form.AGGREGATES
    assert set(question_form.FUNCTIONS) == set(simple) - {"count"}


def test_an_unknown_function_is_refused_with_all_that_can_be_asked() -> None:
    with pytest.raises(QueryError, match="line 1, column 8: the aggregates are COUNT, ") as refused:
        parse("SELECT KURTOSIS(age) FROM t", PEOPLE)
    words = re.findall("[A-Z_]{3,}", str(refused.value))
    assert words == list(dict.fromkeys(form.function for form in FORMS))
    with pytest.raises(
        QueryError, match=r"column 8: the aggregates are COUNT, .* of an attribute, or a level: no level 'IQRR'"
    ):
        parse("SELECT IQRR(age) FROM t", PEOPLE)


def test_the_package_exports_and_the_documentation_names_every_aggregate() -> None:
    page = DOCS / "tutorials" / "first-queries.md"
    text = page.read_text().partition("with the aggregates ")[2].partition(" of `sfumato.query`")[0]
    names = {each.__name__ for each in AGGREGATES}
    assert set(re.findall(r"`(\w+)`", text)) == names, f"{page.name} lists the classes of AGGREGATES"
    assert names <= set(query.__all__), "query/__init__.py exports the classes of AGGREGATES"


def test_the_documentation_lists_every_function() -> None:
    page = DOCS / "reference" / "sql-language.md"
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| aggregates |"))
    written = re.findall("`([A-Z_]+)", row)
    assert set(written) == {form.function for form in FORMS} | {"PERCENTILE_CONT"}
