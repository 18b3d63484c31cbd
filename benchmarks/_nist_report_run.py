"""Make NIST's SDNist report of one released file, in the environment of that package; print its figures as JSON.

python _nist_report_run.py FOLDER-OF-THE-TARGET RELEASE.csv FOLDER-OF-THE-REPORT
"""

import contextlib
import csv
import json
import sys
from pathlib import Path
from statistics import mean

import matplotlib as mpl

mpl.use("Agg")

HALVES = {  # columns with the distance of changed correlations from no change
    "kendall": "correlation_difference/correlation_difference.csv",
    "pearson": "pearson_correlation/correlation_difference.csv",
}


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


def changes(path):
    """Return the absolute change of each pair's correlation, from the cells below the diagonal."""
    return [abs(float(cell)) for index, row in enumerate(rows_of(path)[1:]) for cell in row[1 : index + 1] if cell]


def figures(out):
    said = json.loads((out / "report.json").read_text(encoding="utf-8"))
    synopsis = said["k_marginal"]["k_marginal_synopsys"]
    in_puma = [float(row[-1]) for row in rows_of(out / synopsis["score_in_each_puma"])[1:]]
    divergence = [float(row[-1]) for row in rows_of(out / "univariate/divergence.csv")[1:]]
    slopes = [
        abs(group["target_regression_slope_and_intercept"][0] - group["deidentified_regression_slope_and_intercept"][0])
        for group in said["linear_regression"].values()
    ]
    kendall, pearson = (changes(out / path) for path in HALVES.values())
    return {
        "k-marginal": synopsis["k_marginal_score"],
        "like a sample of, %": synopsis["sub_sampling_equivalent"],
        "worst PUMA": min(in_puma),
        "columns changed": mean(divergence),
        "Kendall changed": mean(kendall),
        "most": max(kendall),
        "Pearson changed": mean(pearson),
        "pMSE": said["propensity mean square error"]["pmse_score"],
        "slope off by": max(slopes),
        "inconsistent, %": sum(group["Percent Records Inconsistent"] for group in said["inconsistencies"]["summary"]),
        "exact matches, %": said["unique_exact_matches"]["percent records matched in target data"],
        "columns left out": len(said["data_description"]["deid"]["validations"]["values_out_of_bound"]),
    }


def main(root, release, out):
    from sdnist.load import TestDatasetName
    from sdnist.report.__main__ import run

    out.mkdir(parents=True)
    with contextlib.redirect_stdout(sys.stderr):
        run(release, out, TestDatasetName.national2019, root, None, False, False)
    print(json.dumps(figures(out)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
