"""The command line, as a user types it: ingest, link, care for collections and entities."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from tiny_models import make_pearl

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


@pytest.fixture
def loaded(run: Run, base: Path, model: Path) -> Run:
    """With the base ingested."""
    assert run("ingest", str(base), "--model", str(model)).status == 0
    return run


def test_ingest_reports_what_it_did(run: Run, base: Path, model: Path) -> None:
    """`ingest --json` ends with one line of counts, and talks on stderr only."""
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
    assert {"seconds", "encode_seconds", "index_seconds", "names_per_second", "model", "device"} <= report.keys()
    assert "with phrase types" in outcome.err


def test_link_answers_in_words_and_in_json(loaded: Run) -> None:
    """A linked mention shows its entity; as JSON it has every field of the contract."""
    words = loaded("link", "nytimes.com", "--threshold", "0")
    assert words.status == 0, words.err
    assert "nytimes.com  ->  The New York Times  [nyt]" in words.out

    (link,) = loaded("link", "NYC", "--json", "--threshold", "0", "--limit", "2").lines()
    assert link["entity_id"] == "nyc"
    assert link.keys() == {"mention", "entity_id", "canonical_name", "probability", "nil_reason", "candidates", "kb"}
    candidates = link["candidates"]
    assert isinstance(candidates, list)
    assert len(candidates) == 2
    assert (
        list(candidates[0])
        == (
            "entity_id kb canonical_name name kb_types types phrase_type type_probability description dense_score "
            "lexical_score score probability tie"
        ).split()
    )


def test_with_several_collections_an_answer_says_whose_id_it_is(loaded: Run, base: Path, model: Path) -> None:
    """The same id in two bases is two entities: the base stands beside it."""
    second = base.with_name("second.tsv")
    second.write_text("id\tname\tkind\nnyt\tNew Yorkshire Terrier\tdog\n", encoding="utf-8")
    assert loaded("ingest", str(second), "--model", str(model)).status == 0
    both = ("--collection", "base", "--collection", "second", "--threshold", "0")

    words = loaded("link", "New Yorkshire Terrier", *both).out
    (link,) = loaded("link", "New Yorkshire Terrier", *both, "--json").lines()
    noted = loaded("annotate", "A New Yorkshire Terrier.", "--threshold", "0", *both[:4])

    assert "->  New Yorkshire Terrier  [second: nyt]" in words
    assert "lexical  base    id" in words
    assert (link["entity_id"], link["kb"]) == ("nyt", "second")
    assert "[second: nyt]" in noted.out, noted.err


def test_mentions_of_a_file_are_utf_8_with_or_without_a_mark(loaded: Run, tmp_path: Path) -> None:
    """A byte order mark is no part of a mention; what is not UTF-8 is named by its line."""
    mentions = tmp_path / "mentions.txt"
    mentions.write_bytes(b"\xef\xbb\xbfNYC\r\n\nNew York\n")
    assert [link["mention"] for link in loaded("link", "--file", str(mentions), "--json").lines()] == [
        "NYC",
        "New York",
    ]

    mentions.write_bytes(b"NYC\nZ\xfcrich\n")
    refused = loaded("link", "--file", str(mentions))

    assert refused.status == 1
    assert f"{mentions}:2: not UTF-8" in refused.err


def test_a_name_that_no_collection_can_have_is_refused_before_anything_is_read(run: Run, base: Path) -> None:
    """Not after the whole base was read."""
    refused = run("ingest", str(base), "--collection", "a/b")

    assert refused.status == 1
    assert "cannot be the name of a collection" in refused.err
    assert "header" not in refused.err


def test_a_model_that_changed_in_its_place_is_said_to_have(
    loaded: Run, base: Path, model: Path, tmp_path: Path
) -> None:
    """To query with the very model that is refused helps nobody; `--model` leads to the old one."""
    moved = tmp_path / "moved"
    shutil.copytree(model, moved)
    assert loaded("ingest", str(base), "--model", str(moved), "--collection", "mine").status == 0
    old = tmp_path / "old"
    moved.rename(old)
    make_pearl(moved, seed=99)

    refused = loaded("link", "NYC", "--collection", "mine")
    added = loaded("entities", "add", "--id", "x", "--name", "X", "--collection", "mine", "--model", str(old))

    assert "has changed since: query with the old one" in refused.err
    assert "Option: --model" in refused.err
    assert added.status == 0, added.err
    assert loaded("collections", "verify", "mine", "--model", str(old)).status == 0


def test_nil_says_why(loaded: Run) -> None:
    """A mention without an entity is NIL with a reason, and that is no failure."""
    outcome = loaded("link", "aspirin", "--threshold", "1", "--json")

    assert outcome.status == 0
    assert outcome.lines()[0]["nil_reason"] == "below_threshold"
    assert "NIL (below threshold)" in loaded("link", "aspirin", "--threshold", "1").out


def test_mentions_come_from_a_file_or_stdin(loaded: Run, tmp_path: Path) -> None:
    """One mention a line; blank lines are passed over."""
    path = tmp_path / "mentions.txt"
    path.write_text("NYC\n\nNYTimes\r\n", encoding="utf-8")

    from_file = loaded("link", "--file", str(path), "--json", "--threshold", "0").lines()
    from_stdin = loaded("link", "--file", "-", "--json", "--threshold", "0", stdin=b"NYC\nNYTimes\n").lines()

    assert [link["entity_id"] for link in from_file] == ["nyc", "nyt"]
    assert from_stdin == from_file


def test_a_type_filter_is_obeyed(loaded: Run) -> None:
    """`--type` leaves only entities of that type."""
    (link,) = loaded("link", "NYTimes", "--type", "city", "--json", "--threshold", "0").lines()

    assert link["entity_id"] == "nyc"


def test_ingest_reads_compressed_files_and_stdin(run: Run, tmp_path: Path, model: Path) -> None:
    """A .gz works like the file in it, and `-` reads a pipe."""
    path = tmp_path / "names.tsv.gz"
    path.write_bytes(gzip.compress(BASE.encode()))

    assert run("ingest", str(path), "--model", str(model)).status == 0
    piped = run("ingest", "-", "--collection", "piped", "--model", str(model), "--json", stdin=BASE.encode())

    assert piped.status == 0, piped.err
    assert piped.lines()[0]["points"] == 7
    assert run("collections", "list").out.split() == ["names", "piped"]
    assert run("ingest", "-", stdin=BASE.encode()).status == 2, "standard input has no name"


def test_a_dry_run_only_counts(run: Run, base: Path) -> None:
    """`--dry-run` needs no model and writes nothing."""
    base.write_text(BASE + "\tno id\tORG\t\t\n", encoding="utf-8")
    outcome = run("ingest", str(base), "--dry-run", "--json", "--model", "not-there")

    assert outcome.status == 0, outcome.err
    assert outcome.lines()[0]["skipped"] == {"no_id": 1}
    assert f"{base}:5: no_id" in outcome.err
    assert run("collections", "list").out == ""


def test_too_many_bad_rows_stop_the_run_before_anything_is_written(run: Run, base: Path, model: Path) -> None:
    """Past --max-errors the run ends with status 1, names the row, and leaves no half collection."""
    base.write_text(BASE + "\tno id\tORG\t\t\n", encoding="utf-8")
    outcome = run("ingest", str(base), "--model", str(model), "--max-errors", "0")

    assert outcome.status == 1
    assert f"{base}:5" in outcome.err
    assert run("collections", "list").out == ""


def test_columns_can_be_named(run: Run, tmp_path: Path, model: Path) -> None:
    """A file with other headers is read by naming its columns."""
    path = tmp_path / "odd.tsv"
    path.write_text("Label\tKind\tQID\nThe New York Times\tORG\tQ1\n", encoding="utf-8")
    options = ["--id-column", "QID", "--name-column", "Label", "--type-column", "Kind"]

    assert run("ingest", str(path), *options, "--model", str(model)).status == 0
    assert run("entities", "show", "Q1", "--json").lines()[0]["types"] == ["ORG"]


def test_restart_begins_anew(loaded: Run, base: Path, model: Path) -> None:
    """`--restart --yes` drops what an older file had; without --yes it asks."""
    base.write_text("id\tname\nnyt\tThe New York Times\n", encoding="utf-8")
    declined = loaded("ingest", str(base), "--model", str(model), "--restart", stdin=b"n\n")
    assert declined.status == 1
    assert loaded("collections", "show", "base", "--json").lines()[0]["points"] == 7

    assert loaded("ingest", str(base), "--model", str(model), "--restart", "--yes").status == 0
    assert loaded("collections", "show", "base", "--json").lines()[0]["points"] == 1


def test_another_base_in_the_same_collection_is_refused(loaded: Run, base: Path, model: Path) -> None:
    """Ids of two bases cannot meet in one collection by accident."""
    outcome = loaded("ingest", str(base), "--kb", "other", "--model", str(model))

    assert outcome.status == 2
    assert "holds base 'base', not 'other'" in outcome.err


def test_collections_can_be_seen_verified_and_deleted(loaded: Run) -> None:
    """The life of a collection after its load."""
    assert loaded("collections", "list", "--json").lines() == [{"collection": "base"}]
    shown = loaded("collections", "show", "base")
    assert "state  ready" in shown.out
    assert "newspaper 3" in shown.out
    assert "calibration  as it comes with the package" in shown.out
    assert max(map(len, shown.out.splitlines())) < 200, "no tables of bytes"
    verified = loaded("collections", "verify", "base")
    assert (verified.status, "7 points, complete, indexed, model verified" in verified.out) == (0, True), verified.out
    assert loaded("collections", "finalize", "base").status == 0
    assert loaded("collections", "delete", "base", stdin=b"n\n").status == 1
    assert loaded("collections", "delete", "base", "--yes").status == 0
    assert loaded("collections", "list").out == ""


def test_verify_tells_what_is_wrong(loaded: Run, tmp_path: Path) -> None:
    """A collection whose load did not complete fails `verify`, with the way out."""
    path = tmp_path / "store" / "base" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "state": "loading"}), encoding="utf-8")

    outcome = loaded("collections", "verify", "base")

    assert outcome.status == 1
    assert "Run the same ingest command again" in outcome.out


def test_entities_can_be_added_shown_and_deleted(loaded: Run) -> None:
    """Single entities come and go at once."""
    added = loaded("entities", "add", "--id", "acme", "--name", "aspirin", "--alias", "post city", "--type", "company")
    assert added.status == 0, added.err
    (link,) = loaded("link", "aspirin", "--json", "--threshold", "0").lines()
    assert link["entity_id"] == "acme"
    shown = loaded("entities", "show", "acme", "--json").lines()[0]
    assert (shown["aliases"], shown["kb_types"], shown["types"]) == (["post city"], ["company"], ["ORG"])
    assert loaded("entities", "delete", "acme", "--yes").status == 0
    gone = loaded("entities", "show", "acme")
    assert (gone.status, "No entity 'acme'" in gone.err) == (1, True)


def test_mistakes_get_a_way_out(loaded: Run, tmp_path: Path) -> None:
    """A wrong name, model or file is one clear line on stderr and status 1, never a traceback."""
    for words, expected in (
        (["link", "x", "--collection", "bsae"], "there are: base"),
        (["link", "x", "--model", "no-such-model"], "no-such-model"),
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
    """A wrong option is told apart from a failed run."""
    assert loaded("link").status == 2
    assert loaded("link", "x", "--limit", "0").status == 2
    assert loaded("frobnicate").status == 2


def test_without_a_collection_the_only_one_is_taken_and_several_are_listed(
    loaded: Run, base: Path, model: Path
) -> None:
    """I need not name the collection while there is only one."""
    assert loaded("link", "NYC", "--threshold", "0").status == 0
    assert loaded("ingest", str(base), "--collection", "second", "--model", str(model)).status == 0
    outcome = loaded("link", "NYC")
    assert outcome.status == 2
    assert "base, second" in outcome.err


def test_doctor_names_the_fix(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` passes when all is well, and otherwise says what to do."""
    well = run("doctor", "--model", str(model), "--json")
    assert well.status == 0, well.out
    assert {line["check"] for line in well.lines()} >= {"python", "qdrant-edge-py", "model", "store", "torch"}

    ill = run("doctor", "--model", "no-such-model", "--store", "http://127.0.0.1:1")
    assert ill.status == 1
    assert " fail  model" in ill.out
    assert "docker compose up -d" in ill.out


