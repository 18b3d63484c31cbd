"""``sfumato local``: perturb values before they leave their owners, and estimate from the reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.domain_file import CsvOptions
from sfumato.app.cli.main import flat
from sfumato.app.cli.options import (
    JsonOption,
    OverwriteOption,
)
from sfumato.app.cli.output import (
    columns,
    print_message,
    refuse_clashes,
    result,
    working,
)
from sfumato.errors import InputError, ReportError, interval_digits, pluralize

if TYPE_CHECKING:
    from sfumato.local import Server
    from sfumato.local.estimators import Estimate
    from sfumato.local.specs.spec import Spec

app = typer.Typer(
    no_args_is_help=True, help="Collect statistics with local privacy: randomize values first, then estimate."
)

_TELLING = 100  # files of fewer reports may be equal by chance

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="Spec, a JSON file that clients and server share.")]
ReportEpsilonOption = Annotated[str, typer.Option(metavar="E", help="Privacy loss of each report, at most 32.")]


@app.command()
def spec(
    kind: Annotated[str, typer.Argument(help="frequency, mean, distribution, range or heavy-hitters.")],
    epsilon: ReportEpsilonOption,
    values: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Frequency: values, comma-separated, or @FILE with one value per line."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Frequency and range: number of values 0, 1, 2, ...")] = None,
    low: Annotated[float | None, typer.Option(help="Mean and distribution: smallest value.")] = None,
    high: Annotated[float | None, typer.Option(help="Mean and distribution: largest value.")] = None,
    bins: Annotated[int | None, typer.Option(help="Distribution: number of bins.")] = None,
    bits: Annotated[
        int | None, typer.Option(help="Heavy hitters: bits of a text value, a multiple of 8 up to 48.")
    ] = None,
    method: Annotated[str, typer.Option(help="Randomizer. 'auto' takes the smallest exact variance.")] = "auto",
    instantaneous_epsilon: Annotated[
        str | None, typer.Option("--first-report", metavar="E", help="RAPPOR and LOLOHA: epsilon of a single report.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the spec. Default: standard output.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Make a spec, the agreement of clients and server.

    Example: sfumato local spec frequency --epsilon 2 --values "none,school,degree" --out spec.json

    The spec holds the epsilon and the exact probabilities of the randomizer.
    """
    from sfumato.local import dumps

    made = _design(kind, epsilon, method, instantaneous_epsilon, _ValueOptions(values, size, low, high, bins, bits))
    text = json.dumps(json.loads(dumps(made)), indent=1) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        from sfumato.vault.release import save_text

        save_text(out, text, overwrite=overwrite)
        print_message(f"Wrote {out}: epsilon {float(made.epsilon):g} for {made.neighbours}.")


@app.command()
@flat
def randomize(
    path: SpecPath,
    table: Annotated[
        str, typer.Argument(help="CSV, Parquet or Arrow file, or the URL of a table, with one row per person.")
    ],
    column: Annotated[str, typer.Option(metavar="NAME", help="Column with the values.")],
    out: Annotated[Path, typer.Option(help="Where to write the reports: .parquet or .arrow.")],
    *,
    csv: CsvOptions,
    overwrite: OverwriteOption = False,
) -> None:
    """Randomize a column to reports, one per row.

    Example: sfumato local randomize spec.json people.csv --column education --out reports.parquet

    Each row must be another person.
    """
    from sfumato.local import Client
    from sfumato.local.protocol.reports import write_reports

    agreed = _read(path)
    refuse_clashes([out], inputs=[path, table], overwrite=overwrite)
    with working(f"Randomizing {column}"):
        reports = Client(agreed).randomize_batch(_column(table, column, csv))
        write_reports(out, reports)
    print_message(f"Wrote {len(reports)} reports to {out}.")


