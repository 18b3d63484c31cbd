"""Everything Sfumato raises on purpose.

    SfumatoError
    ├── InputError              what the caller handed over is wrong: nothing was touched, nothing spent
    │   ├── DomainError         the description of the data is wrong, incomplete or still a draft
    │   ├── TableError          the table cannot be read, or does not fit its description
    │   ├── LossError           a privacy parameter that is not a finite positive number
    │   ├── QueryError          a question outside the closed language of questions
    │   ├── RetryKeyError       a retry key that stands for another question
    │   ├── SizeError           the computation would not fit in memory
    │   ├── MissingExtraError   it needs an optional part of the installation
    │   └── ReportError         local reports that are corrupt, or belong to another spec
    ├── BudgetError             the ledger refuses the charge: nothing was touched, nothing spent
    ├── LedgerError             the journal cannot be read, written or trusted
    │   ├── MissingLedgerError  there is none yet, and no limit was named to create one with
    │   ├── NoLedgerError       what lies there is something else
    │   ├── OtherDatasetsError  there is one, which keeps other datasets, and no limit was named to open another with
    │   ├── LimitError          the ledger has another limit than the one named
    │   ├── UnitError           the ledger adds up losses of another unit than the one stated
    │   ├── VersionError        the tables, or the question, are of another version than the last declared one
    │   ├── BrokenLedgerError   the ledger was changed by other hands, or damaged
    │   └── MovedLedgerError    the ledger was moved, deleted, replaced or set back while it was open
    ├── EngineError             the engine failed on its side (connection lost, permission missing)
    └── InfeasibleError         no release can meet what was asked

The server and its client have further ones below these, which stand in ``app``.

A message is one sentence: what is wrong, where, and what to do.  It never contains a value of the
protected table.  The object at fault travels as the attribute ``culprit``.
"""

from __future__ import annotations

from collections.abc import Sequence


class SfumatoError(Exception):
    """Root of the tree.  ``exit_code`` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, message: str, *, culprit: object = None) -> None:
        super().__init__(message)
        self.culprit = culprit


class InputError(SfumatoError):
    """What the caller handed over is wrong; nothing was touched and nothing was spent."""

    exit_code = 2


class DomainError(InputError):
    """The description of the data is wrong, incomplete, or a draft nobody accepted."""


class TableError(InputError):
    """The table cannot be read or does not fit its description."""


class LossError(InputError):
    """A privacy parameter that is not a finite positive number, or two that cannot be combined."""


class QueryError(InputError):
    """A question outside the closed language of questions.

    Attributes:
        statements: statements that work and are like the refused one, the nearest first.  The message has them, too.
    """

    def __init__(self, message: str, *, culprit: object = None, statements: Sequence[str] = ()) -> None:
        super().__init__(message, culprit=culprit)
        self.statements = tuple(statements)


class RetryKeyError(InputError):
    """A retry key that stands for another question."""


class SizeError(InputError):
    """The computation would not fit in memory; the message says how large and what to use instead."""


class MissingExtraError(InputError):
    """What was asked needs an optional part of the installation; the message has the command that installs it."""


class BudgetError(SfumatoError):
    """The ledger refuses the charge; nothing was touched and nothing was spent."""

    exit_code = 3


class LedgerError(SfumatoError):
    """The journal cannot be read, written or trusted."""


class MissingLedgerError(LedgerError):
    """There is no ledger of that name yet, and no limit was named to create one with."""

    exit_code = 2


class NoLedgerError(LedgerError):
    """What lies there is no ledger, but a folder or some other file."""

    exit_code = 2


class OtherDatasetsError(LedgerError):
    """The ledger keeps other datasets than the one named, and no limit was named to open another budget with."""

    exit_code = 2


class LimitError(LedgerError):
    """The ledger has another limit than the one named; a limit never changes."""

    exit_code = 2


class UnitError(LedgerError):
    """The ledger adds up losses of another unit; what is lost of a row says nothing of what is lost of a person."""

    exit_code = 2


class VersionError(LedgerError):
    """The tables or the question are of another version than the last declared one; nothing was charged."""

    exit_code = 2


class MovedLedgerError(LedgerError):
    """The ledger was moved, deleted, replaced or set back while it was open; nothing was charged."""


class BrokenLedgerError(LedgerError):
    """The journal, or an answer that is stored with it, was changed by other hands; nothing of it was handed out."""


class EngineError(SfumatoError):
    """The engine failed on its side."""


class InfeasibleError(SfumatoError):
    """No release can meet what was asked; the message names the nearest request that can be met."""


class ReportError(InputError):
    """Local reports that are corrupt, or were made under another spec."""


def pluralize(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is one.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(0, "class")
    ('1 row', '2,000 rows', '0 classes')
    """
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"
