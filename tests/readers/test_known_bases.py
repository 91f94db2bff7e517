"""Bases that ship as tables are recognised and read as they ship. All rows are made up."""

# ruff: noqa: E501, ISC004 - rows stand as they ship

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from cli_runner import Run

from ingest.base import format as layouts
from ingest.base.format import ReadOptions, TableColumns, read_bases
from ingest.formats import detect_format, known_bases, open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

CITY = "1\tToyburg\tToyburg\tToyville,Тойбург\t10.1\t20.2\tP\tPPL\tTY\t\t01\t\t\t\t12000\t\t5\tEurope/Toy\t2020-01-01\n"
NAMES = (
    "11\t1\ten\tToyburg City\t1\t\t\t\t\t\n12\t1\tlink\thttp://toy.example\t\t\t\t\t\t\n13\t1\tfi\tLelula\t\t\t\t\t\t\n"
    "14\t2\ten\tElsewhere\t\t\t\t\t\t\n"
)
RF2 = "id\teffectiveTime\tactive\tmoduleId\tconceptId\tlanguageCode\ttypeId\tterm\tcaseSignificanceId\n"
FSN, SYNONYM = "900000000000003001", "900000000000013009"
DESCRIPTIONS = RF2 + "".join(
    f"{i}\t20200101\t{active}\t900\t{concept}\ten\t{kind}\t{term}\t900\n"
    for i, active, concept, kind, term in (
        (1, 1, 70, FSN, "Toy fever (disorder)"),
        (2, 1, 70, SYNONYM, "Fever of toys"),
        (3, 1, 70, SYNONYM, "Toy fever"),
        (4, 0, 70, SYNONYM, "Wrong fever"),
        (5, 1, 71, FSN, "Old fever (disorder)"),
    )
)
REFSET = "id\teffectiveTime\tactive\tmoduleId\trefsetId\treferencedComponentId\tacceptabilityId\n" + "".join(
    f"u{i}\t20200101\t1\t900\t1\t{i}\t{kind}\n"
    for i, kind in ((2, "900000000000549004"), (3, "900000000000548007"), (1, "900000000000548007"))
)
CONCEPTS = "id\teffectiveTime\tactive\tmoduleId\tdefinitionStatusId\n70\t2020\t1\t900\t900\n71\t2020\t0\t900\t900\n"
GENES = "#tax_id\tGeneID\tSymbol\tSynonyms\tdescription\ttype_of_gene\n9606\t7\tTOY1\tT1|TYA\ttoy protein 1\tprotein-coding\n"
TAXA = (
    "7\t|\tToyus sapiens\t|\t\t|\tscientific name\t|\n7\t|\ttoy man\t|\t\t|\tcommon name\t|\n"
    "7\t|\tToyus sapiens Maker, 1758\t|\t\t|\tauthority\t|\n8\t|\tDollus\t|\tDollus <plants>\t|\tscientific name\t|\n"
)
LOINC = (
    '"LOINC_NUM","COMPONENT","CLASS","CONSUMER_NAME","SHORTNAME","LONG_COMMON_NAME","DisplayName"\n'
    '"100-0","Toy","CHEM","Toy, blood","Toy SerPl","Toy [Mass/volume] in Serum","Toy [Mass/Vol]"\n'
)
HGNC = (
    "hgnc_id\tsymbol\tname\tlocus_group\tlocus_type\tstatus\talias_symbol\talias_name\tprev_symbol\tprev_name\n"
    'HGNC:1\tTOY1\ttoy protein 1\tprotein-coding gene\tgene\tApproved\t"T1|TYA"\t"a toy|the toy"\tTOY0\t\n'
    "HGNC:2\tTOY2\tentry withdrawn\twithdrawn\tgene\tEntry Withdrawn\t\t\t\t\n"
)
ROR2 = [
    {
        "id": "https://ror.org/01",
        "names": [
            {"value": "Lelukoulu", "types": ["label"], "lang": "fi"},
            {"value": "Toy School", "types": ["ror_display", "label"], "lang": "en"},
            {"value": "TS", "types": ["acronym"], "lang": None},
        ],
        "types": ["education"],
        "locations": [],
    }
]
ROR1 = [{"id": "https://ror.org/01", "name": "Toy School", "aliases": ["School; of Toys"], "acronyms": ["TS"],
         "labels": [{"label": "Lelukoulu", "iso639": "fi"}], "types": ["Education"]}]  # fmt: skip
