"""The command line as a user types it: ingest, link, collections and entities."""

from __future__ import annotations

import gzip
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from cli_runner import Run
from edge_cases import copy_files
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from tiny_models import make_pearl

from pearl_qdrant import load_base
from pearl_qdrant.store import open_store

BASE = (
    "id\tname\ttype\taliases\tdescription\n"
    "nyt\tThe New York Times\tORG|newspaper\tNYTimes|nytimes.com\tA newspaper\n"
    "nyc\tNew York\tGPE|city\tNYC|Big Apple\tA city\n"
    "ac\t\"Heart\" 'n' post\tWORK_OF_ART\t\t\n"
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of three entities."""
    path = tmp_path / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the base, which tests copy: a copy is much faster than a load."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "base.tsv").write_text(BASE, encoding="utf-8")
    load_base(folder / "base.tsv", store=str(folder / "store"), model=str(model))
    return folder / "store"


@pytest.fixture
def loaded(run: Run, base: Path, filled_store: Path, tmp_path: Path) -> Run:
    """The command line with a store of its own, which has the base."""
    copy_files(filled_store, tmp_path / "store")
    return run


def test_ingest_reports_what_it_did(run: Run, base: Path, model: Path) -> None:
    """`ingest --json` prints one line of counts, messages go to stderr only; in words, the numbers add up."""
    outcome = run("ingest", str(base), "--model", str(model), "--json")

    assert outcome.status == 0, outcome.err
    (report,) = outcome.lines()
    assert {k: report[k] for k in ("collection", "entities", "names", "distinct_names", "points", "skipped")} == {
        "collection": "base",
        "entities": 3,
        "names": 7,
        "distinct_names": 7,
        "points": 7,
        "skipped": {},
    }
    assert {"seconds", "load_seconds", "encode_seconds", "graph_seconds", "model", "device"} <= report.keys()
    assert "with phrase types" in outcome.err
    base.write_text(base.read_text("utf-8") + "bad\t\nuni\t\U0001f984\n", "utf-8")
    loaded = run("ingest", str(base), "--model", str(model), "--no-update")
    words = loaded.out.splitlines()
    accepted = run("ingest", str(base), "--model", str(model), "--max-errors", "1")
    again = run("ingest", str(base), "--model", str(model)).out.splitlines()

    assert (loaded.status, accepted.status) == (3, 0), "a row that is not loaded shows, unless it is allowed"
    assert "accept them with --set max_errors=1" in loaded.err
    assert words[0] == "base: 4 entities with 8 names, all stored"
    assert words[1] == "  rows: 5 read; bad and skipped: 1 (no name 1); left out by the options: 0"
    assert words[2] == "  collection: 8 names = 8 of this input + 0 others"
    assert words[3].startswith("  vectors: 8 names = 7 with one + 1 without")
    assert words[4].startswith("  seconds: ")
    assert again[0] == "base: 4 entities with 8 names, stored before"


def test_names_keep_the_language_of_their_base(run: Run, tmp_path: Path, model: Path) -> None:
    """It is shown, chooses which names are found, and is mended by an update."""
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    triples = f'<u:bank> {label} "bank"@en . <u:bench> {label} "Bank"@de . <u:sofa> {label} "Sofa"@en .'
    base = tmp_path / "things.ttl"
    base.write_text(triples)
    languages = ("--language", "en", "--language", "de")
    assert run("ingest", str(base), *languages, "--model", str(model)).status == 0

    def linked(mention: str, *options: str) -> list[object]:
        (link,) = run("link", mention, "--json", "--threshold", "0", "--limit", "1", *options).lines()
        (best,) = link["candidates"]
        return [best["entity_id"], best["language"]]

    assert linked("bank", "--set", "languages=de") == ["u:bench", "de"]
    assert linked("Bank", "--set", "languages=en") == ["u:bank", "en"]
    assert run("collections", "show", "things", "--json").lines()[0]["languages"] == {"en": 2, "de": 1}
    assert "languages  en 2, de 1" in run("collections", "show", "things").out
    assert run("entities", "show", "u:bench", "--json").lines()[0]["languages"] == {"Bank": "de"}
    base.write_text(triples.replace('"Sofa"@en', '"Sofa"@de'))
    report = run("ingest", str(base), *languages, "--model", str(model), "--update", "--json").lines()[0]
    assert (report["changed"], report["added"]) == (1, 0)
    assert run("collections", "show", "things", "--json").lines()[0]["languages"] == {"de": 2, "en": 1}


def test_link_answers_in_words_and_in_json(loaded: Run) -> None:
    """A linked mention shows its entity; JSON has every documented field."""
    words = loaded("link", "nytimes.com", "--threshold", "0")
    assert words.status == 0, words.err
    assert "nytimes.com  ->  The New York Times  [nyt]" in words.out

    (link,) = loaded("link", "NYC", "--json", "--threshold", "0", "--limit", "2").lines()
    assert link["entity_id"] == "nyc"
    fields = {"mention", "entity_id", "canonical_name", "probability", "nil_reason", "candidates", "kb", "rule"}
    assert link.keys() == fields
    (nil,) = loaded("link", "aspirin", "--threshold", "1", "--json").lines()
    assert nil["nil_reason"] == "below_threshold"
    assert "NIL (below threshold)" in loaded("link", "aspirin", "--threshold", "1").out
    candidates = link["candidates"]
    assert isinstance(candidates, list)
    assert len(candidates) == 2
    assert (
        list(candidates[0])
        == (
            "entity_id kb canonical_name name kb_types types phrase_type type_probability description popularity "
            "dense_score lexical_score score probability tie language"
        ).split()
    )


def test_with_several_collections_an_answer_names_the_base_of_an_id(loaded: Run, base: Path, model: Path) -> None:
    """The same id in two bases means two entities, so the base is shown with it; a collection may be omitted where
    there is only one, else the error lists them.
    """
    assert loaded("link", "NYC", "--threshold", "0").status == 0
    second = base.with_name("second.tsv")
    second.write_text("id\tname\tkind\nnyt\tNew Yorkshire Terrier\tdog\n", encoding="utf-8")
    assert loaded("ingest", str(second), "--model", str(model)).status == 0
    both = ("--collection", "base", "--collection", "second", "--threshold", "0")

    words = loaded("link", "New Yorkshire Terrier", *both).out
    (link,) = loaded("link", "New Yorkshire Terrier", *both, "--json").lines()
    noted = loaded("annotate", "A New Yorkshire Terrier.", "--threshold", "0", *both[:4])
    unnamed = loaded("link", "NYC")

    assert (unnamed.status, "base, second" in unnamed.err) == (2, True)
    assert "->  New Yorkshire Terrier  [second: nyt]" in words
    assert "lexical  base    id" in words
    assert (link["entity_id"], link["kb"]) == ("nyt", "second")
    assert "[second: nyt]" in noted.out, noted.err


def test_mentions_of_a_file_are_utf_8_with_or_without_a_byte_order_mark(loaded: Run, tmp_path: Path) -> None:
    """A byte order mark is not part of a mention; the error for a line that is not UTF-8 names it."""
    mentions = tmp_path / "mentions.txt"
    mentions.write_bytes(b"\xef\xbb\xbfNYC\r\n\nNew York\n")
    assert [link["mention"] for link in loaded("link", "--file", str(mentions), "--json").lines()] == [
        "NYC",
        "",
        "New York",
    ]

    mentions.write_bytes("São Paulo\n".encode() + b"Z\xfcrich\n")
    refused = loaded("link", "--file", str(mentions))

    assert refused.status == 1
    assert f"{mentions}:2: not UTF-8" in refused.err


@pytest.mark.parametrize("encoding, found", [("cp1252", "cp1252"), ("utf-16", "utf-16-le")])
def test_mentions_of_a_file_are_read_in_the_encoding_that_it_has(
    loaded: Run, tmp_path: Path, encoding: str, found: str
) -> None:
    """As a base is, for lines and for a column of a table; what it was is said."""
    text = "Name;Ort\nNYC;Zürich\nNew York;Genève\nMünchen;Köln\n"
    (tmp_path / "lines.txt").write_bytes(text.encode(encoding))
    (tmp_path / "table.csv").write_bytes(text.encode(encoding))

    lines = loaded("link", "--file", str(tmp_path / "lines.txt"), "--json")
    column = loaded("link", "--file", str(tmp_path / "table.csv"), "--property", "name=Name", "--json")

    assert [one["mention"] for one in lines.lines()] == text.splitlines()
    assert [one["mention"] for one in column.lines()] == ["NYC", "New York", "München"]
    assert f"lines.txt is not UTF-8; it was read as {found}." in lines.err
    assert f"read as {found}" in column.err


def test_a_table_whose_lines_are_linked_is_noted(loaded: Run, tmp_path: Path) -> None:
    """One line says so, and how a column is linked; not for a list in a .csv file, nor where a column is named."""
    for name, text in (("a.csv", '"Company";"City"\n"NYC;x"\n'), ("a.tsv", "Company\tCity\nNYC\tx\n")):
        (tmp_path / name).write_text(text, "utf-8")
        noted = loaded("link", "--file", str(tmp_path / name), "--json")
        assert noted.err.count("\n") == 1
        assert "looks like a table (Company, City)" in noted.err
        assert "--property name=Company links a column" in noted.err
        assert len(noted.lines()) == 2
        assert "looks like" not in loaded("link", "--file", str(tmp_path / name), "--property", "name=Company").err
    for name, text in (("b.csv", "NYC\nNew York, NY\nParis\n"), ("b.txt", "Company;City\nNYC;x\n")):
        (tmp_path / name).write_text(text, "utf-8")
        assert loaded("link", "--file", str(tmp_path / name)).err == ""


def test_link_splits_lists(loaded: Run) -> None:
    """`--set split=yes` links each name of a list, in words and in JSON; without it a list is NIL."""
    (whole,) = loaded("link", "NYC; NYTimes", "--json").lines()
    (split,) = loaded("link", "NYC; NYTimes", "--set", "split=yes", "--json").lines()

    assert (whole["nil_reason"], "parts" in whole) == ("several_names", False)
    assert [one["entity_id"] for one in split["parts"]] == ["nyc", "nyt"]
    words = loaded("link", "NYC; NYTimes", "--set", "split=yes").out
    assert words.startswith("NYC; NYTimes  ->  NIL (several names)\n    NYC  ->  New York  [nyc]")


def test_columns_of_a_table_count_beside_the_mentions(loaded: Run, tmp_path: Path) -> None:
    """`--property` names a column of a table, or the value of one mention; a wrong name is refused with those known."""
    table = tmp_path / "rows.csv"
    table.write_bytes(b'Kind,Name\ncity,NYC\n,"New York"\n')
    given = ("--property", "name=Name", "--property", "kb_types=Kind", "--json")
    first, second = loaded("link", "--file", str(table), *given).lines()

    assert (first["mention"], second["mention"]) == ("NYC", "New York")
    assert "kb_types" in first["candidates"][0]["properties"]
    assert "properties" not in second["candidates"][0]
    one = loaded("link", "NYC", "--property", "kb_types=city", "--json").lines()[0]
    assert one["candidates"][0]["properties"] == first["candidates"][0]["properties"]
    for wrong, text in (("kb_types=Nothing", "no column 'Nothing'; it has: Kind, Name"), ("x", "NAME=VALUE")):
        refused = loaded("link", "--file", str(table), "--property", wrong)
        assert refused.status == 2
        assert text in " ".join(refused.err.split())


def test_a_table_without_a_named_column_is_read_as_a_whole(loaded: Run, tmp_path: Path) -> None:
    """The column of names is found, not the first one, and stderr says which, and how much of it is in the base."""
    table = tmp_path / "rows.csv"
    table.write_text(
        "order;note;paper;kind\n1;urgent;NYTimes;newspaper\n2;late;nytimes.com;newspaper\n3;late;qqq zzz;\n"
    )
    found = loaded("link", "--file", str(table), "--property", "kb_types=kind", "--json")

    assert [one["mention"] for one in found.lines()] == ["NYTimes", "nytimes.com", "qqq zzz"]
    assert "Names are in column 'paper': 2 of 3 values are in the base." in found.err


def test_a_model_that_changed_in_its_folder_is_reported(
    loaded: Run, base: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the model has changed; PEARL_QDRANT_MODEL with the old one works."""
    moved = tmp_path / "moved"
    shutil.copytree(model, moved)
    assert loaded("ingest", str(base), "--model", str(moved), "--collection", "mine").status == 0
    old = tmp_path / "old"
    moved.rename(old)
    make_pearl(moved, seed=99)

    refused = loaded("link", "NYC", "--collection", "mine")
    monkeypatch.setenv("PEARL_QDRANT_MODEL", str(old))
    added = loaded("entities", "add", "--id", "x", "--name", "X", "--collection", "mine")

    assert "has changed since: query with the old one" in refused.err
    assert "pearl-qdrant reencode mine --model MODEL" in refused.err
    assert added.status == 0, added.err
    assert loaded("collections", "verify", "mine").status == 0


def test_a_dry_run_only_counts(run: Run, base: Path, model: Path) -> None:
    """`--dry-run` needs no model and writes nothing; nor does a run with more bad rows than --max-errors."""
    base.write_text(BASE + "\tno id\tORG\t\t\n", encoding="utf-8")
    outcome = run("ingest", str(base), "--dry-run", "--json", "--model", "not-there")

    assert outcome.status == 0, outcome.err
    assert outcome.lines()[0]["skipped"] == {"no_id": 1}
    assert f"{base}:5: no_id" in outcome.err
    too_many = run("ingest", str(base), "--model", str(model), "--max-errors", "0")
    assert (too_many.status, f"{base}:5" in too_many.err) == (1, True)
    assert run("collections", "list").out == ""


def test_restart_loads_again(loaded: Run, base: Path, model: Path) -> None:
    """`--restart --yes` deletes the older contents; without --yes it asks."""
    base.write_text("id\tname\nnyt\tThe New York Times\n", encoding="utf-8")
    declined = loaded("ingest", str(base), "--model", str(model), "--restart", stdin=b"n\n")
    assert declined.status == 1
    assert loaded("collections", "show", "base", "--json").lines()[0]["points"] == 7

    assert loaded("ingest", str(base), "--model", str(model), "--restart", "--yes").status == 0
    assert loaded("collections", "show", "base", "--json").lines()[0]["points"] == 1


def test_collections_can_be_shown_verified_and_deleted(loaded: Run) -> None:
    """A collection can be listed, shown, verified, finalized and deleted."""
    (listed,) = loaded("collections", "list", "--json").lines()
    assert (listed["collection"], listed["state"], listed["names"]) == ("base", "ready", 7)
    shown = loaded("collections", "show", "base")
    assert "state  ready" in shown.out
    assert "newspaper 3" in shown.out
    assert "calibration  as shipped with the package" in shown.out
    assert max(map(len, shown.out.splitlines())) < 200, "no tables of bytes"
    verified = loaded("collections", "verify", "base")
    assert (verified.status, "7 points, complete, indexed, model verified" in verified.out) == (0, True), verified.out
    assert loaded("collections", "finalize", "base").status == 0
    unconfirmed = loaded("collections", "delete", "base")
    assert (unconfirmed.status, "--yes" in unconfirmed.err) == (1, True)
    assert "base" in loaded("collections", "list").out
    assert loaded("collections", "delete", "base", stdin=b"n\n").status == 1
    assert loaded("collections", "delete", "base", "--yes").status == 0
    assert loaded("collections", "list").out == ""


def test_what_verify_advises_brings_lost_names_back(loaded: Run, base: Path, tmp_path: Path) -> None:
    """Names that were deleted behind our back: the command that `verify` names writes them again."""
    with closing(open_store(tmp_path / "store")) as store, closing(store.open("base")) as collection:
        collection.delete_points({point.id for point in collection.find(entity_ids=["nyt"], limit=9)})
    verified = loaded("collections", "verify", "base")
    command = verified.out.splitlines()[0].partition("pearl-qdrant ")[2].split()
    again = loaded(*[str(base) if word == "FILE" else word for word in command], "--yes")

    assert verified.status == 1
    assert again.status == 0, again.err
    assert loaded("collections", "verify", "base").status == 0


@pytest.mark.parametrize("name", ["a/b", "x" * 300, "a?b"])
@pytest.mark.parametrize("store", ["store", "http://127.0.0.1:9"])
def test_a_name_that_no_store_takes_is_refused_at_once(run: Run, base: Path, name: str, store: str) -> None:
    """A collection's name is refused before the model is loaded or a server is asked."""
    for more in ((), ("--dry-run",)):
        words = ["ingest", str(base), "--collection", name, "--store", store, "--model", "no-such-model"]
        refused = run(*words, *more)

        assert refused.status == 1
        assert "cannot be the name of a collection" in refused.err
        assert "header" not in refused.err


def test_entities_can_be_added_shown_and_deleted(loaded: Run) -> None:
    """Changes of single entities take effect at once; of those to delete, unknown ones are named."""
    added = loaded("entities", "add", "--id", "acme", "--name", "aspirin", "--alias", "post city", "--type", "company")
    assert added.status == 0, added.err
    (link,) = loaded("link", "aspirin", "--json", "--threshold", "0").lines()
    assert link["entity_id"] == "acme"
    shown = loaded("entities", "show", "acme", "--json").lines()[0]
    assert (shown["aliases"], shown["kb_types"], shown["types"]) == (["post city"], ["company"], ["ORG"])
    assert loaded("entities", "delete", "acme", "--yes").status == 0
    gone = loaded("entities", "show", "acme")
    assert (gone.status, "No entity 'acme'" in gone.err) == (1, True)
    some = loaded("entities", "delete", "nyc", "nowhere", "--collection", "base", "--yes")
    assert (some.status, "Deleted 3 names." in some.err, "not found: nowhere" in some.err) == (1, True, True)
    assert loaded("collections", "verify", "base").status == 0


def test_errors_have_a_fix(loaded: Run, tmp_path: Path) -> None:
    """A wrong name, model or file gives one clear line on stderr and status 1, never a traceback."""
    for words, expected in (
        (["link", "x", "--collection", "bsae"], "there are: base"),
        (["link", "x", "--set", "model=no-such-model"], "no-such-model"),
        (["ingest", str(tmp_path / "none.tsv")], "none.tsv"),
        (["collections", "show", "nope"], "Create it with"),
        (["models", "show", "pearl-mni-en"], "pearl-mni-en"),
    ):
        outcome = loaded(*words)
        assert (outcome.status, outcome.out) == (1, ""), outcome.err
        assert expected in outcome.err
        assert "Traceback" not in outcome.err
        assert outcome.err.startswith("Error: ")


def test_usage_errors_are_status_2(loaded: Run) -> None:
    """A wrong option has another status than a failed run."""
    assert loaded("link").status == 2
    assert loaded("link", "x", "--limit", "0").status == 2
    assert loaded("frobnicate").status == 2


def test_doctor_names_the_fix(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` passes if everything works, and otherwise says what to do."""
    healthy = run("doctor", "--model", str(model), "--json")
    assert healthy.status == 0, healthy.out
    assert {line["check"] for line in healthy.lines()} >= {"python", "qdrant-edge-py", "model", "store", "torch"}

    broken = run("doctor", "--model", "no-such-model", "--store", "http://127.0.0.1:1")
    assert broken.status == 1
    assert " fail  model" in broken.out
    assert "docker compose up -d" in broken.out


def test_the_same_commands_work_on_a_server(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a URL as the store, the commands do the same as with an embedded one, even if a request is dropped."""
    with QdrantDouble() as server:
        monkeypatch.setenv("PEARL_QDRANT_STORE", server.url)
        server.faults.append(Fault("apply_then_drop"))
        ingested = run("ingest", str(base), "--model", str(model), "--json")
        assert ingested.status == 0, ingested.err
        assert ingested.lines()[0]["points"] == 7
        (link,) = run("link", "NYTimes", "--json", "--threshold", "0").lines()
        assert link["entity_id"] == "nyt"
        (filtered,) = run("link", "NYTimes", "--type", "city", "--json", "--threshold", "0").lines()
        assert filtered["entity_id"] == "nyc"
        assert run("entities", "delete", "nyc", "--yes").status == 0
        assert run("collections", "show", "base", "--json").lines()[0]["points"] == 4
        assert run("ingest", str(base), "--model", str(model)).status == 0
        assert run("collections", "verify", "base").status == 0
    gone = run("doctor", "--model", str(model))
    assert gone.status == 1
    assert "did not answer" in gone.out


def test_ingest_reads_compressed_files_and_stdin(run: Run, tmp_path: Path, model: Path) -> None:
    """A .gz file is decompressed, and `-` reads a pipe."""
    path = tmp_path / "names.tsv.gz"
    path.write_bytes(gzip.compress(BASE.encode()))

    assert run("ingest", str(path), "--model", str(model)).status == 0
    piped = run("ingest", "-", "--collection", "piped", "--model", str(model), "--json", stdin=BASE.encode())

    assert piped.status == 0, piped.err
    assert piped.lines()[0]["points"] == 7
    listed = run("collections", "list", "--json").lines()
    assert [(one["collection"], one["names"]) for one in listed] == [("names", 7), ("piped", 7)]
    assert run("ingest", "-", stdin=BASE.encode()).status == 2, "standard input has no name"