@app.command()
def estimate(
    path: SpecPath,
    reports: Annotated[list[Path], typer.Argument(help="Files of reports.")],
    post: Annotated[
        str, typer.Option(metavar="METHOD", help="Post-processing: none (unbiased), simplex, mle or smooth.")
    ] = "none",
    confidence: Annotated[float, typer.Option(metavar="P", help="Probability with which each interval holds.")] = 0.95,
    most: Annotated[int, typer.Option(help="Heavy hitters: number of values to find.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Estimate from files of reports, with confidence intervals.

    Example: sfumato local estimate spec.json reports.parquet

    Damaged files are refused and counted, and the exit code is then 1. Each file is counted once.
    """
    from sfumato.local import Server
    from sfumato.local.estimators import Post
    from sfumato.privacy.entropy import SIMULATED

    agreed = _read(path)
    server = Server(agreed)
    _receive(server, agreed, reports)
    if server.refused == len(reports):
        raise ReportError(f"of {pluralize(len(reports), 'file')} none was accepted, so nothing is estimated")
    heavy = agreed.kind == "heavy_hitters"
    estimated = server.find(most=most) if heavy else server.estimate(_choice(Post, post, "post-processing"))
    rows = _rows(estimated, confidence)
    warning = f"{SIMULATED}: " if estimated.simulated else ""
    reports_text = f"{pluralize(estimated.reports, 'report')}, epsilon {float(agreed.epsilon):g} each"
    text = f"{columns(_rounded(rows))}\n\n{warning}{reports_text}"
    text += f"; {server.refused} of {pluralize(len(reports), 'file')} refused" if server.refused else ""
    value = {
        "reports": estimated.reports,
        "simulated": estimated.simulated,
        "refused": server.refused,
        "confidence": confidence,
        "estimates": rows,
    }
    result(value, text, as_json=as_json)
    if server.refused:
        raise typer.Exit(1)


def _receive(server: Server, spec: Spec, files: list[Path]) -> None:
    """Count the reports of files.  Damaged files are refused and counted.

    Raises:
        InputError: two files hold the same reports.
    """
    from sfumato.local.protocol.reports import digest, read_reports

    seen: dict[object, Path] = {}
    for file in files:
        _refuse_twice(seen, file.resolve(), file)
        try:
            batch = read_reports(file, spec)
        except ReportError as error:
            server.refuse()
            print_message(str(error) if str(file) in str(error) else f"{file}: {error}")
        else:
            if len(batch) >= _TELLING:
                _refuse_twice(seen, digest(batch), file)
            server.update(batch)


@app.command()
def amplify(
    path: SpecPath,
    reports: Annotated[int, typer.Option(help="Number of honest reports that are shuffled together.")],
    delta: Annotated[str, typer.Option(metavar="D", help="Delta of the shuffled batch.")],
    as_json: JsonOption = False,
) -> None:
    """Compute the guarantee of an anonymous, shuffled batch of reports.

    Example: sfumato local amplify spec.json --reports 100000 --delta 1e-9
    """
    from sfumato.local import amplify as amplified

    batch = amplified(_read(path), reports, delta)
    value = {"epsilon": batch.epsilon, "delta": batch.delta, "local": float(batch.local), "reports": batch.reports}
    text = (
        f"epsilon {batch.epsilon:.4f} at delta {batch.delta:g} for {reports} shuffled reports of epsilon "
        f"{float(batch.local):g} each"
    )
    result(value, text, as_json=as_json)


@app.command()
def audit(path: SpecPath, as_json: JsonOption = False) -> None:
    """Prove the epsilon of a spec from its integers.

    Example: sfumato local audit spec.json

    If the table of probabilities is small enough, the command also enumerates it.
    """
    from sfumato.local import audit as audited

    audited_spec = audited(_read(path))
    enumerated = None if audited_spec.enumerated is None else float(audited_spec.enumerated)
    value = {
        "claimed": float(audited_spec.claimed),
        "proven": float(audited_spec.proven),
        "enumerated": enumerated,
        "holds": audited_spec.holds,
        "neighbours": audited_spec.neighbours,
    }
    largest = "too large to write out" if enumerated is None else f"{enumerated:.12g}"
    text = (
        f"claimed {float(audited_spec.claimed):g}, proven {float(audited_spec.proven):.12g}, enumerated {largest}, for "
        f"{audited_spec.neighbours}"
    )
    result(value, text, as_json=as_json)


class _ValueOptions:
    """The options about the values of a spec."""

    def __init__(
        self,
        values: str | None,
        size: int | None,
        low: float | None,
        high: float | None,
        bins: int | None,
        bits: int | None,
    ) -> None:
        self._given = {"values": values, "size": size, "low": low, "high": high, "bins": bins, "bits": bits}

    def take(self, *names: str) -> list[Any]:
        """Return the named options.

        Raises:
            InputError: one of them is missing, or another option is given.
        """
        missing = [f"--{name}" for name in names if self._given[name] is None]
        extra = [f"--{name}" for name, value in self._given.items() if value is not None and name not in names]
        if missing or extra:
            wrong = f"lacks {', '.join(missing)}" if missing else f"has no use for {', '.join(extra)}"
            raise InputError(f"this kind of spec {wrong}")
        return [self._given[name] for name in names]

    def values(self) -> list[str] | int:
        """Return the values of a frequency, or their number."""
        if self._given["size"] is not None:
            return int(self.take("size")[0])
        text = str(self.take("values")[0])
        if not text.startswith("@"):
            return [value.strip() for value in text.split(",")]
        try:
            return Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"cannot read the values in {text[1:]}", culprit=text) from None


def _design(kind: str, epsilon: str, method: str, instantaneous_epsilon: str | None, domain: _ValueOptions) -> Spec:
    from sfumato.local import Distribution, Frequency, HeavyHitters, Mean, Range
    from sfumato.local.specs.frequency import Method
    from sfumato.local.specs.mean import MeanMethod

    if kind not in {"frequency", "mean"} and (method != "auto" or instantaneous_epsilon is not None):
        raise InputError(f"a {kind} spec has one method only")
    match kind:
        case "frequency":
            chosen = _choice(Method, method, "method")
            return Frequency.design(
                domain.values(), epsilon=epsilon, method=chosen, instantaneous_epsilon=instantaneous_epsilon
            )
        case "mean":
            low, high = domain.take("low", "high")
            return Mean.design(low, high, epsilon=epsilon, method=_choice(MeanMethod, method, "method"))
        case "distribution":
            low, high, bins = domain.take("low", "high", "bins")
            return Distribution.design(low, high, bins=bins, epsilon=epsilon)
        case "range":
            return Range.design(domain.take("size")[0], epsilon=epsilon)
        case "heavy-hitters":
            return HeavyHitters.design(bits=domain.take("bits")[0], text=True, epsilon=epsilon)
        case _:
            raise InputError(
                f"a spec is of a frequency, mean, distribution, range or heavy-hitters, not {kind!r}", culprit=kind
            )


def _choice(options: Any, text: str, name: str) -> Any:  # noqa: ANN401 -- an enumeration class and its member
    if text not in {option.value for option in options}:
        raise InputError(f"no {name} {text!r}; there are {', '.join(option.value for option in options)}", culprit=text)
    return options(text)


def _refuse_twice(seen: dict[object, Path], mark: object, file: Path) -> None:
    if mark in seen:
        raise InputError(f"{file} holds the same reports as {seen[mark]}, and a report counts once", culprit=file)
    seen[mark] = file


def _read(path: Path) -> Spec:
    from sfumato.local import loads

    try:
        return loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the spec {path}", culprit=path) from None


def _column(table: str, column: str, options: CsvOptions) -> Any:  # noqa: ANN401 -- a NumPy array of whatever it holds
    """Read the values of a column, one per person.  Numbers are read in the dialect of the CSV file."""
    from sfumato.engine.csv_file import in_numbers
    from sfumato.engine.open import file_path, open_table
    from sfumato.engine.table_files import redacted_source
    from sfumato.local.protocol.reports import complete_column, read_column

    written = options.written(table)
    if file_path(table) == table and written.format is None:
        return read_column(table, column)
    for detail in written.notes:
        print_message(f"{redacted_source(table)}: {detail}.")
    values = open_table(table, csv=written.format).values(column)
    return complete_column(values if written.format is None else in_numbers(values, written.format), column)


def _rows(estimated: Estimate, confidence: float) -> list[dict[str, Any]]:
    low, high = estimated.interval(confidence)
    return [
        {"value": label, "estimate": float(value), "from": float(first), "to": float(last)}
        for label, value, first, last in zip(estimated.labels, estimated.values, low, high, strict=True)
    ]


def _rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the digits that their intervals support."""
    ends = ("estimate", "from", "to")
    return [row | dict(zip(ends, interval_digits(*(row[end] for end in ends)), strict=True)) for row in rows]
