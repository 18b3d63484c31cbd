"""Commands that judge releases: ``sfumato evaluate``, ``attack`` and ``frontier``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.api.methods import split_names
from sfumato.app.cli.judge.audit_command import DRAWS
from sfumato.app.cli.options import (
    DatasetOption,
    JsonOption,
    OneDomainOption,
    OverwriteOption,
    TableView,
    ViewOptions,
    domain_or_schema,
    existing,
)
from sfumato.app.cli.output import (
    columns,
    exact_result,
    print_message,
    refuse_clashes,
    working,
)
from sfumato.app.help_pages import HelpPage, help_page
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.evaluate.evaluation_result import EvaluationResult
    from sfumato.evaluate.intervals import Advantage
    from sfumato.evaluate.population_split import PopulationSplit
    from sfumato.evaluate.release_files import Submitted
    from sfumato.evaluate.verdicts import Judgement
    from sfumato.report.page import Row

_AUDITED = ("laplace", "gaussian", "exponential", "permute-and-flip", "stability-known-key", "local-grr", "local-olh")

RealArgument = Annotated[str, typer.Argument(help="The protected table: a CSV or Parquet file.")]
ReleasesArgument = Annotated[list[Path], typer.Argument(help="Released files, by us or by another tool.")]
HoldoutOption = Annotated[
    str, typer.Option("--holdout", help="People of the same population who are not in the protected table.")
]
ClaimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--claim",
        help="Guarantee of each release in order: epsilon=1, rho=0.5, k=5, none and the like. Default: the one that "
        "the file states.",
    ),
]
HierarchyOption = Annotated[
    list[str] | None,
    typer.Option("--hierarchy", help="column=file of a generalisation hierarchy, where cells are its labels."),
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Attribute to predict; the last one without.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of targets, queries and learners; never of a release.")]
PageOption = Annotated[Path, typer.Option("--out", help="Where to write the page.")]
InternalOption = Annotated[
    bool, typer.Option("--internal", help="Also show exact shares of the table; says so across the page.")
]
JournalOption = Annotated[
    str | None, typer.Option("--ledger", help="Also show the budget journal of this ledger: a SQLite file or a URL.")
]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of ``sfumato evaluate``."""

    real: RealArgument
    releases: ReleasesArgument
    domain: Annotated[
        Path | None,
        typer.Option(
            "--domain",
            help="Accepted description of the table, a YAML file. Default: the one that the release carries, or else "
            "the file next to the table.",
        ),
    ] = None
    rows_of: ViewOptions
    holdout: Annotated[
        str | None,
        typer.Option(
            "--holdout",
            help="People of the same population who are not in the protected table, for attacks and learners; with "
            "--schema a folder. Default: fidelity alone is judged.",
        ),
    ] = None
    out: Annotated[Path | None, typer.Option("--out", "--html", help="Where to write the page. Default: no page.")] = (
        None
    )
    claim: ClaimOption = None
    order: Annotated[
        list[str] | None,
        typer.Option(
            "--order",
            help="TABLE=COLUMN or TABLE=COLUMN:falling: how children follow each other; without, as the release says, "
            "or by their first date. With --schema.",
        ),
    ] = None
    hierarchy: HierarchyOption = None
    target: TargetOption = None
    seed: SeedOption = 0
    ledger: JournalOption = None
    dataset: DatasetOption = "default"
    internal: InternalOption = False
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def inputs(self) -> list[str | Path | None]:
        """Return the files that the command reads."""
        hierarchies = [each.partition("=")[2] for each in self.hierarchy or []]
        described = (self.domain, self.rows_of.schema, self.rows_of.view)
        return [self.real, *self.releases, *described, self.holdout, self.ledger, *hierarchies]

    def described(self, viewed: TableView | None) -> Domain:
        """Return the domain of the evaluated rows: the given domain, or the domain of the first release.

        Raises:
            InputError: there is neither, or the options are for linked tables.
        """
        if self.order:
            raise InputError("--order is how children follow each other: it needs --schema")
        if self.domain is not None or viewed is not None or self.rows_of.schema is not None:
            return _described(domain_or_schema(self.domain, self.rows_of.schema), viewed)
        from sfumato.synthesize.synthetic import read_release

        try:
            return _with_note(read_release(self.releases[0]).model.domain)
        except InputError:
            return _described(domain_or_schema(None, None, self.real), viewed)


