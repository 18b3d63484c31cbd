"""The bundled census, released again by ``aim``, and how far the release is from it.

The census is itself a release of UCI Adult, so it may stand beside what is made from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sfumato.data import census, census_release, domain
from sfumato.engine.open import open_table
from sfumato.evaluate.released import Released
from sfumato.evaluate.rows import Rows, open_rows
from sfumato.evaluate.utility.baselines import independent
from sfumato.evaluate.utility.scores import marginal_score
from sfumato.labs.demonstration import Demonstration
from sfumato.ledger import open_ledger
from sfumato.model.simulation import generator
from sfumato.privacy.loss import EpsilonDelta
from sfumato.report.page import Page, Plot, Table
from sfumato.synthesize import Summed, aim, all_marginals
from sfumato.vault.rows import Rows as PublicRows
from sfumato.vault.vault import Vault

LOSS: Final = EpsilonDelta("1", "1e-9")
_WAYS: Final = (1, 2, 3)


def demonstrate_census(folder: Path) -> Demonstration:
    """Release the bundled census under epsilon 1 and delta 1e-9; its rows, the ledger and the release go to ``folder``.

    A second time in the same folder, the stored release is returned and nothing is spent.

    Raises:
        LedgerError: the ledger in the folder cannot be used.
        InputError: the folder cannot be written.
    """
    described = domain("census")
    real_path, synthetic_path = folder / "census.parquet", folder / "census-synthetic.parquet"
    PublicRows(census()).to_parquet(real_path, overwrite=True)
    with open_ledger(f"sqlite:///{folder / 'census.ledger'}", dataset="census", limit=LOSS) as ledger:
        vault = Vault(open_table(real_path).encode(described), ledger)
        release = aim(vault, loss=LOSS, total=Summed(), workload=all_marginals(max(_WAYS)))
        account = str(ledger.remaining())
    release.rows.to_parquet(synthetic_path, overwrite=True)
    errors = _errors(open_rows(real_path, described), open_rows(synthetic_path, described))
    page = Page(
        title="A census, released under epsilon 1 and delta 1e-9",
        terms={"Guarantee": release.guarantee, "Cost": release.cost, "Ledger": account},
        notes=(
            (
                f"The census is a release itself, of {census_release()['source']}: "
                f"{census_release()['guarantee']}.  So it may stand beside what is made from it."
            ),
            (
                "The distance of two tables is the share of people who would have to move from one cell to another, "
                "on average over all pairs or triples of columns."
            ),
        ),
        plots=(_bars(errors),),
        tables={"errors": errors},
    )
    return Demonstration(release, errors, account, page)


def _errors(real: Rows, synthetic: Rows) -> Table:
    floor = independent(real, generator(0))
    truth, made, shuffled = (Released.of(rows) for rows in (real, synthetic, floor))
    return tuple(
        {
            "marginals": f"{ways}-way",
            "distance": 1 - marginal_score(truth, made, ways=ways),
            "of_independent_columns": 1 - marginal_score(truth, shuffled, ways=ways),
        }
        for ways in _WAYS
    )


def _bars(errors: Table) -> Plot:
    import altair as alt

    series = {"the release": "distance", "independent columns": "of_independent_columns"}
    data = alt.InlineData(
        values=[
            {"marginals": row["marginals"], "table": table, "distance": row[column]}
            for row in errors
            for table, column in series.items()
        ]
    )
    chart = (
        alt.Chart(data, width=320, height=240)
        .mark_bar()
        .encode(
            x=alt.X("marginals:O", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("table:N"),
            y=alt.Y("distance:Q", title="share of people in the wrong cell"),
            color=alt.Color("table:N", title=None),
        )
    )
    caption = "Distance from the census: the release keeps how columns go together, which shuffled columns lose."
    return Plot("distances", caption, chart)
