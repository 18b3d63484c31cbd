"""Let a tape hear a run: mechanisms, ledger and engine are patched while it lasts, and know nothing of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
from tests.replay.tape import Declared, Tape

from sfumato.engine.arrays import KeptColumns
from sfumato.engine.duckdb.duck_join import DuckJoin
from sfumato.engine.duckdb.duck_session import DuckSession, shared_session
from sfumato.engine.duckdb.duck_table import DuckStore, DuckTable
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.sql.sql_join import SqlJoin
from sfumato.engine.sql.sql_session import DatabaseSession
from sfumato.engine.sql.sql_table import SqlStore, SqlTable
from sfumato.engine.views.joined import JoinedTables
from sfumato.errors import EngineError
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.reservation import Reservation
from sfumato.model.row_sampling import generator
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.noise import Noise
from sfumato.privacy.selection import Exponential
from sfumato.privacy.threshold import StabilityThreshold
from sfumato.vault import mechanisms as mechanisms_module
from sfumato.vault.mechanisms import PrivacyFilter, TableMechanisms

Call = Callable[..., Any]

PORTS = (EncodedRows, DuckStore, DuckTable, DuckJoin, JoinedTables, KeptColumns, SqlStore, SqlTable, SqlJoin)
SILENT = {  # methods of ports that read no row
    *("bytes_in_all", "columns", "derived", "deriving", "dialect", "domain", "joined", "raw", "ready", "reading"),
    *("refuse_keys", "relation", "schema", "stamps", "title", "version"),
}
OPENING = {  # acts of an owner, in which keys are checked and versions of the data are distinguished
    *("DuckTable.read_columns", "DuckTable.encode", "DuckTable.encode_with_content", "DuckTable.content"),
    "DuckTable.write_columns",  # to the snapshot of a server
    *("DuckJoin.with_content", "JoinedTables.__init__", "SqlJoin.with_content"),
    *("SqlTable.__init__", "SqlTable.encode", "SqlTable.encode_with_content", "SqlTable.content"),
}


class KilledError(BaseException):
    """The process that computes a release dies here."""


@contextmanager
def listening(tape: Tape, *, seed: int) -> Iterator[None]:
    """Let a tape hear what runs in this block.

    Args:
        tape: records, or plays the tape that it is forced to.
        seed: of the noise of a run that records, and of ids and keys in both.
    """
    noise, choices, ledger, engine = _Noise(tape), _Choices(tape), _Ledger(tape), _Engine(tape)
    secret = random.Random(seed)  # noqa: S311 - so that ids and keys are the same in both runs
    heard: list[tuple[Any, str, Callable[[Call], Call]]] = [
        (PrivacyFilter, "spend", noise.spend),
        (TableMechanisms, "measure", noise.measure),
        (TableMechanisms, "threshold", noise.threshold),
        (Noise, "add", noise.add),
        (StabilityThreshold, "apply", noise.apply),
        (mechanisms_module, "reveal", noise.reveal),
        (Exponential, "choose", choices.choose),
        (Exponential, "choose_among", choices.choose),
        (Exponential, "keeps", choices.keeps),
        (TableMechanisms, "generator", choices.rows),
        (Reservation, "__enter__", ledger.reserve),
        (Reservation, "__exit__", ledger.leave),
        (Ledger, "write", ledger.write),
        (DuckSession, "cursor", engine.cursor),
        (JoinedTables, "__init__", engine.port("JoinedTables.__init__")),
        (SqlTable, "__init__", engine.port("SqlTable.__init__")),
        *((DatabaseSession, name, engine.statement) for name in ("named_rows", "chunks", "make")),
        *(
            (port, name, engine.port(f"{port.__name__}.{name}"))
            for port in PORTS
            for name, found in vars(port).items()
            if not name.startswith("_") and name not in SILENT and callable(found)
        ),
    ]
    alive = shared_session()  # otherwise garbage collection ends it, and tables are renumbered
    with ExitStack() as stack:
        stack.enter_context(patch("sfumato.vault.vault._ENTROPY", SimulatedEntropy(seed)))
        stack.enter_context(patch("secrets.token_bytes", lambda size=32: secret.randbytes(size)))
        for owner, name, made in heard:
            found = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, wraps(found)(made(found))))
        yield
    del alive


class _Noise:
    """Noise on sums and on the units of keys, with what is declared of them and the charge that pays for it."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._declared: list[Declared] = []
        self._revealed: Any = None
        self._threshold: StabilityThreshold | None = None  # under way

    def spend(self, found: Call) -> Call:
        def spending(own: PrivacyFilter, charge: Any) -> None:
            found(own, charge)
            self._tape.spend(charge)

        return spending

    def measure(self, found: Call) -> Call:
        def measuring(own: TableMechanisms, questions: Any, *more: Any, **named: Any) -> Any:
            self._declared = [question.sensitivity(own.domain) for question in questions]
            return found(own, questions, *more, **named)

        return measuring

    def add(self, found: Call) -> Call:
        def adding(own: Noise, counts: Any, entropy: Any) -> Any:
            noisy = found(own, counts, entropy)
            if self._threshold is not None:
                return noisy
            drawn = self._tape.draw(own, counts.copy(), noisy, self._declared.pop(0) if self._declared else None)
            if self._tape.fails == "process":
                raise KilledError
            return drawn

        return adding

    def reveal(self, found: Call) -> Call:
        def revealing(exact: Any) -> Any:
            self._revealed = found(exact)
            return self._revealed

        return revealing

    def apply(self, found: Call) -> Call:
        def applying(own: StabilityThreshold, units: Any, entropy: Any) -> Any:
            self._threshold = own
            return found(own, units, entropy)

        return applying

    def threshold(self, found: Call) -> Call:
        def thresholding(own: TableMechanisms, columns: tuple[str, ...], loss: Any) -> Any:
            shown = found(own, columns, loss)
            held, mechanism, self._threshold = self._revealed, self._threshold, None
            keys = zip(*(held[column].to_pylist() for column in columns), strict=True)
            return self._tape.draw(mechanism, dict(zip(keys, held["units"].to_pylist(), strict=True)), shown)

        return thresholding


