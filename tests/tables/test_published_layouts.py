"""Tables, JSON, XML and YAML as people publish them: read as their owners mean them, or refused in words that help."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from cli_runner import Run
from tables import workbook

from ingest.base.format import ReadOptions, TableColumns
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

N = range(1, 31)
SKOS = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
TOYS = [{"id": f"T{i}", "name": f"Toy {i}"} for i in N]


def read(path: Path, report: ReadReport | None = None, **options: object) -> dict[str, Entity]:
    """The entities of a file, by id."""
    with open_reader([path], options=ReadOptions(**options)) as reader:  # type: ignore[arg-type]
        return {entity.entity_id: entity for entity in reader.read(report or ReadReport())}


def rows(header: str, row: str) -> str:
    """A header, and thirty rows with their number in place of #."""
    return f"{header}\n" + "".join(row.replace("#", f"{i:02}") + "\n" for i in N)


TABLES = {
    "last words": (rows("Symbol|Security Name|Test Issue", "T#|Toy # Inc.|N"), "T03", ["Toy 03 Inc."]),
    "signs in words": (rows("O*NET-SOC Code\tTitle\tDescription", "1#.00\tToy # maker\tToys"), "103.00",
                       ["Toy 03 maker"]),
    "camel case": (rows("nconst\tprimaryName\tbirthYear", "nm#\tAnna #\t1970"), "nm03", ["Anna 03"]),
    "id and name of one thing": (rows("Seq. No.,2022 Code,2022 Title", "#,3#,Toy #"), "303", ["Toy 03"]),
    "one name in all rows": (rows("Disease Name,SourceName,ConceptID", "Toy #,NCBI,C#"), "C03", ["Toy 03"]),
    "tildes": (rows("Ingredient~Route;Form~Trade_Name~Appl_No", "A~B;C~Toy #~N#"), "N03", ["Toy 03"]),
    "an empty id": (rows("CUI,Class ID,Label", ",T#,Toy #"), "T03", ["Toy 03"]),
    "a number for a name": (rows("id,label,common name", "#,7#,Toy #"), "03", ["Toy 03"]),
    "further names": (rows("id,name,trade name,country name", "#,Toy #,Ty #,Toyland"), "03", ["Toy 03", "Ty 03"]),
    "another script": (rows("Код;Наименование;Синонимы", "#;Игрушка #;игр #"), "03", ["Игрушка 03", "игр 03"]),
    "parts of a name": (rows("last name,first name,id,team name", "Toyova,Anna#,P#,Toys"), "P03", ["Anna03 Toyova"]),
    "parts beside a title": (rows("Id;Titel;Nachname;Vorname", "P#;Dr.;Puppe;Anna#"), "P03", ["Anna03 Puppe"]),
    "a person of a company": (rows("company id,company name,first name,last name", "T#,Toy #,Anna,Toyova"), "T03",
                              ["Toy 03"]),
    "an item and its label": (rows("?city\t?cityLabel\t?country", "<t:#>\tToy #\t<t:T>"), "<t:03>", ["Toy 03"]),
    "a symbol beside an id": (rows("Approved symbol,Approved name,HGNC ID", "TY#,Toy #,H:#"), "H:03",
                              ["Toy 03", "TY03"]),
    "words without a sign": (rows("PRODUCTID\tBRANDNAME\tROUTENAME", "P#\tToy #\tORAL"), "P03", ["Toy 03"]),
    "a whole name": (rows("LogicalId;LastName;FirstName;WholeName", "T#;Toy;A;A B Toy #"), "T03", ["A B Toy 03"]),
    "a kind is no id": (rows("Entity Type Code,NPI,Organization Name", "2,N#,Toy #"), "N03", ["Toy 03"]),
    "titles above words": ("Description: x\nDate: 1 March, 2024\n \nCIK|Company Name|Form Type\n" +
                           rows("-------", "1#|Toy #|10-K"), "103", ["Toy 03"]),
    "bars around rows": ("| id | name |\n" + rows("|---|---|", "| T# | Toy # |"), "T03", ["Toy 03"]),
    "a line under the table": (rows("Symbol|Security Name|ETF", "T#|Toy #|N") + "File Creation Time: 1||\n", "T03",
                               ["Toy 03"]),
    "dollars": (rows("code$term$x", "T#$Toy, #$1"), "T03", ["Toy, 03"]),
    "flags": (rows("titleId,title,isOriginalTitle,other name", "t#,Toy #,1,0"), "t03", ["Toy 03"]),
    "tags below": ("id,name,x\n" + rows("#meta +id,#loc +name,#geo", "#,Toy #,1"), "03", ["Toy 03"]),
    "units below": ("id,name,mass,area\n" + rows(",,kg,km2", "#,Toy #,1,2.5"), "03", ["Toy 03"]),
    "kinds of values below": ("id\tname\tmass\n" + rows("string\tstring\tfloat", "#\tToy #\t1"), "03", ["Toy 03"]),
    "a header in comments": ("# Fields:\n# DiseaseName,DiseaseID,Synonyms\n#\n" + rows("Toy,D0,x", "Fever #,D#,f#|g#"),
                             "D03", ["Fever 03", "f03", "g03"]),
    "two headers": ("Code,Name,Description\ncode,name,desc\n" + rows("T0,Toy,x", "T#,Toy #,y"), "T03", ["Toy 03"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_header_is_known_by_its_words(tmp_path: Path, name: str) -> None:
    """The column of ids and that of names are found, and no row is taken for the header or the other way round."""
    text, key, names = TABLES[name]
    path = tmp_path / "base"
    path.write_text(text, encoding="utf-8")

    found = read(path)

    assert len(found) in (30, 31)
    assert list(found[key].names()) == names
    assert found[key].kb_types == ()


def test_a_column_with_gaps_gives_no_ids(tmp_path: Path) -> None:
    """A filled column of ids is taken before it; where there is none, the error says what the column lacks."""
    path = tmp_path / "base.csv"
    body = "".join(f"A{i},Toy {i},{f'K{i}' if i % 3 else ''}\n" for i in N)
    path.write_text(f"local key,name,gps_code\n{body}")
    assert list(read(path))[:3] == ["A1", "A2", "A3"]
    path.write_text(f"place,name,gps_code\n{body}{body}")
    with pytest.raises(FormatError, match="'gps_code' is empty in 20 of the first 60 rows") as refused:
        read(path)
    assert refused.value.option == "id_column"


@pytest.mark.parametrize("header", ["ISO 3,ISO 2,Language Name", "NAICS22,ITEM TEXT", "Fach,Name der Sache,Zahl"])
def test_a_header_of_unknown_words_is_no_entity(tmp_path: Path, header: str) -> None:
    """What stands over numbers, or is called a name, is refused with its columns."""
    path = tmp_path / "base.csv"
    path.write_text(rows(header, ",".join(("1#", "Toy #", "2#")[: header.count(",") + 1])))

    with pytest.raises(FormatError, match="the columns are: ") as refused:
        read(path)

    assert refused.value.option == "id_column"


def test_a_row_that_is_an_entity_stays(tmp_path: Path) -> None:
    """An entity under the header may have words where others have numbers."""
    path = tmp_path / "base.csv"
    path.write_text("id,name,mass\n" + rows("T00,Toy,unknown", "T#,Toy #,1"))

    assert next(iter(read(path))) == "T00"


def test_what_one_record_holds_beside_its_name_is_said(tmp_path: Path) -> None:
    """A schema has a name of its own; the warning names the lists that are not read."""
    path, report = tmp_path / "base", ReadReport()
    path.write_text("id: T\nname: model\nclasses:\n  A: {x: 1}\n  B: {x: 2}\nslots:\n  C: {y: 1}\n  D: {y: 2}\n")

    assert list(read(path, report)) == ["T"]
    assert "'classes' (2), 'slots' (2)" in report.warnings[0].message


@pytest.mark.parametrize(
    "row, types, aliases",
    [
        ("T#\tToy #\tToyfoo #\t9#", (), ()),
        ("T#\tToy #\tN\tQ", (), ()),
        ("T#\tToy #\tA toy of wood that is painted red and numbered #\t2020-01-#", (), ()),
        ("T#\tToy #\tcity\tTy#|Toyx #", ("city",), ("Ty03", "Toyx 03")),
    ],
)
def test_nothing_is_a_type_or_an_alias_by_its_place(
    tmp_path: Path, row: str, types: tuple[str, ...], aliases: tuple[str, ...]
) -> None:
    """Without a header the third column gives types, and the fourth aliases, only if they hold such; it is said."""
    path, report = tmp_path / "base.tsv", ReadReport()
    path.write_text(rows(row.replace("#", "00"), row), encoding="utf-8")

    found = read(path, report)["T03"]

    assert (found.kb_types, found.aliases) == (types, aliases)
    assert types or "not used: 3, 4" in report.notes[0]


DOCUMENTS: dict[str, tuple[object, str, list[str]]] = {
    "Solr": ({"responseHeader": {"params": {"q": "*"}}, "response": {"docs": TOYS}},
             "T3", ["Toy 3"]),
    "Elasticsearch": ({"hits": {"total": {"value": 2}, "hits": [
        {"_id": f"T{i}", "_source": {"name": f"Toy {i}", "synonyms": [f"ty{i}"]}} for i in N]}},
        "T3", ["Toy 3", "ty3"]),
    "GraphQL": ({"data": {"toys": {"edges": [{"node": one} for one in TOYS]}}}, "T3", ["Toy 3"]),
    "GeoJSON": ({"type": "FeatureCollection", "features": [
        {"type": "Feature", "id": f"T{i}", "properties": {"name": f"Toy {i}"}} for i in N]}, "T3", ["Toy 3"]),
    "the largest list": ({"facets": [{"code": "a"}, {"code": "b"}], "results": [
        one | {"tags": [{"x": 1}] * 40} for one in TOYS]}, "T3", ["Toy 3"]),
    "objects by id": ({"version": 1, "classes": {f"T{i}": {"name": f"Toy {i}"} for i in N}}, "T3", ["Toy 3"]),
    "a tree": ([{"id": "T1", "name": "Toy 1", "children": [{"id": "T2", "name": "Toy 2", "children": [
        {"id": "T3", "name": "Toy 3"}]}]}], "T3", ["Toy 3"]),
    "one record": ({"id": "T3", "name": "Toy 3", "places": [{"x": 1}, {"x": 2}]}, "T3", ["Toy 3"]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_records_of_a_document_are_found(tmp_path: Path, name: str) -> None:
    """Wherever the list of records is, on one line or on many."""
    document, key, names = DOCUMENTS[name]
    path = tmp_path / "base"
    for indent in (None, 1):
        path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
        found = read(path)
        assert list(found[key].names()) == names
        assert found[key].kb_types == ()


def test_a_path_says_where_the_records_are(tmp_path: Path) -> None:
    """Where an object may be a record or hold them, the error names both, and each works."""
    path, report = tmp_path / "base", ReadReport()
    path.write_text(json.dumps({"id": "L", "name": "List of toys", "toys": TOYS}), encoding="utf-8")

    with pytest.raises(FormatError, match=r"which are the records: '\.' or 'toys'") as refused:
        read(path)
    assert refused.value.option == "records"
    assert list(read(path, records=".")) == ["L"]
    assert len(read(path, records="toys")) == len(N)
    with pytest.raises(FormatError, match="no object at 'dolls'"):
        read(path, records="dolls")
    path.write_text(json.dumps({"toys": TOYS, "dolls": [{"id": "D", "name": "Doll"}]}), encoding="utf-8")
    assert len(read(path, report)) == len(N)
    assert "not read: 'dolls' (1)" in report.warnings[0].message


XML = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<list xmlns="http://t"><about><date>x</date></about>\n' + "".join(
    f'<toy id="T{i}"><name>Jouët {i}</name><alias>ty{i}</alias><alias>toy{i}</alias><part><code>1</code></part></toy>\n'
    for i in N
)  # fmt: skip


def test_registers_as_xml_are_read(tmp_path: Path) -> None:
    """The elements that repeat are the records; others are named by a path."""
    path = tmp_path / "base"
    path.write_bytes(f"{XML}</list>".encode("latin-1"))

    found = read(path)

    assert len(found) == len(N)
    assert list(found["T3"].names()) == ["Jouët 3", "ty3", "toy3"]
    assert list(read(path, records="toy.part", columns=TableColumns(id="code", name="code"))) == ["1"]
    with pytest.raises(FormatError, match="no element is at 'doll'"):
        read(path, records="doll")
    path.write_bytes(XML.encode("latin-1"))
    with pytest.raises(FormatError, match="damaged or cut off"):
        read(path)
    path.write_text('<!DOCTYPE a [<!ENTITY b "c">]><a><d/><d/></a>')
    with pytest.raises(FormatError, match="declares an entity"):
        read(path)


ORPHANET = """<JDBOR><DisorderList count="30">{}</DisorderList></JDBOR>""".format("".join(
    f'''<Disorder id="{i}"><OrphaCode>9{i}</OrphaCode><ExpertLink lang="en">http://t/{i}</ExpertLink>
    <Name lang="en">Toy {i}</Name><SynonymList count="1"><Synonym lang="en">ty{i}</Synonym></SynonymList>
    <DisorderType id="1"><Name lang="en">Disease</Name></DisorderType></Disorder>''' for i in N))  # fmt: skip
CLAML = """<!DOCTYPE ClaML SYSTEM "ClaML.dtd"><ClaML><Title name="T">Toys</Title>{}</ClaML>""".format("".join(
    f'''<Class code="A{i}" kind="category"><SuperClass code="A"/>
    <Rubric id="a{i}" kind="preferred"><Label xml:lang="en">Toy <Reference>{i}</Reference></Label></Rubric>'''
    + f'<Rubric kind="inclusion"><Label>ty{i}</Label></Rubric>' * (i > 1) + "</Class>" for i in N))  # fmt: skip
SANCTIONS = """<LIST><INDIVIDUALS>{}</INDIVIDUALS><ENTITIES>{}</ENTITIES></LIST>""".format(
    "".join(
        f"""<INDIVIDUAL><FIRST_NAME>ANNA{i}</FIRST_NAME><SECOND_NAME>TOY</SECOND_NAME><THIRD_NAME/>
        <REFERENCE_NUMBER>TYi.{i}</REFERENCE_NUMBER><INDIVIDUAL_ALIAS><QUALITY>Good</QUALITY><ALIAS_NAME>Anja {i}
        </ALIAS_NAME></INDIVIDUAL_ALIAS><INDIVIDUAL_ALIAS><QUALITY/><ALIAS_NAME/></INDIVIDUAL_ALIAS></INDIVIDUAL>"""
        for i in N
    ),
    "".join(f"<ENTITY><FIRST_NAME>TOYS</FIRST_NAME><REFERENCE_NUMBER>E{i}</REFERENCE_NUMBER></ENTITY>" for i in N[:9]),
)
OFAC = "<sdnList>{}</sdnList>".format("".join(
    f'''<sdnEntry><uid>{i}</uid><lastName>TOY{i}</lastName>{"<firstName>Anna</firstName>" * (i != 4)}<akaList><aka>
    <uid>9{i}</uid><lastName>DOLL{i}</lastName><firstName>Anja</firstName></aka></akaList></sdnEntry>'''
    for i in N))  # fmt: skip
SPARQL = "<sparql><head/><results>{}</results></sparql>".format("".join(
    f'''<result><binding name="city"><uri>http://t/{i}</uri></binding>
    <binding name="cityLabel"><literal xml:lang="en">Toy {i}</literal></binding></result>''' for i in N))  # fmt: skip


@pytest.mark.parametrize(
    "text, key, names",
    [
        (ORPHANET, "93", ["Toy 3", "ty3"]),
        (CLAML, "A3", ["Toy 3", "ty3"]),
        (CLAML, "A1", ["Toy 1"]),
        (SANCTIONS, "TYi.3", ["ANNA3 TOY", "Anja 3"]),
        (OFAC, "3", ["Anna TOY3", "Anja DOLL3"]),
        (OFAC, "4", ["TOY4", "Anja DOLL4"]),
        (SPARQL, "http://t/3", ["Toy 3"]),
    ],
)
def test_xml_of_known_registers_is_read(tmp_path: Path, text: str, key: str, names: list[str]) -> None:
    """Names in lists, in elements that go by a name, with references in them, and of several parts."""
    path, report = tmp_path / "base.xml", ReadReport()
    path.write_text(text)

    found = read(path, report)

    assert len(found) == len(N)
    assert list(found[key].names()) == names
    assert [one.message.rpartition(": ")[2] for one in report.warnings if "lists of other" in one.message] == (
        ["'LIST.ENTITIES.ENTITY' (9). If they are the records, name their path"] if text == SANCTIONS else []
    )


def test_yaml_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Lists and maps of records; what YAML takes for numbers and truth values stays text."""
    path = tmp_path / "base"
    path.write_text("# toys\n---\ntoys:\n  NO:\n    name: Toy\n    aliases: [on, 007]\n  SE:\n    name: Doll\n")

    found = read(path)

    assert list(found["NO"].names()) == ["Toy", "on", "007"]
    path.write_text("- id: T1\n  name: Toy\n- id: T2\n  name: [Doll\n")
    with pytest.raises(FormatError, match="no YAML"):
        read(path)
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    path.write_text(f"{bomb}toys:\n  T1:\n    name: *a11\n")
    with pytest.raises(FormatError, match=r"expands|over 12"):
        read(path)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize(
    "text",
    [
        "format-version: 1.2\n\n[Term]\nid: T:1\nname: Ménière toy\n",
        f'{SKOS}<T:1> a skos:Concept ; skos:prefLabel "Ménière toy" .\n',
        '[{"id": "T:1", "name": "Ménière toy"}]',
        '{"graphs": [{"nodes": [{"id": "T:1", "lbl": "Ménière toy", "type": "CLASS"}], "edges": []}]}',
        '[{"type":"item","id":"Q1","labels":{"en":{"language":"en","value":"Ménière toy"}}}]',
    ],
)
def test_other_encodings_are_read_in_every_format(tmp_path: Path, text: str, encoding: str) -> None:
    """The encoding is found and said, and no name is lost."""
    path, report = tmp_path / "base", ReadReport()
    path.write_bytes(text.encode(encoding))

    assert [entity.canonical_name for entity in read(path, report).values()] == ["Ménière toy"]
    assert any("which was found and converted" in note for note in report.notes)


def test_a_damaged_letter_is_no_other_encoding(tmp_path: Path) -> None:
    """A document of one line with one bad byte among letters of UTF-8 is refused, and not converted."""
    path = tmp_path / "base"
    path.write_bytes('[{"id": "1", "name": "Ménière œ"}]'.encode().replace(b"M", b"\xff"))

    with pytest.raises(FormatError, match="not valid UTF-8"):
        read(path)


def test_leading_zeros_and_covers_of_workbooks(run: Run, tmp_path: Path) -> None:
    """A sheet with a title page before it is found; a header may have years."""
    table: list[list[object]] = [["Код", "Наименование", 1990], *[[i, f"Игрушка {i}", 7] for i in N]]
    path = workbook(tmp_path / "base.xlsx", {"Read me": [["Register of toys"], ["Contact", "toys"]], "Data": table})

    found = read(path)

    assert (found["3"].canonical_name, dict(found["3"].extra)) == ("Игрушка 3", {"1990": "7"})


def test_a_header_of_unknown_words_below_a_title_of_a_sheet_is_no_entity(tmp_path: Path) -> None:
    """Titles above a header are passed over, and it is refused with its columns, as in text."""
    table: list[list[object]] = [
        ["Table 1"],
        [],
        ["Fach", "Name der Sache", "Zahl"],
        *[[f"A{i}", f"Toy {i}", i] for i in N],
    ]
    path = workbook(tmp_path / "base.xlsx", {"a": table})

    with pytest.raises(FormatError, match="the columns are: Fach, Name der Sache, Zahl"):
        read(path)


def test_an_office_document_is_no_damaged_workbook(tmp_path: Path) -> None:
    """A text document is a zip with many files, and none of them is a table."""
    path = tmp_path / "base.docx"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("[Content_Types].xml", "word/document.xml", "_rels/.rels"):
            archive.writestr(name, "<x/>")

    with pytest.raises(FormatError, match="an office document, and no workbook"):
        read(path)


def test_lines_of_json_ld_are_read(tmp_path: Path) -> None:
    """A document a line, as libraries publish their subjects."""
    label = "http://www.w3.org/2004/02/skos/core#prefLabel"
    path = tmp_path / "base"
    documents = [{"@context": {"l": label}, "@graph": [{"@id": f"http://t/{i}", "l": f"Toy {i}"}]} for i in N]
    path.write_text("".join(json.dumps(one) + "\n" for one in documents))

    assert len(read(path)) == len(N)


def test_properties_are_no_entities_where_classes_have_skos_labels(tmp_path: Path) -> None:
    """An ontology whose labels are skos:prefLabel gives its classes."""
    path = tmp_path / "base.ttl"
    classes = "".join(f':C{i} a owl:Class ; skos:prefLabel "Class {i}" .\n' for i in N)
    properties = "".join(f':p{i} a owl:ObjectProperty ; skos:prefLabel "p{i}" .\n' for i in N)
    owl = "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n@prefix : <http://t/> .\n"
    path.write_text(f"{SKOS}{owl}{classes}{properties}")

    assert len(read(path)) == len(N)


@pytest.mark.parametrize("languages", ["en", "eng", "EN"])
def test_codes_of_languages_match(tmp_path: Path, languages: str) -> None:
    """ISO 639-1, 639-2 and 639-3 are one."""
    path = tmp_path / "yagoLabels.tsv"
    path.write_text("\t\t\t30\n" + "".join(f'<id_{i}>\t<Toy_{i}>\trdfs:label\t"Toy {i}"@eng\t\n' for i in N))

    report = ReadReport(max_errors=0)
    assert len(read(path, report, languages=(languages,))) == len(N)
    assert report.filtered == {"line_about_the_table": 1}


@pytest.mark.parametrize(
    "text, said",
    [
        (rows('T#\t{"name": "Toy #"}', 'T#\t{"name": "Toy #"}').replace("T#", "T0", 1), "cut -f2"),
        (rows("00\t300\tToy", "#\t3#\tToy"), "column 2, which would be the name, holds numbers"),
        (rows(",T0,Toy", ",T#,Toy #"), "column 1, which would be the id, is empty in"),
        (rows("id,birth_year,last_name", "#,1970,Toy #"), "no column is known to be the name"),
        (rows("CUI,label", ",Toy #"), "'CUI' is empty in 30 of the first 30 rows"),
        ('["Toy", "Doll"]', "lists of texts"),
        ('[["NAME", "state"], ["Toy", "01"]]', r"jq -r '\.\[\] \| @csv'"),
        ('{"fields": ["cik", "name"], "data": [[1, "Toy"], [2, "Doll"]]}', r"jq -r '\(\.fields, \.data\[\]\) \| @csv'"),
        ('{"T1": "Toy", "T2": "Doll", "T3": "Kite"}', "one object of 3 texts by key"),
        (rows("00001 A0  Toy fever", "000# A#  Toy fever #"), "fixed places"),
        ("[toys]\nT1 = Toy\nT2 = Doll\n", "an INI file"),
        ("----\nToys\n----\nID   Toy\nAC   T1\n//\n", "flat file"),
    ],
)
def test_a_refusal_says_what_the_columns_hold(tmp_path: Path, text: str, said: str) -> None:
    """No such file is read wrongly, and the error names the column."""
    path = tmp_path / "base"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(FormatError, match=said):
        read(path)