@help_page(HelpPage(sections={"Main options": "domain holdout claim out target"}))
def evaluate(given: EvaluateOptions) -> None:
    """Score and attack releases, and give a verdict on each question.

    Example: sfumato evaluate people.csv synthetic.parquet

    A synthetic file carries its claim and its domain, so that the two files are enough: fidelity is judged. With
    --holdout, attacks and learners are judged too. --out writes a page with pictures that works offline.

    The results are computed from the protected table without noise, so they are as secret as the table. With --schema,
    the table and the release are folders with a file per table.  Parents, children and their ties are scored, next to
    a bootstrap of the same units and to real tables with children at random.  With --view, the release has the rows of
    that view.
    """
    rows_of = given.rows_of
    if rows_of.schema is not None and rows_of.view is None and rows_of.unit_rows is None and not rows_of.per:
        _evaluate_linked_tables(given, rows_of.schema)
    else:
        _evaluate_rows(given)


def _evaluate_linked_tables(given: EvaluateOptions, schema: Path) -> None:
    from sfumato.app.cli.judge.evaluate_tables import TablesToJudge, evaluate_tables

    if given.domain is not None or given.hierarchy or given.target or given.ledger is not None:
        raise InputError("--schema judges linked tables: it takes no --domain, --hierarchy, --target or --ledger")
    judged = TablesToJudge(
        real=given.real,
        releases=given.releases,
        schema=schema,
        holdout=given.holdout,
        claims=given.claim or (),
        orders=given.order or (),
        out=given.out,
        seed=given.seed,
        internal=given.internal,
    )
    evaluate_tables(judged, overwrite=given.overwrite, as_json=given.as_json)


def _evaluate_rows(given: EvaluateOptions) -> None:
    from sfumato.engine.table_files import redacted_source
    from sfumato.evaluate.frontier import Candidate, frontier, result_json
    from sfumato.evaluate.release_files import submissions
    from sfumato.evaluate.verdicts import judged
    from sfumato.report.evaluation_page import evaluation_page
    from sfumato.report.page import render_interactive
    from sfumato.vault.release import save_text

    real, holdout, out, viewed = given.real, given.holdout, given.out, given.rows_of.read()
    require("evaluate", "the learner")
    if out is not None:
        require("plots", "the page")
        refuse_clashes([out], inputs=given.inputs(), overwrite=given.overwrite)
    described = given.described(viewed)
    with working("Reading the releases"):
        submitted = submissions(given.releases, given.claim or [], given.hierarchy or [], described)
    _mention(submitted)
    with working(f"Reading {redacted_source(real)}{f' and {redacted_source(holdout)}' if holdout else ''}"):
        people = _judged_people(real, holdout, described, viewed, seed=given.seed)
    candidates = [Candidate(each.name, "release", each.claim, each.made) for each in submitted]
    target = described[given.target].name if given.target else described.names[-1]
    with working("Scoring and attacking"):
        results = frontier(candidates, people, target=target, seed=given.seed, watch=print_message).results
    if out is not None:
        title = f"Evaluation of {pluralize(len(submitted), 'release')}"
        page = evaluation_page(title, results, described, journal=_journal(given), internal=given.internal)
        save_text(out, render_interactive(page), overwrite=given.overwrite)
    verdicts = _verdict_lines(judged(results))
    scores = columns([_score_line(each) for each in results])
    written = "No page was written: name one by --out." if out is None else f"Page: {out}"
    exact_result(
        {"page": None if out is None else str(out), "releases": [result_json(each) for each in results]}
        | {"verdicts": verdicts, "files": {each.name: each.digest for each in submitted}},
        f"{columns(_without_kinds(verdicts))}\n\n{scores}\n\n{_sample_lines(results)}\n\n{written}",
        as_json=given.as_json,
    )


def _journal(given: EvaluateOptions) -> tuple[Row, ...]:
    """Return the rows of the ledger's journal; none without a ledger."""
    from sfumato.report.evaluation_page import journal_rows

    if given.ledger is None:
        return ()
    with existing(given.ledger, given.dataset) as opened:
        return journal_rows(opened.journal(), opened.limit)


def _verdict_lines(verdicts: Mapping[str, Sequence[Judgement]]) -> list[dict[str, Any]]:
    return [{"release": name} | each.to_json() for name, judgements in verdicts.items() for each in judgements]


