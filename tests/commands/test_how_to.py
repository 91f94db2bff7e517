"""The pages on how to do something: their commands and their Python run, on collections and files made for them."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Run
from evaluation_data import make_evaluation_data
from printed_output import assert_shown
from qdrant_double import QdrantDouble

from pearl_qdrant import Entity, EntityLinker, load_base, read_entities
from pearl_qdrant.linking.calibration import calibrate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # s: a page is up to twenty commands

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "examples" / "sample_base.tsv"

PAGES = (
    *("accuracy", "calibration", "crosswalk", "documents", "learned-names", "linking", "models", "moving-collections"),
    *("operations", "python-api", "resolve", "service", "tables"),
    *("bases/index", "bases/known", "bases/tables"),
)

OF_SHIPPED = ("documents", "learned-names", "linking", "models", "service")
"""Pages on `demo`, or on the model that ships; elsewhere a tiny one takes less time."""

LEFT_OUT = (
    r"pearl-qdrant (serve|mcp)\b|\bserve\(",  # does not end; tests/service and tests/integrations start it
    r"10\.0\.0\.5|shards=",  # another machine, or several
    r"ray=|--ask",  # a cluster; a person
    r"Lihuchen|intfloat|CrossEncoder",  # a model of the hub
    r"\b(Refresh|Fit|Ulr|Corpus)(Request|Options)\b",  # training takes minutes; tests/fitting and tests/ulr
    r"untrained/",  # a model that is worse on purpose
    r"2026AB|\.xlsx",  # a second release; a workbook
    r"--everyday|everyday=|n_mentions",  # minutes; the page `accuracy` evaluates a small base
)
"""What is not run here, and why."""

CONSO = "C0027051|ENG|P|L1|PF|S1|Y|A1|||D1|SNOMEDCT_US|PT|D1|heart attack|0|N||\n"
LIST = ("Acme", "Acme GmbH", "World War 2", "Second World War", "Apple Records", "Apple Records Ltd")
DISEASES = [
    Entity("C0027051", "myocardial infarction", ("heart attack",), ("DISO",), ("OTHER",)),
    Entity("C0026106", "mild cognitive impairment", ("MI",), ("DISO",), ("OTHER",)),
]
OBO = "format-version: 1.2\n\n[Term]\nid: DOID:1\nname: heart failure\n\n[Term]\nid: DOID:2\nname: common cold\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with the files that the pages name, and a store with their collections; only `demo`, of which a page
    shows answers, has the model that ships.
    """
    folder = tmp_path_factory.mktemp("prepared")
    entities = list(read_entities(SAMPLE))
    names = [name for one in entities for name in one.names()]
    store = str(folder / "store")
    load_base(SAMPLE, "demo", store=store)
    rows = SAMPLE.read_text("utf-8").splitlines(keepends=True)
    (folder / "base.tsv").write_text("".join(rows[:40]), "utf-8")
    for name, chosen in (("news", 60), ("umls", 200), ("products", 60), ("doid", 10), ("mondo", 20)):
        EntityLinker.build([*DISEASES, *entities[:chosen]], path=store, collection=name, model=model).close()
    lines = {
        "mentions.txt": names[:400],
        "column.txt": names[:300],
        "products.txt": names[:300],
        "reports.txt": ["She read the NYTimes in NYC."],
        "reports.jsonl": ['{"id": "report-7", "text": "She read the NYTimes."}'],
        "documents.jsonl": ['{"id": 7, "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}'],
        "names.tsv": ["id\tname", *(f"{n}\t{name}" for n, name in enumerate(LIST))],
        "names.json": ['[{"concept_id": "1", "names": [{"value": "aspirin"}, {"value": "ASA"}]}]'],
        "register.csv": ["Nummer;Firma;früher;kurz", "1;Acme GmbH;Acme OHG;Acme"],
        "toys.txt": ["T1\tmain\tteddy bear", "T1\tother\tteddy"],
        "more.tsv": ["name", "ACME", "Apple Records Inc."],
        "labelled.tsv": [f"{one.canonical_name}x\t{one.entity_id}" for one in entities[:60]],
        "doid.obo": OBO.splitlines(),
        "examples.jsonl": ['{"source": "general", "names": ["aspirin", "ASA"], "near": ["ibuprofen", "heparin"]}'] * 4,
        "2026AA/META/MRCONSO.RRF": [CONSO.strip()],
    }
    for path, text in lines.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("".join(f"{line}\n" for line in text), "utf-8")
    make_evaluation_data(folder / "data")
    graphs = ROOT / "examples" / "graph"
    shutil.copytree(graphs / "lightrag", folder / "rag_storage")
    shutil.copy(graphs / "graph.graphml", folder)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.py"))
    return folder


def is_left_out(text: str) -> bool:
    """Whether a command or a block is not for here."""
    return any(re.search(one, text) for one in LEFT_OUT)


@pytest.fixture
def few_mentions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind of mentions that a calibration or an evaluation makes from a base, twenty are enough to run them."""
    from training.evaluation.tasks import linking

    made = linking.made_mentions
    monkeypatch.setattr(linking, "made_mentions", lambda base, _: made(base, 400))
    monkeypatch.setattr(calibrate, "PER_KIND", 20)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a double of a Qdrant server."""
    with QdrantDouble() as double:
        yield double.url


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(
    page: str,
    prepared: Path,
    server: str,
    model: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_mentions: None,
) -> None:
    """Copied from top to bottom it works, where the collections and files that it names are there."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    shutil.copytree(model, tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    if page not in OF_SHIPPED:
        monkeypatch.setenv("PEARL_QDRANT_MODEL", str(tmp_path / "my-model"))
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8").replace("http://localhost:6333", server)
    if page == "tables":
        pl = pytest.importorskip("polars")
        pytest.importorskip("pandas")
        pl.DataFrame({"place": ["NYC", None, "Big Apple"]}).write_parquet("rows.parquet")
    n_run = 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "json":
            Path("toys.json").write_text(block, "utf-8")
        if language == "python" and not is_left_out(block):
            exec(compile(block, f"{page}.md", "exec"), {"__name__": "__main__", "my_model": lambda *_: None})
            n_run += 1
        for line in block.splitlines() if not language else ():
            command, _, into = line.removeprefix("$ ").partition(" > ")
            if command.startswith("pearl-qdrant ") and not is_left_out(command):
                done = run(*shlex.split(command, comments=True)[1:])
                assert done.status == 0, f"{command}\n{done.err}"
                if page == "linking" and line.startswith("$"):
                    shown = block.partition(f"{line}\n")[2]
                    assert_shown(done.out, shown)
                Path(into.partition(" ")[0] or "printed.txt").write_text(done.out, "utf-8")
                n_run += 1

    assert n_run
