"""Stored outputs of the documentation: a page shows what its examples print, and a test runs them again.

A block ```` ```output noise=30 ```` after an example holds what the example prints; numbers may differ by the noise.
With ``rows=3`` the three lines after the first are rows drawn at random, which are not compared.  With ``exit=3`` the
example is a command that ends with code 3, and the block holds its message.  A table after
``<!-- outputs of COMMAND -->`` has a statement in its second column and the answer in its third: EXAMPLE in the command
stands for the statement.  A number ``5 ± 2`` there may differ by six standard deviations, which are three times 2.
In a fourth column stands a statement that is answered where the second is refused.  ``<!-- tables of PAGE.md -->``
runs the Python examples of another page first, whose tables the page uses.

An example that ends with a chart stores it as a picture.  ``<!-- picture noise=30 -->`` stands after the example, and
``![text](images/PAGE-1.svg)`` in the next line.  The numbers of the picture lie next to it in ``images/PAGE-1.json``,
and the test compares these.  ``<!-- picture noise=30 of FILE.py -->`` stores the chart that a file next to the picture
ends with.

A command that writes a page stores it: ``<!-- page -->`` stands after the command, and ``[text](images/FILE.html)`` in
the next line.  The test compares the headings of the page.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sfumato.notebook_html import HtmlPage

EXAMPLE = re.compile(
    r"^```(?P<language>console|python|yaml)\n(?P<block>.*?)^```\n"
    r"(?:\n```output(?P<fence>[^\n]*)\n(?P<output>.*?)^```\n)?"
    r"(?P<shown>\n<!-- (?:picture(?: noise=\S+)?|page) -->\n!?\[[^\]]*\]\([^)\s]+\)[^\n]*\n)?"
    r"|^<!-- outputs of (?P<command>[^\n]+) -->\n\n?(?P<table>(?:\|[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)
PICTURE = re.compile(
    r"<!-- picture(?: noise=(?P<noise>\S+))?(?: of (?P<source>\S+\.py))? -->\n!\[[^\]]*\]\((?P<file>[^)\s]+\.svg)\)"
)
PAGE = re.compile(r"<!-- page -->\n\[[^\]]*\]\((?P<file>[^)\s]+\.html)\)")
HEADING = re.compile(r"<(h[1-3]|th)\b[^>]*>(.*?)</\1>", re.DOTALL)
DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
MARK = re.compile(
    r"<title>([^<]+)</title>|<[^>]*aria-label=\"([^\"]+)\"[^>]*aria-roledescription=\"(?:bar|point|rule mark)\""
)
MASKED = [
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?"), "TIME"),
    (re.compile(r"declared by \S+?(?=[.\s]|$)"), "declared by USER"),
    (re.compile(r"\S+ \(machine\)"), "USER (machine)"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-{3,}"), "---"),  # below the head of a table, as wide as its numbers
]
NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-?\d+)?")
NOISY = re.compile(r"(-?[\d,]+(?:\.\d+)?) ± ([\d,]+(?:\.\d+)?)")
DEVIATIONS = 3.1  # half widths of 95 %: six standard deviations of Gaussian noise, and the rounding of what is shown
SHOWN = 3  # groups in a cell of a table
FEWEST = 2  # marks of a picture
WIDTH = 640  # pixels of a drawing that is as wide as its page
Run = Callable[[str], tuple[int, str, str]]


def drift(old: str, new: str, noise: str = "", rows: int = 0) -> str:
    """Return how an output differs from the stored one beyond its noise; nothing if it does not."""
    old, new = (without_rows(text.strip(), rows) for text in (old, new))
    old, new = _masked(old), _masked(new)
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return f"the page shows\n{old}\nand the example prints\n{new}"
    for one, other in zip(NUMBER.findall(old), NUMBER.findall(new), strict=True):
        shown, printed = (float(each.replace(",", "")) for each in (one, other))
        allowed = abs(shown) * float(noise[:-1]) / 100 if noise.endswith("%") else float(noise or 0)
        if abs(shown - printed) > allowed:
            return f"the page shows {one} and the example prints {other}; the noise is {noise or 0}"
    return ""


def typical(texts: list[str]) -> str:
    """Return the text whose numbers are nearest to the medians of all texts: no outlier of noise is stored."""
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(_masked(text))] for text in texts]
    if len({len(each) for each in numbers}) > 1:
        return texts[0]
    gaps = np.abs(np.array(numbers) - np.median(numbers, axis=0))
    return texts[int((gaps / np.maximum(gaps.max(axis=0), 1e-12)).sum(axis=1).argmin())]


def _masked(text: str) -> str:
    for pattern, mask in MASKED:
        text = pattern.sub(mask, text)
    return text


def chart_of(block: str, name: str) -> str:
    """Run an example in Python, and return the drawing that its last line evaluates to; nothing if it does not."""
    return drawing_of(value_of(block, name, {"__name__": "example"}))


def value_of(block: str, name: str, namespace: dict[str, Any]) -> object:
    """Run a program, and return the value of its last line; None if that is no expression."""
    tree = ast.parse(block)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with patch("webbrowser.open"):
        exec(compile(tree, name, "exec"), namespace)  # noqa: S102  (our own pages)
        return eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None  # noqa: S307


def drawing_of(value: object) -> str:
    """Return the first drawing of a page or chart as SVG; nothing for other values."""
    if type(value).__module__.startswith("altair."):
        import vl_convert

        return str(vl_convert.vegalite_to_svg(value.to_dict()))  # type: ignore[attr-defined]
    drawing = DRAWING.search(value.html) if isinstance(value, HtmlPage) else None
    return drawing[0] if drawing else ""


def numbers_of(drawing: str) -> str:
    """Return the labels and numbers of the marks of a drawing as JSON, one mark per line."""
    marks = [unescape(title or label).replace("\N{MINUS SIGN}", "-").strip() for title, label in MARK.findall(drawing)]
    return json.dumps(marks, indent=0, ensure_ascii=False) + "\n"


def stored_picture(drawing: str, marker: re.Match[str], page: Path, *, refresh: bool) -> str:
    """Return how the numbers of a drawing differ from those stored with its picture, and store it if wanted."""
    file = page.parent / marker["file"]
    numbers, data = numbers_of(drawing), file.with_suffix(".json")
    if len(json.loads(numbers)) < FEWEST:
        return f"{file.name} states no numbers"
    old = data.read_text(encoding="utf-8") if data.exists() and file.exists() else "nothing"
    fault = drift(old, numbers, marker["noise"] or "")
    if fault and refresh:
        file.parent.mkdir(exist_ok=True)
        file.write_text(standalone(drawing), encoding="utf-8")
        data.write_text(numbers, encoding="utf-8")
    return f"{file.name}: {fault}" if fault else ""


def stored_page(written: Path, stored: Path, *, refresh: bool) -> str:
    """Return the differences between the headings of a page and of the stored one, and store it if ``refresh``."""
    if not written.exists():
        return f"no command wrote {written.name}"
    new = written.read_text(encoding="utf-8")
    fault = drift(headings(stored.read_text(encoding="utf-8")) if stored.exists() else "nothing", headings(new), "1e9")
    if fault and refresh:
        stored.write_text(new, encoding="utf-8")
    return f"{stored.name}: {fault}" if fault else ""


def headings(page: str) -> str:
    """Return the headings of a page and of its tables, one a line."""
    return "\n".join(re.sub(r"<[^>]*>|\s+", " ", text).strip() for _, text in HEADING.findall(page))


def standalone(drawing: str) -> str:
    """Return a drawing as a file of its own, on white paper."""
    head, _, body = drawing.partition(">")
    if "xmlns=" not in head:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    if " width=" not in head:
        head += f' width="{WIDTH}"'
    return f'{head}><rect width="100%" height="100%" fill="#fff"/>{body.strip()}\n'


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
