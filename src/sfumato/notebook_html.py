"""Tables in HTML for notebooks, with their own styles, which the CSS of a notebook does not break.

Each cell has its style.  The colors come from the notebook, in light and in dark.  All text is escaped.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = f"{_LINE};padding:3px 12px 3px 0;text-align:left;vertical-align:top;color:inherit;background:transparent;"
_HEAD = f"{_CELL}font-weight:600;white-space:normal;overflow-wrap:normal;word-break:normal;max-width:24em"
_TEXT = f"{_CELL}font-weight:400;white-space:normal;overflow-wrap:break-word;word-break:normal;max-width:44em"
_PLAIN = "color:inherit;background:transparent"
_TABLE = f"border-collapse:collapse;border:0;margin:4px 0 8px 0;table-layout:auto;width:auto;{_PLAIN}"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, labels: int = 0, caption: str = "") -> str:
    """Return a table in HTML.

    Args:
        head: the names of the columns; none: a table of terms and their values.
        rows: the texts of each row.
        labels: the number of columns at the left that name the row.
        caption: a line above the table, or empty.

    >>> html_table((), [("Unit", "a <row>")], labels=1).count("&lt;row&gt;")
    1
    """
    parts = [f'<table class="sfumato" style="{_TABLE}">']
    if caption:
        style = "caption-side:top;text-align:left;padding:2px 0;color:inherit;font-weight:600"
        parts.append(f'<caption style="{style}">{html.escape(caption)}</caption>')
    if head:
        cells = "".join(f'<th scope="col" style="{_HEAD}">{html.escape(name)}</th>' for name in head)
        parts.append(f'<thead><tr style="background:transparent">{cells}</tr></thead>')
    parts.append("<tbody>")
    for row in rows:
        cells = "".join(
            f'<th scope="row" style="{_HEAD}">{html.escape(text)}</th>'
            if place < labels
            else f'<td style="{_TEXT}">{html.escape(text)}</td>'
            for place, text in enumerate(row)
        )
        parts.append(f'<tr style="background:transparent">{cells}</tr>')
    parts.append("</tbody></table>")
    return "".join(parts)


def html_note(text: str) -> str:
    """Return a line below a table."""
    return f'<p style="margin:2px 0;color:inherit;text-align:left">{html.escape(text)}</p>'


@dataclass(frozen=True)
class HtmlPage:
    """A page of HTML that shows itself in a notebook, in a frame that the CSS of the notebook does not reach.

    Attributes:
        html: the document.
        height: the height of the frame in pixels.
    """

    html: str
    height: int = 640

    def __repr__(self) -> str:
        return f"<HtmlPage of {len(self.html):,} characters; .open() shows it in a browser>"

    def _repr_html_(self) -> str:
        document = html.escape(self.html, quote=True)
        style = f"width:100%;height:{self.height}px;border:0;background:white"
        return f'<iframe srcdoc="{document}" style="{style}" sandbox=""></iframe>'

    def open(self) -> Path:
        """Write the page to a temporary file, open it in a browser, and return its path."""
        import tempfile  # imported here, because both take long to load
        import webbrowser

        path = Path(tempfile.mkdtemp(prefix="sfumato-")) / "page.html"
        path.write_text(self.html, encoding="utf-8")
        webbrowser.open(path.as_uri())
        return path

    def opened(self) -> HtmlPage:
        """Return the page; outside a notebook, which shows what a cell returns, also open it in a browser."""
        if "ipykernel" not in sys.modules:
            self.open()
        return self