def test_the_same_commands_work_on_a_server(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a URL as the store, ingest, link, verify and entities do what they do embedded, past a dropped request."""
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


@pytest.mark.parametrize("kind", ["none", "int8", "binary", "turbo"])
def test_vectors_may_be_kept_in_several_ways(run: Run, base: Path, model: Path, kind: str) -> None:
    """Whatever finds the candidates, their scores are those of the whole vectors."""
    assert run("ingest", str(base), "--model", str(model), "--quantization", kind).status == 0

    shown = run("collections", "show", "base", "--json").lines()[0]
    link = run("link", "NYC", "--json").lines()[0]

    assert shown["quantization"] == kind
    candidates = link["candidates"]
    assert isinstance(candidates, list)
    assert candidates[0]["dense_score"] == pytest.approx(1.0, abs=1e-5)


def test_quantization_is_that_of_the_collection(loaded: Run, base: Path, model: Path) -> None:
    """Another one for a collection that exists is refused rather than ignored."""
    outcome = loaded("ingest", str(base), "--model", str(model), "--quantization", "binary")

    assert outcome.status == 2
    assert "keeps its vectors as int8" in outcome.err


def test_a_mention_that_is_no_unicode_does_not_sink_the_others(loaded: Run) -> None:
    """It is NIL, and shown with its bytes escaped."""
    outcome = loaded("link", "bad\udcff", "NYC", "--limit", "1")

    assert outcome.status == 0, outcome.err
    assert "bad\\udcff  ->  NIL (no candidates)" in outcome.out
    assert "NYC  ->" in outcome.out


def test_deleting_what_is_not_there_is_told(loaded: Run) -> None:
    """What is there goes, what is not is named, and the collection is sound afterwards."""
    outcome = loaded("entities", "delete", "nyc", "nowhere", "--collection", "base", "--yes")

    assert outcome.status == 1
    assert "Deleted 3 names." in outcome.err
    assert "not there: nowhere" in outcome.err
    assert loaded("collections", "verify", "base").status == 0


def test_what_cannot_be_asked_is_not_done(loaded: Run) -> None:
    """Without a terminal a deletion needs --yes, and says so."""
    outcome = loaded("collections", "delete", "base")

    assert outcome.status == 1
    assert "--yes" in outcome.err
    assert "base" in loaded("collections", "list").out
