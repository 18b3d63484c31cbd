"""``sfumato ledger``: the releases of a ledger, their losses, and the remaining budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    RhoOption,
    VerboseOption,
    database,
    existing,
    warn_about_limit,
)
from sfumato.app.cli.output import (
    account_in_shares,
    columns,
    cost_in_shares,
    print_message,
    result,
)
from sfumato.errors import BrokenLedgerError, InputError, LedgerError, short_deltas

if TYPE_CHECKING:
    from sfumato.domain import Unit
    from sfumato.ledger import JSON, Account, Entry, Ledger

app = typer.Typer(no_args_is_help=True, help="Show and check what was released, and the budget that is left.")

Url = Annotated[str, typer.Argument(help="SQLite file or database URL.")]
_LAST = 50
_LONG = 10_000  # entries of a journal that is not read from its beginning each time that it is shown
_SECONDS = len("2026-01-01T00:00:00")


@app.command()
def create(
    ledger: Url,
    limit: Annotated[
        str,
        typer.Option(metavar="BUDGET", help="Privacy budget, such as 2,1e-9, 2 or rho=0.05. It can never be raised."),
    ],
    dataset: DatasetOption = "default",
) -> None:
    """Create a ledger with its privacy budget.

    Example: sfumato ledger create people.ledger --limit 2,1e-9
    """
    from sfumato.app.api.questions import limit_of
    from sfumato.engine.table_files import redacted_source
    from sfumato.ledger import open_ledger

    with open_ledger(database(ledger), dataset=dataset, limit=limit_of(limit), create=True) as opened:
        print_message(f"{redacted_source(ledger)} keeps {dataset!r} within {opened.limit}.")
        if opened.limit is not None:
            warn_about_limit(opened.limit)


@app.command()
def show(
    ledger: Url,
    dataset: DatasetOption = "default",
    last: Annotated[int, typer.Option(min=1, help="Number of entries, the newest first.")] = _LAST,
    every: Annotated[bool, typer.Option("--all", help="Show all entries.")] = False,
    verbose: VerboseOption = False,  # noqa: ARG001  (read by the output)
    as_json: JsonOption = False,
) -> None:
    """Show the journal: releases, their guarantees and losses, and the budget that is left.

    Example: sfumato ledger show people.ledger

    If another program changed the journal, the command shows it and then fails. A journal of more than
    10,000 entries is verified from its last checkpoint on. 'sfumato ledger verify' checks all entries.
    """
    with existing(ledger, dataset) as opened:
        broken = _broken(opened)
        journal = list(opened.journal() if every else opened.newest(last))
        entries = [_entry(entry) for entry in journal]
        account = opened.remaining()
        caps = opened.caps()
        versions = opened.data_versions()
    text = _journal_text(entries, journal, account) + f"\n\n{dataset}: {account_in_shares(account)}"
    text += f"\nGuarantee of all releases together: {account.guarantee}"
    text += "".join(f"\n{name}: {account_in_shares(each)}" for name, each in caps.items())
    if versions:
        newest = versions[-1]
        text += f"\nThe data are version {newest.number}, declared {newest.time[:_SECONDS]} by {newest.declared_by}."
    text += "".join(_acceptances(entries))
    value: dict[str, Any] = {"dataset": dataset, "guarantee": account.guarantee, "account": str(account)}
    value |= {"without_privacy": list(account.exact), "analysts": {name: str(each) for name, each in caps.items()}}
    value["versions"] = [{"number": v.number, "time": v.time, "declared_by": v.declared_by} for v in versions]
    value |= {"whole": broken is None, "earlier": entries[0]["number"] - 1 if entries else 0, "entries": entries}
    result(value, text, as_json=as_json)
    if broken is not None:
        raise BrokenLedgerError(f"{broken}; what is shown of it is not to be trusted", culprit=broken.culprit)


@app.command()
def verify(
    ledger: Url,
    dataset: DatasetOption = "default",
    head: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Last hash of the journal that you stored elsewhere. Finds an old copy."),
    ] = None,
    actions_head: Annotated[
        str | None, typer.Option(metavar="HASH", help="Last hash of the audit log that you stored elsewhere.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that no entry, answer or action was changed, removed or inserted.

    Example: sfumato ledger verify people.ledger

    It also checks that the accounts are the sums of their entries.
    """
    from sfumato.ledger.audit_log import verified_actions

    with existing(ledger, dataset) as opened:
        journal = opened.verified(head=head)
    log = verified_actions(database(ledger), earlier_head=actions_head)
    earlier = sum(journal.bound_later.values())
    when = ", ".join(time[:10] for time in sorted(journal.bound_later))
    earlier_text = (
        f", of which {earlier:,} of an earlier version are bound as they were found on {when}" if earlier else ""
    )
    result(
        {"dataset": dataset, "verified": True, "hash": journal.head}
        | {"entries": journal.number, "answers": journal.answers, "answers_as_found": earlier}
        | {"actions": log.number, "actions_hash": log.hash},
        f"{dataset} is whole, entries {journal.number:,}, stored answers {journal.answers:,}{earlier_text}; "
        f"its last hash is {journal.head}\nThe audit log is whole, actions {log.number:,}; its last hash is "
        f"{log.hash}\nKeep the hashes elsewhere: verify --head and --actions-head find an old copy by them.",
        as_json=as_json,
    )