FTM = [
    {"id": "NK-1", "caption": "Anna Toyova", "schema": "Person", "properties": {
        "name": ["Anna Toyova"], "alias": ["A. Toyova", "Anja"], "weakAlias": ["Annie"]}},
    {"id": "NK-2", "caption": "1 Toy Street", "schema": "Address", "properties": {"full": ["1 Toy Street"]}},
]  # fmt: skip
SPARQL = {"head": {"vars": ["item", "itemLabel", "type"]}, "results": {"bindings": [
    {"item": {"type": "uri", "value": f"http://www.wikidata.org/entity/Q{q}"},
     "itemLabel": {"xml:lang": "en", "type": "literal", "value": name},
     "type": {"type": "uri", "value": "http://www.wikidata.org/entity/Q5"}}
    for q, name in ((1, "Anna"), (2, "Bob"))]}}  # fmt: skip

CASES: dict[str, tuple[str, str, dict[str, list[str]]]] = {
    "cities.txt": ("geonames", CITY * 2, {"1": ["Toyburg", "Toyville", "Тойбург"]}),
    "Loinc.csv": ("loinc", LOINC, {"100-0": ["Toy [Mass/volume] in Serum", "Toy [Mass/Vol]", "Toy SerPl", "Toy, blood"]}),
    "alternateNames.txt": ("geonames", NAMES, {"1": ["Toyburg City", "Lelula"], "2": ["Elsewhere"]}),
    "names.dmp": ("ncbi-taxonomy", TAXA, {"7": ["Toyus sapiens", "toy man"], "8": ["Dollus"]}),
    "gene_info": ("ncbi-gene", GENES, {"7": ["TOY1", "T1", "TYA", "toy protein 1"]}),
    "hgnc.txt": ("hgnc", HGNC, {"HGNC:1": ["TOY1", "toy protein 1", "T1", "TYA", "a toy", "the toy", "TOY0"]}),
    "descriptions.txt": ("snomed", DESCRIPTIONS, {"70": ["Fever of toys", "Toy fever", "Toy fever (disorder)"],
                                                  "71": ["Old fever (disorder)"]}),
    "ror2.json": ("ror", json.dumps(ROR2, indent=1), {"https://ror.org/01": ["Toy School", "Lelukoulu", "TS"]}),
    "ror1.json": ("ror", json.dumps(ROR1), {"https://ror.org/01": ["Toy School", "School; of Toys", "TS", "Lelukoulu"]}),
    "entities.ftm.json": ("opensanctions", "\n".join(map(json.dumps, FTM)),
                          {"NK-1": ["Anna Toyova", "A. Toyova", "Anja", "Annie"]}),
    "targets.simple.csv": ("opensanctions", '"id","schema","name","aliases","birth_date","countries"\n'
                           '"NK-1","Person","Anna Toyova","A. Toyova;Anja","1970","fi;se"\n',
                           {"NK-1": ["Anna Toyova", "A. Toyova", "Anja"]}),
    "airlines.dat": ("openflights", '1,"Toy Air",\\N,"TA","TOA","TOY","Toyland","Y"\n2,"Doll Air","Dolly","","","","","N"\n',
                     {"1": ["Toy Air"], "2": ["Doll Air", "Dolly"]}),
    "edges.tsv": ("kgtk", "id\tnode1\tlabel\tnode2\ne1\tQ1\tlabel\t'Toyland Anna'@en\ne2\tQ1\talias\t'Anna of Toyland'@en\n"
                  "e3\tQ1\tP31\tQ5\ne4\tQ1\tdescription\t'toy singer'@en\n", {"Q1": ["Toyland Anna", "Anna of Toyland"]}),
    "yagoLabels.tsv": ("yago3", '<id_1>\t<Toy_Town>\tskos:prefLabel\t"Toy Town"@eng\n'
                       '<id_2>\t<Toy_Town>\trdfs:label\t"Toyburg"@eng\n<id_3>\t<Toy_Town>\trdf:type\t<wordnet_city>\n',
                       {"Toy_Town": ["Toy Town", "Toyburg"]}),
    "codes.json": ("fhir", json.dumps({"resourceType": "CodeSystem", "id": "toys", "name": "Toys", "concept": [
                       {"code": "T1", "display": "Toy", "designation": [{"value": "Lelu"}],
                        "concept": [{"code": "T2", "display": "Doll"}]}]}), {"T1": ["Toy", "Lelu"], "T2": ["Doll"]}),
    "set.json": ("fhir", json.dumps({"resourceType": "ValueSet", "id": "toys", "name": "Toys", "expansion": {"contains": [
                     {"system": "http://t", "code": "T1", "display": "Toy"}]}}), {"T1": ["Toy"]}),
    "map.json": ("fhir", json.dumps({"resourceType": "ConceptMap", "id": "toys", "group": [{"element": [
                     {"code": "T1", "display": "Toy", "target": [{"code": "X"}]}]}]}), {"T1": ["Toy"]}),
    "company_tickers.json": ("sec", json.dumps({str(i): {"cik_str": 90 + i, "ticker": f"TY{i}", "title": f"Toy {i}"}
                                                for i in range(2)}), {"90": ["Toy 0", "TY0"], "91": ["Toy 1", "TY1"]}),
    "lei.json": ("lei", json.dumps({"records": [{"LEI": {"$": f"5299{i}"}, "Entity": {
                     "LegalName": {"@xml:lang": "de", "$": f"Toy {i} AG"},
                     "OtherEntityNames": {"OtherEntityName": [{"@type": "TRADING", "$": f"TW{i}"}]}}} for i in range(2)]}),
                 {"52990": ["Toy 0 AG", "TW0"], "52991": ["Toy 1 AG", "TW1"]}),
    "patterns.jsonl": ("spacy", '{"label": "ORG", "pattern": "Toy Works"}\n{"label": "GPE", "pattern": "Toyland"}\n',
                       {"Toy Works": ["Toy Works"], "Toyland": ["Toyland"]}),
    "export.csv": ("bioportal", "Class ID,Preferred Label,Synonyms,Definitions,Obsolete,CUI,Semantic Types,Parents\n"
                   "http://t/1,toy fever,fever of toys|toy pyrexia,A fever.,false,,,\nhttp://t/2,old fever,,,true,,,\n",
                   {"http://t/1": ["toy fever", "fever of toys", "toy pyrexia"]}),
    "sdn.csv": ("ofac", '36,"TOY LINES","-0- ","CUBA",-0- ,-0- ,-0- ,-0- ,-0- ,-0- ,-0- ,-0- \n'
                '37,"TOY, Anna","individual","SDGT",-0- ,-0- ,-0- ,-0- ,-0- ,-0- ,-0- ,-0- \n',
                {"36": ["TOY LINES"], "37": ["TOY, Anna"]}),
    "toys.gaf": ("gaf", "!gaf-version: 2.2\n" + "UniProtKB\tP1\tTOY1\tenables\tGO:0001\tPMID:1\tIEA\t\tF\tToy protein\tTP1|TPX"
                 "\tprotein\ttaxon:9606\t20240101\tTOY\t\t\n" * 2, {"P1": ["TOY1", "Toy protein", "TP1", "TPX"]}),
    "en_product1.xml": ("orphanet", """<?xml version="1.0"?><JDBOR><DisorderList count="2"><Disorder id="7">
        <OrphaCode>91</OrphaCode><Name lang="en">Toy fever</Name><SynonymList count="1"><Synonym lang="en">TF</Synonym>
        </SynonymList><DisorderType id="1"><Name>Disease</Name></DisorderType></Disorder><Disorder id="8">
        <OrphaCode>92</OrphaCode><Name lang="en">Doll fever</Name><SynonymList count="0"/></Disorder></DisorderList>
        </JDBOR>""", {"91": ["Toy fever", "TF"], "92": ["Doll fever"]}),
    "toys.xml": ("claml", """<!DOCTYPE ClaML SYSTEM "ClaML.dtd"><ClaML><Title>Toys</Title>
        <Class code="A1" kind="category"><Rubric kind="preferred"><Label xml:lang="en">Toy <Reference>fever</Reference>
        </Label></Rubric></Class><Class code="A2" kind="block"><Rubric kind="preferred"><Label>Dolls</Label></Rubric>
        <Rubric kind="inclusion"><Label>puppets</Label></Rubric></Class></ClaML>""",
        {"A1": ["Toy fever"], "A2": ["Dolls", "puppets"]}),
    "full database.xml": ("drugbank", """<drugbank xmlns="http://www.drugbank.ca"><drug type="biotech"><drugbank-id
        primary="true">DB1</drugbank-id><drugbank-id>BTD1</drugbank-id><name>Toyin</name><description>A toy.
        </description><synonyms><synonym language="english">Toycin</synonym></synonyms></drug><drug>
        <drugbank-id primary="true">DB2</drugbank-id><name>Dollin</name><description/><synonyms/></drug></drugbank>""",
        {"DB1": ["Toyin", "Toycin"], "DB2": ["Dollin"]}),
    "query.json": ("wikidata-sparql", json.dumps(SPARQL), {"Q1": ["Anna"], "Q2": ["Bob"]}),
    "query.tsv": ("wikidata-sparql", '?item\t?itemLabel\t?itemAltLabel\n<http://www.wikidata.org/entity/Q1>\t"Anna"@en\t"Ann, Annie"@en\n',
                  {"Q1": ["Anna", "Ann", "Annie"]}),
    "attack.json": ("stix", json.dumps({"type": "bundle", "id": "bundle--1", "objects": [
                    {"type": "tool", "id": "tool--1", "name": "Toy Kit", "created_by_ref": "identity--1",
                     "x_mitre_aliases": ["Toy Kit", "Kit"],
                     "external_references": [{"source_name": "mitre-attack", "external_id": "S9"}]},
                    {"type": "relationship", "id": "relationship--1", "source_ref": "tool--1"}]}),
                    {"tool--1": ["Toy Kit", "Kit", "S9"]}),
    "title.akas.tsv": ("imdb", "titleId\tordering\ttitle\tregion\tlanguage\ttypes\tattributes\tisOriginalTitle\n"
                       "tt1\t1\tLelu\tFI\tfi\timdbDisplay\t\\N\t0\ntt1\t2\tToy\t\\N\t\\N\toriginal\t\\N\t1\n",
                       {"tt1": ["Toy", "Lelu"]}),
    "query.csv": ("wikidata-sparql", "item,itemLabel,itemAltLabel\nhttp://www.wikidata.org/entity/Q1,Anna,\"Ann, Annie\"\n",
                  {"Q1": ["Anna", "Ann", "Annie"]}),
}  # fmt: skip