def _without_kinds(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    left_out = ("is_risk", "interval", "limit")
    return [{name: value for name, value in line.items() if name not in left_out} for line in lines]


def _score_line(scores: EvaluationResult) -> dict[str, Any]:
    point = scores.point_gap
    return {
        "release": scores.name,
        "guarantee": scores.claim,
        "U1": scores.marginals[0],
        "U2": scores.marginals[1],
        "U3": scores.marginals[2],
        "95 % of pairs": scores.most_pairs,
        "worst pair": scores.worst_pair[0],
        "of": scores.worst_pair_text,
        "correlation": None if scores.correlation_gap is None else scores.correlation_gap[0],
        **({} if point is None else {"point": point[0], "is": " = ".join(point[1:])}),
        "query error": scores.query_error,
        **_learner_and_attack(scores),
    }


def attack(
    real: RealArgument,
    releases: ReleasesArgument,
    holdout: HoldoutOption,
    claim: ClaimOption = None,
    domain: OneDomainOption = None,
    *,
    rows_of: ViewOptions,
    hierarchy: HierarchyOption = None,
    people: Annotated[int, typer.Option(min=40, help="Members attacked, and as many others.")] = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Attack releases: membership, linkage, attribute inference, singling out.

    Success counts only beyond what works on people outside the table.  An attack that fails does not show
    that a release is private.
    """
    from sfumato.engine.table_files import redacted_source
    from sfumato.evaluate.attacks.suite import attack_rows
    from sfumato.evaluate.release_files import submissions

    viewed = rows_of.read()
    described = _described(domain_or_schema(domain, rows_of.schema, real), viewed)
    with working("Reading the releases"):
        submitted = submissions(releases, claim or [], hierarchy or [], described)
    _mention(submitted)
    with working(f"Reading {redacted_source(real)} and {redacted_source(holdout)}"):
        split = _split(real, holdout, described, viewed, seed=seed)
    lines = []
    for each in submitted:
        with working(f"Attacking {each.name}"):
            attacks = attack_rows(
                each.release, split.members, split.controls, claim=each.claim, people=people, seed=seed
            )
        lines += _attack_lines(each.name, attacks.results, attacks.headline)
    exact_result({"attacks": lines}, columns(lines), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class FrontierOptions:
    """The options of ``sfumato frontier``."""

    table: RealArgument
    out: PageOption
    domain: OneDomainOption = None
    rows_of: ViewOptions
    holdout: Annotated[
        str | None,
        typer.Option(help="People who are not in the table; without, the table is split and a third is released."),
    ] = None
    quasi: Annotated[
        str | None, typer.Option(help="Quasi-identifiers of k-anonymity, comma-separated, besides all columns.")
    ] = None
    cache: Annotated[
        Path | None, typer.Option(help="Folder to go on from after an interruption; as secret as the table.")
    ] = None
    target: TargetOption = None
    seed: SeedOption = 0
    internal: InternalOption = False
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def rows_domain(self) -> tuple[Domain, TableView | None]:
        """Return the domain of the rows that are judged, and their view if they are of several tables.

        Raises:
            InputError: a person has several rows of the view.
        """
        near = self.table if self.rows_of.view is None else None  # a view has a schema, not a domain next to its table
        path, view = domain_or_schema(self.domain, self.rows_of.schema, near), self.rows_of.read()
        refuse_clashes([self.out], inputs=[self.table, path, self.rows_of.view, self.holdout], overwrite=self.overwrite)
        domain = _described(path, view)
        if view is not None and domain.unit.rows > 1:
            raise InputError(
                f"a frontier judges releases row by row, and of one {domain.unit.column} this view has up to "
                f"{domain.unit.rows} rows: take a view with one row of each, or --unit-rows 1",
                culprit=self.rows_of.view,
            )
        return domain, view


def frontier(options: FrontierOptions) -> None:
    """Make releases of every family over a grid of privacy parameters, judge them, and draw the frontier.

    Nothing is published, so nothing is charged.  The results are as secret as the table.
    """
    from sfumato.engine.table_files import redacted_source
    from sfumato.evaluate.audit.audit import audit_all
    from sfumato.evaluate.audit.shipped import chosen
    from sfumato.evaluate.frontier import frontier as run
    from sfumato.evaluate.frontier import grid
    from sfumato.privacy.entropy import OsEntropy
    from sfumato.report.evaluation_page import evaluation_page
    from sfumato.report.page import render_interactive
    from sfumato.vault.release import save_text

    require("plots", "the page")
    require("evaluate", "the learner")
    domain, view = options.rows_domain()
    quasi = tuple(domain[name].name for name in split_names(options.quasi)) if options.quasi else ()
    with working(f"Reading {redacted_source(options.table)}"):
        people = _split(options.table, options.holdout, domain, view, seed=options.seed)
    target = domain[options.target].name if options.target else domain.names[-1]
    judged = run(grid(quasi), people, target=target, seed=options.seed, cache=options.cache, watch=print_message)
    for name, reason in judged.failed:
        print_message(f"Left out {name}: {reason}")
    with working("Auditing the mechanisms"):
        findings = audit_all(chosen(list(_AUDITED), OsEntropy()), draws=DRAWS)
    title = f"The utility-risk frontier of {Path(redacted_source(options.table)).name}"
    page = evaluation_page(title, judged.results, domain, findings=findings, internal=options.internal)
    save_text(options.out, render_interactive(page), overwrite=options.overwrite)
    lines = [{"release": each.name, "U2": each.marginals[1], **_learner_and_attack(each)} for each in judged.results]
    value = {"page": str(options.out), "releases": lines}
    exact_result(value, f"{columns(lines)}\n\nPage: {options.out}", as_json=options.as_json)


def _described(path: Path, viewed: TableView | None) -> Domain:
    """Return the domain of the rows that are judged one by one."""
    from sfumato.domain import Unit, load

    described = _with_note(load(path) if viewed is None else viewed.domain)
    if described.unit.rows > 1 or viewed is None:
        return described
    return replace(described, unit=Unit.row())  # a row is a person


def _with_note(described: Domain) -> Domain:
    """Return the domain; note if rows are judged, and a person has several."""
    from sfumato.evaluate.frontier import judged_by_rows

    if described.unit.rows > 1:
        print_message(judged_by_rows(described.unit))
    return described


def _judged_people(
    real: str, holdout: str | None, described: Domain, viewed: TableView | None, *, seed: int
) -> PopulationSplit:
    """Read the people of an evaluation, also without a holdout."""
    from sfumato.evaluate.population_split import without_holdout

    if holdout is not None:
        return _split(real, holdout, described, viewed, seed=seed)
    if viewed is not None:
        raise InputError("rows of a view are judged with a --holdout")
    print_message("Without --holdout no attack is run, and two columns are compared with unrelated ones only.")
    return without_holdout(real, described)


def _split(
    real: str, holdout: str | None, described: Domain, viewed: TableView | None, *, seed: int
) -> PopulationSplit:
    """Read the people of an evaluation from tables, or from a view of several tables."""
    from sfumato.evaluate.population_split import divided_population, open_population_split
    from sfumato.evaluate.released import Rows, encoded_rows

    if viewed is None:
        return open_population_split(real, holdout, described, seed=seed)
    members, *others = [
        Rows(described, encoded_rows(viewed.encoded(place)).codes) for place in (real, holdout) if place is not None
    ]
    return divided_population(members, others[0] if others else None, seed=seed)


def _mention(submitted: Sequence[Submitted]) -> None:
    """Report ignored columns and undeclared values of the releases."""
    for each in submitted:
        if each.oddities.ignored:
            columns = ", ".join(each.oddities.ignored)
            print_message(f"{each.name}: columns that the domain does not have are ignored: {columns}.")
        for name, cells in each.oddities.unknown.items():
            print_message(
                f"{each.name}: undeclared values of {name!r} were read as unknown, in {pluralize(cells, 'cell')}."
            )


def _attack_lines(release: str, results: Sequence[Advantage], headline: Advantage) -> list[dict[str, Any]]:
    """Return one line per attack, and one for the worst of them."""
    named = [(result.attack, result) for result in results] + [(f"worst of {len(results)}", headline)]
    return [
        {
            "release": release,
            "attack": name,
            "members": result.members.value,
            "controls": result.controls.value,
            "advantage": result.value,
            "low": result.interval.low,
            "high": result.interval.high,
            "bound": result.bound,
            "attacker knows": result.knowledge,
        }
        for name, result in named
    ]


def _learner_and_attack(result: EvaluationResult) -> dict[str, Any]:
    """Return the last columns of a table of releases: the score of a learner, and the worst attack."""
    worst = result.headline
    learner = None if result.learning is None else result.learning[2]
    if worst is None:
        return {"learner": learner}
    return {
        "learner": learner,
        "worst attack": worst.attack,
        "advantage": worst.value,
        "low": worst.interval.low,
        "high": worst.interval.high,
    }


def _sample_lines(results: Sequence[EvaluationResult]) -> str:
    """Return one line per release with its sample sizes and its standard errors."""
    lines = []
    for each in results:
        taken = ", ".join(f"{what}: {share}" for what, share in each.sampled.items())
        errors = ", ".join(f"{what} {error:.2g}" for what, error in each.standard_errors.items())
        lines.append(f"{each.name}: {taken}; standard errors: {errors}.")
    return "\n".join(lines)
