"""CSV as people write it: other delimiters, decimal commas, thousands, encodings and blanks."""

from __future__ import annotations

import gzip
from fractions import Fraction

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster

from sfumato.description.domain_fit import draft_domain
from sfumato.domain import Categorical, CsvFormat, Domain, Integer, Real, Unknown
from sfumato.engine.csv_file import how_written
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import DomainError, InputError, TableError

PLAIN = "city,size,pay,age\nK\u00f6ln,150.5,1234.5,30\n\u00c5bo,160.25,999,41\nK\u00f6ln,,12345678,9\n"
OTHERS = {
    "semicolons": (
        "city;size;pay;age\nK\u00f6ln;150,5;1234,5;30\n\u00c5bo;160,25;999;41\nK\u00f6ln;;12345678;9\n",
        "utf-8",
    ),
    "thousands": (
        "city;size;pay;age\nK\u00f6ln;150,5;1.234,5;30\n\u00c5bo;160,25;999;41\nK\u00f6ln;;12.345.678;9\n",
        "cp1252",
    ),
    "blanks in thousands": (
        (
            "city|size|pay|age\nK\u00f6ln|150,5|1\u00a0234,5|30\n\u00c5bo|160,25|999|41\n"
            "K\u00f6ln||12\u00a0345\u00a0678|9\n"
        ),
        "utf-8",
    ),
    "quoted": (
        'city,size,pay,age\nK\u00f6ln,150.5,"1,234.5",30\n\u00c5bo,160.25,999,41\nK\u00f6ln,,"12,345,678",9\n',
        "latin-1",
    ),
    "padded": (
        "city,  size, pay, age\nK\u00f6ln, 150.5, 1234.5, 30\n\u00c5bo, 160.25, 999 , 41\nK\u00f6ln, , 12345678, 9\n",
        "utf-8",
    ),
    "sixteen bits": (PLAIN.replace(",", "\t"), "utf-16"),
}
DOMAIN = (
    Categorical(name="city", values=("K\u00f6ln", "\u00c5bo"), unknown=Unknown.CATEGORY),
    Real(name="size", edges=(100.0, 155.0, 200.0), unknown=Unknown.CATEGORY, nullable=True),
    Real(name="pay", edges=(0.0, 1e3, 1e8), unknown=Unknown.CATEGORY, nullable=True),
    Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CATEGORY),
)


def counted(table, domain):
    encoded = table.encode(domain)
    one_way = [reveal(found).tolist() for found in encoded.marginals([(name,) for name in domain.names])]
    return one_way, [reveal(encoded.sums(name, (), Fraction(1, 4))).tolist() for name in ("size", "pay")]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "plain.csv"
    path.write_text(PLAIN, encoding="utf-8")
    assert how_written(str(path), {}).format is None
    return counted(open_table(path), Domain(DOMAIN))


@pytest.mark.parametrize("name", OTHERS)
def test_a_draft_finds_out_how_a_file_is_written_and_says_it(tmp_path, name, expected):
    text, encoding = OTHERS[name]
    path = tmp_path / "other.csv"
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    written = how_written(str(path), {})
    assert written.format is not None
    assert written.notes
    draft = draft_domain(open_table(path, csv=written.format), written.format).domain
    assert [type(attribute).__name__ for attribute in draft] == ["Categorical", "Real", "Real", "Integer"]
    assert draft.csv == written.format
    assert counted(open_table(path, csv=draft.csv), Domain(DOMAIN)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["semicolons", "quoted", "padded", "blanks in thousands"])
def test_spark_reads_the_same(tmp_path, name, expected):
    cluster.session()
    text, encoding = OTHERS[name]
    (tmp_path / "other.csv").write_bytes(text.encode(encoding))
    written = how_written(str(tmp_path / "other.csv"), {"encoding": encoding})  # which a draft may take for cp1252
    table = open_table(f"spark:{tmp_path / 'other.csv'}", csv=written.format)
    assert counted(table, Domain(DOMAIN)) == expected