def read(*paths: Path, kind: str = "auto", report: ReadReport | None = None, **options: object) -> dict[str, Entity]:
    """The entities of a base by id."""
    with open_reader(paths, kind, ReadOptions(**options)) as reader:  # type: ignore[arg-type]
        return {entity.entity_id: entity for entity in reader.read(report or ReadReport())}


@pytest.mark.parametrize("name", CASES)
def test_a_base_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    """Its content shows which it is; the names are those that people know, the preferred one first."""
    kind, content, expected = CASES[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    (tmp_path / "other").write_text(content, encoding="utf-8")
    report = ReadReport()

    found = read(path, report=report)

    assert {key: list(entity.names()) for key, entity in found.items()} == expected
    assert detect_format([path]) == detect_format([tmp_path / "other"]) == kind
    assert report.skipped == {}
    assert report.conflicting_names == 0
    assert read(path, kind=kind) == found


def test_every_known_base_has_a_case() -> None:
    """A base that is added to the table is tried here, and `ingest --format help` lists it."""
    assert (
        {kind for kind, _, _ in CASES.values()}
        == {base.name for base in layouts.known_tables()}
        == {b.name for b in known_bases()}
    )


def test_types_descriptions_and_languages_are_taken(tmp_path: Path) -> None:
    """Columns of types, types in brackets, and statements about types; a tag as in 'text'@en is the language of the
    name, and a table without tags states none.
    """
    for name, expected in (("cities.txt", "PPL"), ("descriptions.txt", "disorder"), ("edges.tsv", "Q5"),
                           ("query.json", "Q5"), ("ror2.json", "education"), ("gene_info", "protein-coding")):  # fmt: skip
        path = tmp_path / name
        path.write_text(CASES[name][1], encoding="utf-8")
        entity = next(iter(read(path).values()))

        assert expected in entity.kb_types, name
        if name == "edges.tsv":
            assert entity.description == "toy singer"
            assert entity.languages == {"Toyland Anna": "en", "Anna of Toyland": "en"}
    for name, languages in (("yagoLabels.tsv", {"Toy Town": "en", "Toyburg": "en"}), ("query.csv", {}),
                            ("query.tsv", {"Anna": "en", "Ann": "en", "Annie": "en"})):  # fmt: skip
        path = tmp_path / name
        path.write_text(CASES[name][1], encoding="utf-8")
        assert next(iter(read(path).values())).languages == languages


def test_alternate_names_belong_to_the_places_beside_them(tmp_path: Path) -> None:
    """With a file of places, names of other places are left out; languages choose among the names."""
    cities, names = tmp_path / "cities.txt", tmp_path / "alternateNames.txt"
    cities.write_text(CITY)
    names.write_text(NAMES)

    for found in (read(cities, names), read(names, cities)):
        assert list(found) == ["1"]
        assert found["1"].canonical_name == "Toyburg"
    assert list(read(cities, names)["1"].names()) == ["Toyburg", "Toyville", "Тойбург", "Toyburg City", "Lelula"]
    assert list(read(names, languages=("fi", "en"))["1"].names()) == ["Lelula", "Toyburg City"]
    assert list(read(names, languages=("fi",))["1"].names()) == ["Lelula"]
    assert read(cities, names)["1"].languages == {"Toyburg City": "en", "Lelula": "fi"}


@pytest.mark.parametrize("form", ["folder", "zip", "files"])
def test_a_release_of_snomed_is_joined(tmp_path: Path, form: str) -> None:
    """The language set says which name is preferred, the file of concepts which are active."""
    files = {
        "Snapshot/Terminology/sct2_Description_Snapshot-en_X.txt": DESCRIPTIONS,
        "Snapshot/Terminology/sct2_Concept_Snapshot_X.txt": CONCEPTS,
        "Snapshot/Refset/Language/der2_cRefset_LanguageSnapshot-en_X.txt": REFSET,
        "Full/Terminology/sct2_Description_Full-en_X.txt": DESCRIPTIONS.replace("Fever of toys", "Older fever"),
    }
    if form == "zip":
        with zipfile.ZipFile(tmp_path / "base.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        paths = [tmp_path / "base.zip"]
    else:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        paths = [tmp_path] if form == "folder" else [tmp_path / name for name in files if not name.startswith("Full")]

    found = read(*paths)

    assert detect_format(paths) == "snomed"
    assert {key: list(entity.names()) for key, entity in found.items()} == {
        "70": ["Toy fever", "Fever of toys", "Toy fever (disorder)"]
    }
    assert found["70"].kb_types == ("disorder",)


def test_options_go_before_the_known_columns(tmp_path: Path) -> None:
    """Who names columns gets these alone; what the base leaves out stays left out."""
    path = tmp_path / "hgnc.txt"
    path.write_text(HGNC)

    found = read(path, columns=TableColumns(id="hgnc_id", name="symbol", aliases=("prev_symbol",)))

    assert {key: list(entity.names()) for key, entity in found.items()} == {"HGNC:1": ["TOY1", "TOY0"]}


def test_a_new_base_is_a_file_of_ten_lines(run: Run, tmp_path: Path) -> None:
    """A stranger describes the files of a base of their own, as the documentation shows, and all else follows."""
    page = (Path(__file__).parents[2] / "docs" / "bases" / "known.md").read_text(encoding="utf-8")
    layout, rows, other = tmp_path / "toys.json", tmp_path / "toys.txt", tmp_path / "other.csv"
    layout.write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    rows.write_text("T1;main;Kite\nT1;other;Paper bird\nT1;maker;Anna\nT2;main;Top\n")
    other.write_text("id,name\n1,x\n")
    toys, report = read_bases(layout), ReadReport()

    found = read(rows, bases=toys, report=report)
    done = run("ingest", str(rows), "--set", f"layouts={layout}", "--dry-run", "--json")
    layout.write_text(layout.read_text().replace("patterns", "pattern"))
    failed = run("ingest", str(rows), "--set", f"layouts={layout}", "--dry-run")

    assert {key: list(one.names()) for key, one in found.items()} == {"T1": ["Kite", "Paper bird"], "T2": ["Top"]}
    assert "the register of toys" in report.notes[0]
    assert detect_format([rows], ReadOptions(bases=toys)) == "toys"
    with pytest.raises(FormatError, match="is no file of the register of toys"):
        read(other, kind="toys", bases=toys)
    assert done.status == 0, done.err
    assert (done.lines()[0]["entities"], done.lines()[0]["names"]) == (2, 3)
    assert "the register of toys" in done.err
    assert failed.status == 1
    assert "unknown field `pattern`" in failed.err


@pytest.mark.parametrize("reverse", [False, True])
def test_files_that_say_one_thing_each_are_put_together(tmp_path: Path, reverse: bool) -> None:
    """Labels and types of YAGO 3 are two files; their order does not matter."""
    labels, types = tmp_path / "yagoLabels.tsv", tmp_path / "yagoTypes.tsv"
    labels.write_text('<id_1>\t<Toyburg>\trdfs:label\t"Toyburg"@eng\t\n')
    types.write_text("<id_5>\t<Toyburg>\trdf:type\t<wikicat_Toys>\t\n")
    paths = [types, labels] if reverse else [labels, types]

    with open_reader(paths) as reader:
        (entity,) = reader.read(ReadReport())
    assert (entity.canonical_name, entity.kb_types) == ("Toyburg", ("wikicat_Toys",))


def test_withdrawn_organisations_are_left_out(tmp_path: Path) -> None:
    """They are counted; those without a status stay."""
    rows = [{**ROR1[0], "status": "withdrawn"}, {**ROR1[0], "id": "https://ror.org/02", "status": "active"}]
    (tmp_path / "ror.json").write_text(json.dumps(rows))
    report = ReadReport()

    with open_reader([tmp_path / "ror.json"]) as reader:
        assert [entity.entity_id for entity in reader.read(report)] == ["https://ror.org/02"]
    assert report.filtered == {"other_row": 1}
