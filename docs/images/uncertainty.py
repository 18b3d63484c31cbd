"""The noisy counts of people by age around the exact counts: about one interval of twenty misses."""

import tempfile
from collections import Counter
from pathlib import Path

import altair as alt

import sfumato as sf
from sfumato import query

people = sf.data.census()
exact = Counter(people["age"].to_pylist())
ledger = str(Path(tempfile.mkdtemp()) / "uncertainty.ledger")
vault = sf.open(people, domain=sf.data.domain("census"), ledger=ledger, limit=sf.EpsilonDelta(1, 1e-9), create=True)
answer = query.ask(vault, query.table("age"), epsilon="0.1", delta="1e-9")
rows = [
    {
        "age": int(age),
        "off": each.estimate - exact[int(age)],
        "low": each.low - exact[int(age)],
        "high": each.high - exact[int(age)],
    }
    for (age,), (each,) in zip(answer.keys, answer.values, strict=True)
    if age.isdigit()
]

HOLDS, MISSES, INK = "#2f6fa8", "#b3541e", "#1b2430"
color = alt.condition("datum.low <= 0 && datum.high >= 0", alt.value(HOLDS), alt.value(MISSES))
table = alt.Chart(alt.InlineData(values=rows)).properties(width=640, height=220)
x = alt.X("age:Q", scale=alt.Scale(zero=False), axis=alt.Axis(grid=False))
y = alt.Y("low:Q", title="noisy count minus exact count", axis=alt.Axis(grid=False))
whiskers = table.mark_rule(strokeWidth=2).encode(x=x, y=y, y2="high:Q", color=color)
points = table.mark_point(filled=True, size=30, opacity=1).encode(x=x, y="off:Q", color=color)
zero = alt.Chart(alt.InlineData(values=[{"exact": 0}])).mark_rule(color=INK).encode(y="exact:Q")
alt.layer(zero, whiskers, points).configure(font="sans-serif").configure_view(stroke=None)