@app.command()
def actions(
    ledger: Url,
    after: Annotated[int, typer.Option(min=0, help="Only actions after this number.")] = 0,
    last: Annotated[int, typer.Option(min=1, help="Number of actions, the newest first.")] = _LAST,
    lines: Annotated[
        bool, typer.Option("--lines", help="Export all actions as lines of JSON, the oldest first.")
    ] = False,
) -> None:
    """Show the audit log: the changes by stewards and operators.

    Example: sfumato ledger actions service.ledger
    """
    from contextlib import closing

    from sfumato.ledger.audit_log import every_action
    from sfumato.ledger.store import Store

    with closing(Store(database(ledger))) as store:
        store.prepare(create=False)
        entries = every_action(store, after=after)
        if lines:
            for action in entries:
                typer.echo(action.to_json())
            return
        newest = deque(entries, maxlen=last)
    rows = [
        {"number": each.number, "time": each.time[:_SECONDS], "who": f"{each.actor} ({each.through})"}
        | {"what": each.kind, "subject": each.subject}
        | {"before": _facts(each.state_before), "after": _facts(each.state_after)}
        for each in newest
    ]
    typer.echo(short_deltas(columns(rows)))


@app.command()
def backup(
    ledger: Url,
    out: Annotated[Path, typer.Argument(help="New file for the copy.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a whole ledger, also while it is in use.

    Example: sfumato ledger backup people.ledger backup.ledger

    The command prints the last hash of each dataset and of the audit log. Store the hashes elsewhere.
    """
    from sfumato.ledger.verification import back_up

    heads = back_up(database(ledger), out)
    result(
        {"copy": str(out), "heads": heads},
        columns([{"dataset": name, "hash": head} for name, head in heads.items()]),
        as_json=as_json,
    )


@app.command()
def heads(
    ledger: Url,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="HASH", help="Last hash that you stored, per dataset. An older ledger is refused."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check all journals and the audit log, and print their last hashes.

    Example: sfumato ledger heads people.ledger

    Store the hashes elsewhere. Run the command before 'pg_dump' copies a ledger in PostgreSQL, and with --head after
    the copy was restored.
    """
    from sfumato.ledger.verification import verify_heads

    hashes = verify_heads(database(ledger), earlier_heads=head or [])
    result(
        {"heads": hashes},
        columns([{"dataset": name, "hash": last} for name, last in hashes.items()]),
        as_json=as_json,
    )


@app.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="Copy made by sfumato ledger backup.")],
    ledger: Url,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="HASH", help="Last hash that you stored, per dataset. An older copy is refused."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a lost ledger from a copy, after checking the copy.

    Example: sfumato ledger restore backup.ledger people.ledger --head HASH

    An existing file is never replaced. A copy lacks all later releases and their charges. --head refuses an old copy.
    """
    from sfumato.ledger.verification import restore as put_back

    heads = put_back(copy, database(ledger), earlier_heads=head or [])
    if not head:
        print_message(
            "Without --head, releases after this copy cannot be detected. Their charges would be missing, and the "
            "budget that is really left would be smaller than the ledger states."
        )
    result(
        {"ledger": ledger, "heads": heads},
        columns([{"dataset": name, "hash": last} for name, last in heads.items()]),
        as_json=as_json,
    )


@app.command()
def cap(
    ledger: Url,
    analyst: Annotated[str, typer.Argument(help="Name of the analyst.")],
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    lift: Annotated[bool, typer.Option("--lift", help="Remove the cap.")] = False,
    dataset: DatasetOption = "default",
) -> None:
    """Set or remove the cap of one analyst.

    Example: sfumato ledger cap people.ledger bob --epsilon 0.5
    """
    from sfumato.app.api.questions import loss_of

    if lift and any(part is not None for part in (epsilon, delta, rho)):
        raise InputError("lift the cap, or say with --epsilon, --delta or --rho what it is to be; not both")
    with existing(ledger, dataset) as opened:
        opened.set_cap(analyst, None if lift else loss_of(epsilon, delta, rho))
        print_message(f"{analyst}: {account_in_shares(opened.remaining(analyst))}")


def _facts(state: JSON) -> str | None:
    """Return the facts that an action states of its subject, in one line."""
    from sfumato.ledger.audit_log import fact_words

    return ", ".join(f"{name} {text}".lstrip() for name, text in fact_words(state)) or None


def _broken(ledger: Ledger) -> LedgerError | None:
    """Verify the journal, and return the error or None.  A long journal is verified from the last checkpoint."""
    try:
        newest = ledger.newest(1)
        if newest and newest[0].number > _LONG:
            ledger.check()
        else:
            ledger.verify()
    except LedgerError as error:
        return error
    return None


def _acceptances(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each run of releases under one acceptance of the description."""
    described = [each for each in entries if each["accepted"] is not None]
    for (accepted, confirmed), run in groupby(described, key=lambda each: (each["accepted"], each["confirmed"])):
        first, *others = [each["number"] for each in run]
        which = f"Entries {first} to {others[-1]}" if others else f"Entry {first}"
        yield f"\n{which}: the description was accepted by {accepted}{f'; {confirmed}' if confirmed else ''}."


def _journal_text(entries: Sequence[dict[str, Any]], journal: Sequence[Entry], account: Account) -> str:
    """Return the entries as a table, with a note of the entries that it leaves out."""
    lines = [
        {"number": line["number"], "time": line["time"][:_SECONDS], "method": entry.title}
        | {"asked": line["asked"], "analyst": line["analyst"], "cost": _share(entry, account)}
        | {"statement": line["statement"]}
        for line, entry in zip(entries, journal, strict=True)
    ]
    earlier = entries[0]["number"] - 1 if entries else 0
    return (f"({earlier:,} earlier not shown; see --all)\n\n" if earlier else "") + columns(lines)


def _share(entry: Entry, account: Account) -> str:
    """Return the cost of an entry, a rho as a share of the budget."""
    from sfumato.vault.release import entry_cost

    full = entry_cost(entry)
    return (
        cost_in_shares(full, entry.charge, account).partition(" of the budget")[0] if full.startswith("rho") else full
    )


def _entry(entry: Entry) -> dict[str, Any]:
    from sfumato.vault.release import entry_cost

    return {
        "number": entry.number,
        "time": entry.time,
        "kind": entry.kind.value,
        "family": entry.family,
        "method": entry.method,
        "analyst": entry.event.analyst,
        "statement": entry.event.statement,
        "asked": entry.asked,
        "accepted": entry.accepted,
        "confirmed": entry.confirmed,
        "cost": entry_cost(entry),
        "parameters": entry.event.question.parameters,
        "unit": None if entry.unit is None else _unit(entry.unit, entry.statement),
        "neighbours": entry.neighbours,
        "hash": entry.hash,
    }


def _unit(unit: Unit, statement: str) -> str:
    """Return the unit in the words of the guarantee, which has the bounds on the rows of several tables."""
    whom = str(unit).partition(" (at most ")[0]
    place = statement.find(whom)
    return str(unit) if place < 0 else statement[place:]
