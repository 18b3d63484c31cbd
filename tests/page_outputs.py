"""Stored outputs of the documentation: a page shows what its examples print, and a test runs them again.

A block ```` ```output noise=30 ```` after an example holds what the example prints; numbers may differ by the noise.
With ``rows=3`` the three lines after the first are rows drawn at random, which are not compared.  A table after
``<!-- outputs of COMMAND -->`` has a statement in its second column and the answer in its third: EXAMPLE in the command
stands for the statement.  A number ``5 ± 2`` there may differ by six standard deviations, which are three times 2.
In a fourth column stands a statement that is answered where the second is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

EXAMPLE = re.compile(
    r"^```(?P<language>console|python|yaml)\n(?P<block>.*?)^```\n"
    r"(?:\n```output(?P<fence>[^\n]*)\n(?P<output>.*?)^```\n)?"
    r"|^<!-- outputs of (?P<command>[^\n]+) -->\n\n?(?P<table>(?:\|[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)
MASKED = [
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?"), "TIME"),
    (re.compile(r"[ \t]+"), " "),
]
NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-?\d+)?")
NOISY = re.compile(r"(-?[\d,]+(?:\.\d+)?) ± ([\d,]+(?:\.\d+)?)")
DEVIATIONS = 3.1  # half widths of 95 %: six standard deviations of Gaussian noise, and the rounding of what is shown
SHOWN = 3  # groups in a cell of a table
Run = Callable[[str], tuple[int, str, str]]


def drift(old: str, new: str, noise: str = "", rows: int = 0) -> str:
    """Return how an output differs from the stored one beyond its noise; nothing if it does not."""
    old, new = (without_rows(text.strip(), rows) for text in (old, new))
    for pattern, mask in MASKED:
        old, new = pattern.sub(mask, old), pattern.sub(mask, new)
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return f"the page shows\n{old}\nand the example prints\n{new}"
    for one, other in zip(NUMBER.findall(old), NUMBER.findall(new), strict=True):
        shown, printed = (float(each.replace(",", "")) for each in (one, other))
        allowed = abs(shown) * float(noise[:-1]) / 100 if noise.endswith("%") else float(noise or 0)
        if abs(shown - printed) > allowed:
            return f"the page shows {one} and the example prints {other}; the noise is {noise or 0}"
    return ""


def without_rows(text: str, rows: int) -> str:
    """Return an output without the rows after its first line, which were drawn at random."""
    first, *others = text.split("\n")
    return "\n".join([first, *others[rows:]])


def drift_of_cell(old: str, new: str) -> str:
    """Return how an answer in a table differs from the stored one by more than six standard deviations."""
    if NOISY.sub("#", old.strip()) != NOISY.sub("#", new.strip()):
        return f"the page shows {old.strip()!r} and the answer is {new.strip()!r}"
    for one, other in zip(NOISY.findall(old), NOISY.findall(new), strict=True):
        (shown, half), (answered, width) = ([float(each.replace(",", "")) for each in pair] for pair in (one, other))
        if abs(shown - answered) > DEVIATIONS * max(half, width) + 0.01 * abs(shown) * (not half):
            return f"the page shows {shown} ± {half} and the answer is {answered} ± {width}"
    return ""


def table(text: str, command: str, run: Run, faults: list[str]) -> str:
    """Run the statements of a table, and return it with the answers; differences are appended to ``faults``."""
    lines = []
    for line in text.splitlines():
        cells = [each.strip() for each in line.strip().strip("|").split(" | ")]
        statement = cells[1].strip("`") if len(cells) > 2 else ""
        if not statement.startswith(("SELECT ", "WITH ")):
            lines.append(line)
            continue
        _, new = answer(statement, command, run)
        fault = drift_of_cell(cells[2], new)
        if len(cells) > 3 and answer(cells[3].strip("`"), command, run)[0]:
            fault = f"{cells[3]} is not answered"
        if fault:
            faults.append(f"{statement}: {fault}")
            cells[2] = new
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def answer(statement: str, command: str, run: Run) -> tuple[int, str]:
    """Return the exit code, and the answer of a statement in one line or its refusal."""
    code, printed, said = run(command.replace("EXAMPLE", shlex.quote(statement)) + " --json")
    if code:
        return code, re.sub(r"\s+", " ", said).strip().removeprefix("sfumato: ").replace("|", "/")
    rows: list[dict[str, Any]] = json.loads(printed)["rows"]
    texts = [" ".join([*(f"{part}:" for part in row.get("key", ())), *map(_number, row["values"])]) for row in rows]
    more = f"; {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return code, ("; ".join(texts[:SHOWN]) or "no groups") + more


def _number(value: dict[str, float]) -> str:
    half = (value["high"] - value["low"]) / 2
    digits = 0 if half >= 1 or value["estimate"] == round(value["estimate"]) else 2
    return f"{value['estimate']:,.{digits}f} ± {half:,.{digits}f}"