def test_what_the_owner_says_of_a_file_holds(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\n2,5;y\n")
    found = how_written(str(tmp_path / "t.csv"), {"decimal": "."}).format
    assert found == CsvFormat(delimiter=";")
    with pytest.raises(InputError, match="no CSV file"):
        how_written(str(tmp_path / "t.parquet"), {"delimiter": ";"})
    for wrong in ({"delimiter": "ab"}, {"decimal": ";"}, {"thousands": "x"}, {"encoding": "klingon"}):
        with pytest.raises(DomainError):
            how_written(str(tmp_path / "t.csv"), wrong)


@pytest.mark.parametrize(
    ("name", "content"), [("t.csv", "a;b\n1;2\n"), ("t.csv", "a\tb\n1\t2\n"), ("t.tsv", "a,b\n1,2\n")]
)
def test_a_file_of_another_delimiter_is_named_as_such(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(TableError, match="are separated by"):
        open_table(tmp_path / name)
    (tmp_path / name).write_text("a\n1\n")
    assert [column.name for column in open_table(tmp_path / name).schema()] == ["a"]


def test_a_plain_file_is_not_taken_for_another(tmp_path):
    (tmp_path / "t.csv").write_text('id,note,pay\n1,"a; b; c",1.234\n2,"d; e; f",2.345\n3,"1,5",3.456\n')
    assert how_written(str(tmp_path / "t.csv"), {}).format is None


def test_numbers_with_a_fraction_of_zero_are_whole_and_codes_in_their_order(tmp_path):
    lines = [f"{index % 4}.0,V{index % 12},{'' if index % 5 else index % 3}" for index in range(60)]
    (tmp_path / "t.csv").write_text("grade,code,some\n" + "\n".join(lines) + "\n")
    grade, code, some = draft_domain(open_table(tmp_path / "t.csv")).domain.attributes
    assert grade == Integer(name="grade", minimum=0, maximum=3, unknown=Unknown.CLAMP)
    assert code.values == tuple(f"V{number}" for number in range(12))
    assert some == Integer(name="some", minimum=0, maximum=2, unknown=Unknown.CLAMP, nullable=True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a,b\n1,2\r\n3,4\n", 2),
        (b"a,b\r\n1,2\r\n3,4\n5,6\r\n", 3),
        (b"a,b\n" + b"1,2\n" * 5000 + b"3,4\r\n", 5002),
        (b'a,b\n"x\r\ny",2\n3,4\r5,6\n', 4),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_file_of_mixed_line_ends_is_refused_by_the_line(tmp_path, content, line, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(TableError, match=f"{name}: line {line} ends in another way than the lines before; write"):
        draft_domain(open_table(path))


def test_odd_files_are_read_as_what_they_say(tmp_path):
    """A mark of UTF-8, line ends within quotes, many columns, numbers beyond doubles, signs, lines without fields."""
    (tmp_path / "mark.csv").write_bytes(b'\xef\xbb\xbf"a","b c"\r\n+1,"x\r\ny"\r\n\r\n-2,""\r\n3,\r\n')
    table = open_table(tmp_path / "mark.csv")
    whole, text = draft_domain(table).domain.attributes
    assert whole == Integer(name="a", minimum=-2, maximum=3, unknown=Unknown.CLAMP, missing=("",))
    assert (text.values, text.nullable, text.missing) == (("x\r\ny",), True, ("",))
    for count in (60, 300):
        columns = [f"c{place}" for place in range(count)]
        wide = "\n".join(",".join(str(row * place % 7) for place in range(count)) for row in range(30))
        (tmp_path / f"{count}.csv").write_text(",".join(columns) + "\n" + wide + "\n")
        assert [column.name for column in open_table(tmp_path / f"{count}.csv").schema()] == columns
    assert draft_domain(open_table(tmp_path / "60.csv")).domain.names == tuple(columns[:60])
    (tmp_path / "huge.csv").write_text("a\n1e400\n-1e400\n" + "".join(f"{place}.5\n" for place in range(300)))
    (huge,) = draft_domain(open_table(tmp_path / "huge.csv")).domain.attributes
    assert (huge.minimum, huge.unknown) == (0.0, Unknown.CATEGORY)  # text that is no double is unknown


INDEXED = '"","age","Age","","word"\n"1",30,2,x,"a\nb"\n"2",41,3,y,"c"\n"3",30,2,x,"c"\n'
NAMES = ("row", "age", "Age_2", "column_4", "word")


def indexed_sources(folder):
    (folder / "t.csv").write_text(INDEXED)
    yield folder / "t.csv"
    (folder / "t.tsv").write_text(INDEXED.replace(",", "\t"))
    yield folder / "t.tsv"
    values = [[1, 2, 3], [30, 41, 30], [2, 3, 2], ["x", "y", "x"], ["a\nb", "c", "c"]]
    arrow = pa.table(values, names=["", "age", "Age", "", "word"])
    yield arrow
    pq.write_table(arrow, folder / "t.parquet")
    yield folder / "t.parquet"
    yield pd.DataFrame(dict(enumerate(values))).set_axis([None, "age", "Age", float("nan"), "word"], axis=1)


def test_blank_and_repeated_headers_get_names_and_an_index_is_left_out(tmp_path):
    for source in indexed_sources(tmp_path):
        table = open_table(source)
        assert tuple(column.name for column in table.schema()) == NAMES
        draft = draft_domain(table)
        assert draft.domain.names == NAMES[1:]
        assert draft.left_out == {"row": "it numbers the rows, and has no name in the table"}
        assert draft.hints == {
            "Age_2": "its header is the header of another column, 'Age', so every command calls it Age_2",
            "column_4": "its header is blank, so every command calls it column_4",
        }
        counts = table.encode(draft.domain).marginals([("Age_2",), ("column_4",)])
        assert [reveal(exact).tolist()[:2] for exact in counts] == [[2, 1], [2, 1]]


@pytest.mark.parametrize("header", ["", "Unnamed: 0", "index", "rownames", "ROW"])
def test_a_column_that_numbers_the_rows_is_no_attribute(tmp_path, header):
    (tmp_path / "t.csv").write_text(f"{header},age\n" + "".join(f"{row},{row % 7}\n" for row in range(300)))
    draft = draft_domain(open_table(tmp_path / "t.csv"))
    assert draft.domain.names == ("age",)
    assert "it numbers the rows" in draft.left_out[header or "row"]


def test_names_of_rows_are_no_attribute_and_what_repeats_may_be_one(tmp_path):
    (tmp_path / "cars.csv").write_text('"","mpg"\n"Mazda",21\n"Fiat",32.5\n')
    assert "in every row" in draft_domain(open_table(tmp_path / "cars.csv")).left_out["row"]
    (tmp_path / "index.csv").write_text("index,age\n7,30\n9,31\n7,30\n")
    assert draft_domain(open_table(tmp_path / "index.csv")).domain.names == ("index", "age")
    (tmp_path / "repeated.csv").write_text(",age\n7,30\n7,31\n")
    draft = draft_domain(open_table(tmp_path / "repeated.csv"))
    assert draft.domain.names == ("row", "age")
    assert "its header is blank" in draft.hints["row"]


WRITE_TABLE = '"age" "sex" "income"\n' + "".join(f'"{n}" {30 + n % 9} "{"FM"[n % 2]}" {n}.5\n' for n in range(1, 61))


@pytest.mark.parametrize("separator", [" ", ",", ";", "\t"])
@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_table_of_r_has_names_of_rows_without_a_header(tmp_path, separator, engine):
    path = tmp_path / "people.csv"
    path.write_text(WRITE_TABLE.replace(" ", separator))
    written = how_written(str(path), {})
    if engine == "spark":
        assert cluster.session() is not None
    table = open_table(path if engine == "duckdb" else f"spark:{path}", csv=written.format)
    assert [column.name for column in table.schema()] == ["row", "age", "sex", "income"]
    draft = draft_domain(table, written.format)
    assert draft.left_out == {"row": "it numbers the rows, and has no name in the table"}
    age, sex, income = draft.domain
    assert (age.minimum, age.maximum, sex.values, income.maximum) == (30, 38, ("F", "M"), 62.0)
    assert reveal(table.encode(draft.domain).marginals([("sex",)])[0]).tolist()[:2] == [30, 30]


def test_a_record_that_ends_with_a_separator_has_no_name_of_a_row(tmp_path):
    (tmp_path / "t.csv").write_text("age,sex\n" + "30,F,\n31,M,\n" * 30)
    assert draft_domain(open_table(tmp_path / "t.csv")).domain.names == ("age", "sex")


def test_blanks_divide_fields_only_if_nothing_else_does(tmp_path):
    (tmp_path / "t.csv").write_text("first name,last name\n" + "Ann Lee,Bob Cox\nEve Fox,Dan Roe\n" * 9)
    assert how_written(str(tmp_path / "t.csv"), {}).format is None
