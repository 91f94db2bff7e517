"""Tables: linked columns and joins for pandas, polars and DuckDB."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import InvalidEntityError, OptionError
from pearl_qdrant.integrations.joining import JoinKeywords, match_once
from pearl_qdrant.integrations.metadata import as_text

CITIES = ["NYTimes", None, "heart attack", "NYTimes", "", "qqq zzz"]
IDS = ["nyt", None, "mi", "nyt", None, None]


@pytest.fixture
def linked(linker: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mentions that a test links."""
    seen: list[str] = []
    batch = linker.link_batch

    def counted(mentions: list[str], *given: object, **named: object) -> object:
        seen.extend(mentions)
        return batch(mentions, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(linker, "link_batch", counted)
    return seen


def test_pandas_keeps_index_and_nulls(linker: EntityLinker, linked: list[str]) -> None:
    """A linked column has the index of its table, null where the cell is null, and each value is linked once."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import link_column

    frame = pd.DataFrame({"name": [*CITIES[:-1], float("nan")]}, index=list("uvwxyz"))
    found = link_column(frame, "name", linker=linker, fields=("entity_id", "probability", "nil_reason"))
    assert [None if one is None else one for one in found["name_entity_id"].tolist()] == [*IDS[:-1], None]
    assert list(found.index) == list("uvwxyz")
    assert found["name_probability"].isna().tolist() == [False, True, False, False, True, True]
    assert sorted(linked) == ["NYTimes", "heart attack"]
    assert list(frame.columns) == ["name"]


def test_polars_links_lazy_tables_by_batches(linker: EntityLinker, linked: list[str]) -> None:
    """A lazy table stays lazy, and gives what a whole one gives."""
    pl = pytest.importorskip("polars")
    from pearl_qdrant.integrations.polars import link_column

    frame = pl.DataFrame({"name": CITIES, "row": range(6)})
    whole = link_column(frame, "name", linker=linker)
    assert whole["name_entity_id"].to_list() == IDS
    linked.clear()
    lazy = link_column(frame.lazy(), "name", linker=linker)
    assert linked == []
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect().equals(whole)
    assert lazy.filter(pl.col("name_entity_id") == "mi").select("row").collect().to_series().to_list() == [2]
    assert link_column(frame.head(0), "name", linker=linker).columns == whole.columns


def test_duckdb_links_vectors_of_rows(linker: EntityLinker, linked: list[str]) -> None:
    """The function of SQL gives a STRUCT, NULL for NULL, and links each distinct value once."""
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from pearl_qdrant.integrations.duckdb import register

    with duckdb.connect() as connection:
        register(connection, linker)
        connection.execute("CREATE TABLE t (name VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?)", [[name] for name in CITIES])
        rows = connection.execute("SELECT name, link(name).entity_id, link(name) IS NULL FROM t").fetchall()
    assert [row[1] for row in rows] == IDS
    assert [row[2] for row in rows] == [name in (None, "") for name in CITIES]
    assert sorted(set(linked)) == sorted(linked)


def test_joins_match_other_spellings(model: Path) -> None:
    """Keys that are written differently are joined, others are not; both libraries give the same rows."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pearl_qdrant.integrations import pandas as for_pandas
    from pearl_qdrant.integrations import polars as for_polars

    left = {"key": ["new-york times", "Heart Attack", None, "xyz qqq"], "n": [1, 2, 3, 4]}
    right = {"key": ["New York Times", "heart attack", "heart attack", None], "m": [10, 20, 21, 30]}
    ours = pd.DataFrame(left, index=list("abcd"))
    joined = for_pandas.fuzzy_join(ours, pd.DataFrame(right), on="key", model=str(model))
    assert list(joined.index) == ["a", "b", "b", "c", "d"]
    assert [None if one != one else int(one) for one in joined["m"]] == [10, 20, 21, None, None]
    assert (joined["match_probability"].dropna() > 0.5).all()
    other = for_polars.fuzzy_join(pl.DataFrame(left), pl.DataFrame(right), on="key", model=str(model), how="inner")
    assert other.select("n", "m").rows() == [(1, 10), (2, 20), (2, 21)]


def test_a_cell_of_several_names_has_several_entities(linker: EntityLinker) -> None:
    """`split` gives a list of names the ids of all, with bars between, and the least probability; else it is null."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pearl_qdrant.integrations import pandas, polars

    names = ["NYTimes; heart attack", "nypost.com"]
    split = pandas.link_column(pd.DataFrame({"name": names}), "name", linker=linker, split=True)
    whole = polars.link_column(pl.DataFrame({"name": names}), "name", linker=linker)

    assert split["name_entity_id"].tolist() == ["nyt|mi", "nyp"]
    assert split["name_canonical_name"][0] == "The New York Times|myocardial infarction"
    assert 0 < split["name_probability"][0] < 1
    assert whole["name_entity_id"].to_list() == [None, "nyp"]


def test_columns_of_both_tables_count_in_a_join(model: Path) -> None:
    """Of rows with one key, the one whose other column agrees is joined; both libraries give the same rows."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pearl_qdrant.integrations import pandas, polars

    states = ["Illinois", "Missouri", "Ohio", "Oregon"]
    right = {"name": ["Springfield"] * 4 + ["Salem"], "state": [*states, None], "id": [1, 2, 3, 4, 5]}
    left = {"town": ["springfield", "Springfield", "Springfield", "Salem"], "where": ["Ohio", "OREGON", None, "Ohio"]}
    options = JoinKeywords(left_on="town", right_on="name", properties={"state": "where"}, model=str(model))
    joined = pandas.fuzzy_join(pd.DataFrame(left), pd.DataFrame(right), **options)
    assert [None if one != one else int(one) for one in joined["id"]] == [3, 4, None, 5]
    other = polars.fuzzy_join(pl.DataFrame(left), pl.DataFrame(right), **options)
    assert other["id"].to_list() == [3, 4, None, 5]
    with pytest.raises(OptionError, match="no column 'nowhere'"):
        polars.fuzzy_join(pl.DataFrame(left), pl.DataFrame(right), **{**options, "properties": {"state": "nowhere"}})


def test_a_join_may_match_each_row_once(model: Path) -> None:
    """One to one, the most probable match keeps the row, equal rows share as many as there are, others get none."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import fuzzy_join

    left = pd.DataFrame({"key": ["heart atack", "heart attack", "Oslo", "Oslo", "Oslo"]})
    right = pd.DataFrame({"key": ["heart attack", "Oslo", None, "Oslo"], "id": [1, 2, 3, 4]})
    many = fuzzy_join(left, right, on="key", model=str(model))
    once = fuzzy_join(left, right, on="key", one_to_one=True, model=str(model))

    assert len(many) == 8
    assert [None if one != one else int(one) for one in once["id"]] == [None, 1, 2, 4, None]


def test_what_a_row_loses_to_another_makes_its_next_candidate_more_probable() -> None:
    """A row whose best candidate is taken gets the next one where that is probable then."""
    candidates = [[(0, 0.9), (1, 0.05)], [(0, 0.6), (1, 0.3)], [(0, 0.6), (2, 0.1)]]
    found = match_once(candidates, [0, 1, 2], least=0.5)

    assert found.left == [0, 1, None]
    assert found.probabilities == [0.9, pytest.approx(0.75), None]


PLACES = [
    *(Entity(f"city-{one}", one, (), ("city", "place"), ("GPE",)) for one in "Oslo,Lyon,Porto,Delft,Graz".split(",")),
    *(Entity(f"river-{one}", one, (), ("river", "place"), ("LOC",)) for one in "Oslo,Douro,Rhine,Mur".split(",")),
]


@pytest.mark.parametrize("library", ["pandas", "polars", "polars.lazy"])
def test_the_column_of_names_is_found(model: Path, caplog: pytest.LogCaptureFixture, library: str) -> None:
    """Without a column the one with names of the base is taken, never an order; it is said with its type, which then
    decides between two entities of a name.
    """
    package = pytest.importorskip(library.split(".")[0])
    module = pytest.importorskip(f"pearl_qdrant.integrations.{library.split('.')[0]}")
    rows = {
        "order": ["A-10017", "A-10018", "A-10019", "A-10020", "A-10021", "A-10022"],
        "n": [1, 2, 3, 4, 5, 6],
        "note": ["fast", "slow", "late", "lost", "new", "old"],
        "where": ["Oslo", "Lyon", "Porto", "Delft", "Graz", "Mars"],
    }
    with EntityLinker.build(PLACES, model=str(model)) as linker:
        frame = package.DataFrame(rows)
        found = module.link_column(frame.lazy() if library == "polars.lazy" else frame, linker=linker, threshold=0.6)
        found = found.collect() if library == "polars.lazy" else found
        named = module.link_column(package.DataFrame(rows), "where", linker=linker)

        assert list(found["where_entity_id"])[:2] == ["city-Oslo", "city-Lyon"]
        assert next(iter(named["where_entity_id"])) is None
        assert "column 'where': 5 of 6 values are in the base, most of type city." in caplog.text
        with pytest.raises(OptionError, match="No column of the table has names; it has: n"):
            module.link_column(frame[["n"]], linker=linker)


NULLS = (
    *("pd.NA", "None", "float('nan')", "pd.NaT", "np.datetime64('NaT')", "np.float32('nan')"),
    *("Decimal('nan')", "Decimal('sNaN')", "pa.scalar(None, pa.string())"),
)


@pytest.mark.parametrize("cell", NULLS)
def test_null_is_known_by_its_type(cell: str) -> None:
    """Whatever a library calls null is null, and text that looks like it is text."""
    np, pd, pa = (pytest.importorskip(name) for name in ("numpy", "pandas", "pyarrow"))
    value = eval(cell, {"np": np, "pd": pd, "pa": pa, "Decimal": Decimal})

    assert as_text(value) is None
    assert as_text(str(value)) == str(value)


def test_whole_numbers_beside_nulls_are_linked_without_their_point() -> None:
    """A column of whole numbers that has nulls, which pandas makes floats of, gives the same texts as one without."""
    assert [as_text(one) for one in (1, 1.0, 1.5, True)] == ["1", "1", "1.5", "True"]


@pytest.mark.parametrize(
    "dtype", ["string", "string[pyarrow]", "category", "object", "Int64", "boolean", "datetime64[ns]"]
)
def test_pandas_links_columns_of_every_type(linker: EntityLinker, dtype: str) -> None:
    """Names, numbers, truths and dates are linked as their text, whatever the type of the column; null stays null."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import fuzzy_join, link_column

    is_text = dtype in ("string", "string[pyarrow]", "category", "object")
    cells = ["NYTimes", pd.NA, "heart attack"] if is_text else pd.Series([1, None, 0]).astype("Int64")
    frame = pd.DataFrame({"name": pd.Series(cells, dtype=dtype)})
    found = link_column(frame, "name", linker=linker, fields=("entity_id", "nil_reason"))
    joined = fuzzy_join(frame, frame.rename(columns={"name": "other"}), left_on="name", right_on="other")

    ids = [None if pd.isna(one) else one for one in found["name_entity_id"]]
    assert ids == (["nyt", None, "mi"] if is_text else [None] * 3)
    assert found["name_nil_reason"].isna().tolist() == ([True] * 3 if is_text else [False, True, False])
    assert joined["other"].isna().tolist() == [False, True, False]


def test_a_column_that_is_there_twice_is_an_error_in_words(linker: EntityLinker, model: Path) -> None:
    """Two columns of one name are named; other columns may be there twice, and a label may be a number."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import fuzzy_join, link_column

    frame = pd.DataFrame([["NYTimes", "x", 1, 2]], columns=["name", "name", "n", "n"])
    with pytest.raises(OptionError, match="has 2 columns 'name': rename or drop all but one"):
        link_column(frame, "name", linker=linker)
    with pytest.raises(OptionError, match="has 2 columns 'name'"):
        fuzzy_join(frame, frame, on="name", model=str(model))
    with pytest.raises(InvalidEntityError, match="several columns 'name'"):
        EntityLinker.build(frame, model=str(model))
    once = frame.set_axis(["key", 0, "n", "n"], axis=1)
    assert link_column(once, "key", linker=linker)["key_entity_id"].tolist() == ["nyt"]
    assert link_column(once, "0", linker=linker, fields=("nil_reason",)).shape == (1, 5)


def test_polars_and_duckdb_keep_nulls_of_columns_that_are_all_null(linker: EntityLinker) -> None:
    """A column of nulls alone, which has no type, gives nulls."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from pearl_qdrant.integrations.duckdb import register
    from pearl_qdrant.integrations.polars import link_column

    found = link_column(pl.DataFrame({"name": [None, None]}), "name", linker=linker)
    with duckdb.connect() as connection:
        register(connection, linker)
        rows = connection.execute("SELECT link(x) FROM (VALUES (NULL), (NULL)) AS t(x)").fetchall()

    assert found["name_entity_id"].to_list() == [None, None]
    assert rows == [(None,), (None,)]


def test_wrong_columns_are_named(linker: EntityLinker) -> None:
    """A missing column, one that is there already, and an unknown field are errors in words."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import fuzzy_join, link_column

    frame = pd.DataFrame({"name": ["a"], "name_entity_id": ["b"]})
    with pytest.raises(OptionError, match="no column 'city'; it has: name"):
        link_column(frame, "city", linker=linker)
    with pytest.raises(OptionError, match="another prefix"):
        link_column(frame, "name", linker=linker)
    with pytest.raises(ValueError, match="colour"):
        link_column(frame, "name", linker=linker, fields=("colour",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name the columns"):
        fuzzy_join(frame, frame)
    with pytest.raises(ValueError, match="'outer'"):
        fuzzy_join(frame, frame, on="name", how="outer")  # type: ignore[arg-type]


def test_columns_beside_the_names_count_in_every_frame(model: Path) -> None:
    """pandas, polars and DuckDB link the same rows by the same columns."""
    pd, pl, duckdb = (pytest.importorskip(name) for name in ("pandas", "polars", "duckdb"))
    from pearl_qdrant.integrations import duckdb as in_duckdb
    from pearl_qdrant.integrations import pandas, polars

    states = ["Illinois", "Missouri", "Ohio", "Oregon"]
    towns = [Entity(one, "Springfield", extra={"state": one}) for one in states]
    with EntityLinker.build(towns, model=str(model)) as linker:
        rows = {"town": ["Springfield"] * 3, "where": ["Ohio", "Oregon", None]}
        wanted = ["Ohio", "Oregon", None]
        properties = {"state": "where"}
        found = pandas.link_column(pd.DataFrame(rows), "town", linker=linker, properties=properties)
        assert found["town_entity_id"].tolist() == wanted
        lazy = polars.link_column(pl.DataFrame(rows).lazy(), "town", linker=linker, properties=properties)
        assert lazy.collect()["town_entity_id"].to_list() == wanted
        with pytest.raises(OptionError, match="no column 'nowhere'"):
            pandas.link_column(pd.DataFrame(rows), "town", linker=linker, properties={"state": "nowhere"})
        with duckdb.connect() as connection:
            in_duckdb.register(connection, linker, properties=["state"])
            table = connection.from_arrow(pl.DataFrame(rows).to_arrow())
            assert [row[0] for row in table.select('link(town, "where").entity_id').fetchall()] == wanted