class _Choices:
    """Choices by scores, the coins of their rejections, and the words that rows of public models are drawn with."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def choose(self, found: Call) -> Call:
        return lambda own, scores, *more: self._tape.draw(own, scores, found(own, scores, *more))

    def keeps(self, found: Call) -> Call:
        return lambda own, gap, entropy: self._tape.draw("a coin", (), found(own, gap, entropy))

    def rows(self, _: Call) -> Call:
        def drawing(own: TableMechanisms) -> np.random.Generator:
            word = int.from_bytes(own._entropy.words(2).tobytes(), "little")  # noqa: SLF001
            return generator(self._tape.draw("rows of a model", (), word))

        return drawing


class _Ledger:
    """Reservations, and the commits that make them durable."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def reserve(self, found: Call) -> Call:
        def reserving(own: Reservation) -> Reservation:
            found(own)
            pending = own.answer is None  # it was charged, now or by an attempt that failed
            self._tape.charged = self._tape.charged or own.charged or own.charged_analyst or pending
            self._tape.calls.append(
                f"reserve entry {own.number}: charged {own.charged}, the analyst {own.charged_analyst}, "
                f"answered {own.answer is not None}"
            )
            return own

        return reserving

    def write(self, found: Call) -> Call:
        def writing(own: Ledger, *given: Any, **named: Any) -> Any:
            result = found(own, *given, **named)
            self._tape.calls.append("commit")
            return result

        return writing

    def leave(self, found: Call) -> Call:
        def leaving(own: Reservation, kind: type[BaseException] | None, *more: Any) -> None:
            if kind is KilledError:  # the dead close no release; the system takes their locks
                own._unlock(noise_drawn=True)  # noqa: SLF001
            else:
                found(own, kind, *more)

        return leaving


class _Engine:
    """The calls to the engine's port, and the number of rows within its statements."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def port(self, place: str) -> Callable[[Call], Call]:
        """Return a function that records calls of a port's method; calls within an act of the owner are not
        recorded.
        """

        def made(found: Call) -> Call:
            def hearing(own: Any, *given: Any, **named: Any) -> Any:
                if self._tape.opening:
                    return found(own, *given, **named)
                named_too = (f"{name}={_said(value)}" for name, value in named.items())
                said = [] if place in OPENING else [*map(_said, given), *named_too]  # a frame is told by its rows
                self._tape.calls.append(call := f"{place}({', '.join(said)})")
                if place.startswith(KeptColumns.__name__):
                    self._tape.read(call)
                    if reason := self._tape.failure():
                        raise EngineError(reason)
                self._tape.opening = place in OPENING
                try:
                    return found(own, *given, **named)
                finally:
                    self._tape.opening = False

            return hearing

        return made

    def statement(self, found: Call) -> Call:
        """Return a function that records statements sent to a database."""

        def hearing(own: DatabaseSession, *given: Any, **named: Any) -> Any:
            if given != ("SELECT 1",):  # which asks whether the database is there
                self._tape.read(" ".join(map(str, given)))
            if reason := self._tape.failure():
                raise EngineError(reason)
            return found(own, *given, **named)

        return hearing

    def cursor(self, found: Call) -> Call:
        @contextmanager
        def opened(own: DuckSession, title: str) -> Iterator[Any]:
            with found(own, title) as cursor:
                heard = _Cursor(cursor, self._tape)
                yield heard
                heard.weigh()

        return opened


class _Cursor:
    """A connection of DuckDB that tells a tape its statements, and the rows of the largest result within each."""

    def __init__(self, cursor: Any, tape: Tape) -> None:
        self._cursor, self._tape, self._pending = cursor, tape, False
        cursor.execute("PRAGMA enable_profiling = 'no_output'")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cursor, name)
        return self._telling(found) if name in ("execute", "executemany", "sql") else found

    def _telling(self, found: Call) -> Call:
        def telling(statement: str, *more: Any) -> Any:
            self.weigh()
            if not statement.startswith("DROP"):  # which comes whenever garbage is collected, and reads nothing
                self._pending = True
                self._tape.read(statement)
                if reason := self._tape.failure():
                    raise duckdb.OutOfMemoryException(reason)
            return found(statement, *more)

        return telling

    def weigh(self) -> None:
        """Tell how large the last statement was, once its result was read."""
        if self._pending:
            plan = json.loads(self._cursor.get_profiling_information(format="json"))
            self._tape.made(max(map(_largest, plan.get("operator", [])), default=0))
            self._pending = False


def _largest(operator: dict[str, Any]) -> int:
    """The rows of the largest result within an operator."""
    return max([int(operator.get("intermediate_rows", 0)), *map(_largest, operator.get("children", []))])


def _said(value: Any) -> str:
    """Return a public argument in words, in a form that is comparable between runs."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_said, value))})"
    if isinstance(value, str | int | float | None) or hasattr(value, "__dataclass_fields__"):
        return repr(value)
    return type(value).__name__
