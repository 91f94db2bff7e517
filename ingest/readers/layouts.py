"""Bases that ship as tables: how each is recognised, and which column is what.

To add a base, add a `Base` with one `Shape` for each kind of file. A shape names the columns that a header must have,
or all columns and patterns of some of them; columns by meaning; and, if rows are names of an entity rather than
entities, the column that tells what a row gives (`roles`). Nothing else is needed: reading, options, notes and
`ingest --formats` follow from the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.readers.columns import TableColumns

NAME, ALIAS, TYPE, DESCRIPTION, SKIP = "name", "alias", "type", "description", "skip"
TAGGED_NAME = "tagged name"
"""A name with its type in brackets at the end, as SNOMED's fully specified ones: ``Fever (finding)``."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of file of a base.

    Attributes:
        what: The file, for people.
        columns: Which column is what; those that a file lacks are left out.
        header: Columns that the header, or the keys of the first objects, must have; in lower case.
        names: Names of the columns of a file without a header.
        patterns: What some of these look like, by name: a regular expression for the whole cell of each row.
        separators: Between the items of a cell, by column.
        keep: Rows are kept if a column has one of these values.
        needs: Rows are kept if this column is filled.
        role_column: The column that tells what a row gives; then rows of one id are put together first.
        roles: What a row gives, by the value of that column; `other_role` for all other values.
        value_column: The column with what the row gives.
        language_column: The column with the language of a name.
        preferred_column: Its value 1 prefers a name to others of its role.
        is_literal: Values are written as ``'text'@en`` or ``"text"``.
        id_pattern: What is taken of ids and types: the first group, where it matches.
        gives: ``preferred``: the file has no names, but tells which rows of another file are preferred; ``allowed``:
            which ids are read at all.
        gives_column: The column with these.
        marked_column: In the other file, the column that ``preferred`` rows are known by.
    """

    what: str
    columns: TableColumns
    header: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict)
    separators: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: str | None = None
    role_column: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    other_role: str = ALIAS
    value_column: str | None = None
    language_column: str | None = None
    preferred_column: str | None = None
    is_literal: bool = False
    id_pattern: str | None = None
    gives: str = ""
    gives_column: str = ""
    marked_column: str | None = None

    def fits(self, header: Sequence[str] | None, sample: Sequence[Sequence[Any]]) -> bool:
        """Whether a file has this shape.

        Args:
            header: Its header or keys; None if it has none.
            sample: Its first rows.
        """
        if header is not None:
            return bool(self.header) and self.header <= {name.casefold() for name in header}
        if not self.names or not sample:
            return False
        checks = [(self.names.index(name), re.compile(pattern)) for name, pattern in self.patterns.items()]
        least = len(self.names) - sum(name.endswith("?") for name in self.names)
        fitting = sum(
            least <= len(row) <= len(self.names)
            and all(isinstance(row[i], str) and check.fullmatch(row[i].strip()) is not None for i, check in checks)
            for row in sample
        )
        return fitting >= _MOST * len(sample)


@dataclass(frozen=True, slots=True)
class Base:
    """A base that ships as tables.

    Attributes:
        name: The value of ``--format``.
        title: For people.
        shapes: Its files.
        files: Names of the files that are read of a folder or zip of it: a regular expression.
    """

    name: str
    title: str
    shapes: tuple[Shape, ...]
    files: str | None = None

    def choose(self, names: Sequence[str]) -> list[str]:
        """Those of the paths in a folder or archive that are read."""
        pattern = re.compile(self.files or "(?!)", re.IGNORECASE)
        return sorted(name for name in names if pattern.fullmatch(re.split(r"[/\\!]", name)[-1]))


def find_shape(
    bases: Sequence[Base], header: Sequence[str] | None, sample: Sequence[Sequence[Any]]
) -> tuple[Base, Shape] | None:
    """The base and the kind of file that a table is, or None."""
    return next(((base, shape) for base in bases for shape in base.shapes if shape.fits(header, sample)), None)


_MOST = 0.9  # of the first rows: one of them may be damaged


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())


_INTEGER = r"-?\d+"
_DECIMAL = r"-?\d+(?:\.\d+)?(?:[Ee]-?\d+)?"
_WIKIDATA = r"https?://www\.wikidata\.org/entity/([QPL]\d+)"
_NOT_WITHDRAWN = {"status": ("active", "inactive", "")}
_RF2 = "id effectiveTime active moduleId conceptId languageCode typeId term caseSignificanceId"

BASES: tuple[Base, ...] = (
    Base(
        "geonames",
        "GeoNames",
        (
            Shape(
                "allCountries.txt, cities*.txt, a country's file",
                TableColumns("geonameid", "name", ("feature_code", "feature_class"), ("asciiname", "alternatenames"),
                             popularity="population"),
                names=tuple("geonameid name asciiname alternatenames latitude longitude feature_class feature_code "
                            "country_code cc2 admin1 admin2 admin3 admin4 population elevation dem timezone "
                            "modification_date".split()),
                patterns={"geonameid": _INTEGER, "latitude": _DECIMAL, "longitude": _DECIMAL,
                          "feature_class": "[A-Z]?", "population": r"\d*"},
                separators={"alternatenames": ","},
            ),
            Shape(
                "alternateNames.txt, alternateNamesV2.txt; beside a file of places only the names of these",
                TableColumns("geonameid", "alternate_name"),
                names=("alternateNameId", "geonameid", "isolanguage", "alternate_name", "isPreferredName",
                       "isShortName", "isColloquial", "isHistoric", "from?", "to?"),
                patterns={"alternateNameId": _INTEGER, "geonameid": _INTEGER, "isolanguage": r"[A-Za-z_-]{0,12}",
                          "isPreferredName": "1?", "isShortName": "1?", "isColloquial": "1?"},
                role_column="isolanguage",
                roles=dict.fromkeys(("link", "wkdt", "post", "phon", "unlc", "tcid"), SKIP),
                value_column="alternate_name",
                language_column="isolanguage",
                preferred_column="isPreferredName",
            ),
            Shape(
                "countryInfo.txt",
                TableColumns("ISO", "Country", aliases=("ISO3",), popularity="Population"),
                header=_words("iso iso3 country capital geonameid"),
                names=("ISO", "ISO3", "ISO-Numeric", "fips", "Country", "Capital", "Area", "Population", "Continent",
                       "tld", "CurrencyCode", "CurrencyName", "Phone", "PostalCodeFormat", "PostalCodeRegex",
                       "Languages", "geonameid?", "neighbours?", "EquivalentFipsCode?"),
                patterns={"ISO": "[A-Z]{2}", "ISO3": "[A-Z]{3}|", "Continent": "[A-Z]{2}", "tld": r"\.[a-z]+|"},
            ),
        ),
    ),
    Base(
        "snomed",
        "SNOMED CT (RF2)",
        (
            Shape(
                "sct2_Description_Snapshot-*.txt, or the release: its folder or zip",
                TableColumns("conceptId", "term"),
                header=_words(_RF2),
                keep={"active": ("1",)},
                role_column="typeId",
                roles={"900000000000003001": TAGGED_NAME, "900000000000013009": ALIAS,
                       "900000000000550004": DESCRIPTION},
                other_role=SKIP,
                value_column="term",
                language_column="languageCode",
                marked_column="id",
            ),
            Shape(
                "der2_cRefset_LanguageSnapshot-*.txt beside it: which names are preferred",
                TableColumns("refsetId", "referencedComponentId"),
                header=_words("refsetId referencedComponentId acceptabilityId"),
                keep={"active": ("1",), "acceptabilityId": ("900000000000548007",)},
                gives="preferred",
                gives_column="referencedComponentId",
            ),
            Shape(
                "sct2_Concept_Snapshot_*.txt beside it: which concepts are active",
                TableColumns("id", "moduleId"),
                header=_words("id active moduleId definitionStatusId"),
                keep={"active": ("1",)},
                gives="allowed",
                gives_column="id",
            ),
        ),
        r"sct2_(?:Description|TextDefinition|Concept)_Snapshot.*\.txt|der2_cRefset_Language.*Snapshot.*\.txt",
    ),
    Base(
        "hgnc",
        "HGNC gene names",
        (
            Shape(
                "hgnc_complete_set.txt",
                TableColumns("hgnc_id", "symbol", ("locus_group", "locus_type"),
                             ("name", "alias_symbol", "alias_name", "prev_symbol", "prev_name")),
                header=_words("hgnc_id symbol locus_group"),
                keep={"status": ("Approved",)},
                separators=dict.fromkeys(("alias_symbol", "alias_name", "prev_symbol", "prev_name"), "|")
                | {"name": "none"},
            ),
        ),
    ),
    Base(
        "ncbi-gene",
        "NCBI Gene",
        (
            Shape(
                "gene_info, Homo_sapiens.gene_info",
                TableColumns("GeneID", "Symbol", ("type_of_gene",), (
                    "Synonyms", "description", "Full_name_from_nomenclature_authority", "Other_designations")),
                header=_words("geneid symbol synonyms type_of_gene"),
                separators={"Synonyms": "|", "Other_designations": "|", "description": "none",
                            "Full_name_from_nomenclature_authority": "none"},
            ),
        ),
    ),
    Base(
        "ncbi-taxonomy",
        "NCBI Taxonomy",
        (
            Shape(
                "names.dmp",
                TableColumns("tax_id", "name_txt"),
                names=("tax_id", "name_txt", "unique_name", "name_class"),
                patterns={"tax_id": _INTEGER, "name_class": r"[a-z ]+"},
                role_column="name_class",
                roles={"scientific name": NAME, "authority": SKIP, "type material": SKIP, "in-part": SKIP,
                       "includes": SKIP},
                value_column="name_txt",
            ),
        ),
    ),
    Base(
        "ror",
        "ROR research organisations",
        (
            Shape(
                "v2.*-ror-data_schema_v2.json",
                TableColumns("id", "names[types=ror_display].value", ("types",), ("names.*.value",)),
                header=_words("id names types locations"),
                keep=_NOT_WITHDRAWN,
            ),
            Shape(
                "v1.*-ror-data.json",
                TableColumns("id", "name", ("types",), ("aliases", "acronyms", "labels.*.label")),
                header=_words("id name aliases acronyms labels"),
                keep=_NOT_WITHDRAWN,
                separators=dict.fromkeys(("aliases", "acronyms", "labels", "types"), ";"),
            ),
            Shape(
                "v2.*-ror-data_schema_v2.csv",
                TableColumns("id", "names.types.ror_display", ("types",), (
                    "names.types.alias", "names.types.acronym")),
                header=_words("id names.types.ror_display names.types.alias"),
                keep=_NOT_WITHDRAWN,
                separators=dict.fromkeys(("names.types.alias", "names.types.acronym", "types"), ";"),
            ),
        ),
    ),
    Base(
        "opensanctions",
        "OpenSanctions",
        (
            Shape(
                "targets.simple.csv",
                TableColumns("id", "name", ("schema",), ("aliases",)),
                header=_words("id schema name aliases birth_date countries"),
                separators={"aliases": ";", "schema": "none"},
            ),
            Shape(
                "entities.ftm.json",
                TableColumns("id", "caption", ("schema",), (
                    "properties.name", "properties.alias", "properties.weakAlias"),
                    description="properties.notes.0"),
                header=_words("id caption schema properties"),
                needs="properties.name",
            ),
        ),
    ),
    Base(
        "openflights",
        "OpenFlights",
        (
            Shape(
                "airlines.dat",
                TableColumns("airline_id", "name", aliases=("alias",)),
                names=("airline_id", "name", "alias", "iata", "icao", "callsign", "country", "active"),
                patterns={"airline_id": _INTEGER, "active": "[YNyn]"},
            ),
            Shape(
                "airports.dat",
                TableColumns("airport_id", "name", ("kind",), ("iata",)),
                names=("airport_id", "name", "city", "country", "iata", "icao", "latitude", "longitude", "altitude",
                       "utc_offset", "dst", "timezone", "kind", "source"),
                patterns={"airport_id": _INTEGER, "latitude": _DECIMAL, "longitude": _DECIMAL},
            ),
        ),
    ),
    Base(
        "kgtk",
        "KGTK edges",
        (
            Shape(
                "labels, aliases and descriptions as edges (node1, label, node2)",
                TableColumns("node1", "node2"),
                header=_words("node1 label node2"),
                role_column="label",
                roles={"label": NAME, "rdfs:label": NAME, "alias": ALIAS, "skos:altLabel": ALIAS,
                       "description": DESCRIPTION, "schema:description": DESCRIPTION, "P31": TYPE},
                other_role=SKIP,
                value_column="node2",
                is_literal=True,
            ),
        ),
    ),
    Base(
        "yago3",
        "YAGO 3",
        (
            Shape(
                "yagoLabels.tsv, yagoTypes.tsv, yagoPreferredMeanings.tsv",
                TableColumns("subject", "object"),
                names=("fact", "subject", "predicate", "object", "value?"),
                patterns={"subject": "<.*>", "predicate": r"(?:rdfs?|skos|owl):\w+|<\w+>"},
                role_column="predicate",
                roles={"skos:prefLabel": NAME, "rdfs:label": ALIAS, "rdf:type": TYPE},
                other_role=SKIP,
                value_column="object",
                is_literal=True,
                id_pattern="<(.*)>",
            ),
        ),
    ),
    Base(
        "wikidata-sparql",
        "Wikidata's SPARQL results",
        (
            Shape(
                "query.csv, query.tsv, query.json of the query service",
                TableColumns("item", "itemLabel", ("type", "class", "instance", "instanceOf"), (
                    "itemAltLabel", "alias", "altLabel"), description="itemDescription"),
                header=_words("item itemlabel"),
                separators={"itemAltLabel": ", ", "alias": "none", "altLabel": "none"},
                id_pattern=_WIKIDATA,
            ),
            Shape(
                "the same as TSV, in the syntax of RDF",
                TableColumns("?item", "?itemLabel", ("?type", "?class", "?instance", "?instanceOf"), (
                    "?itemAltLabel", "?alias", "?altLabel"), description="?itemDescription"),
                header=_words("?item ?itemlabel"),
                separators={"?itemAltLabel": ", ", "?alias": "none", "?altLabel": "none"},
                is_literal=True,
                id_pattern=f"<{_WIKIDATA}>",
            ),
        ),
    ),
)  # fmt: skip
"""In the order in which a table is compared with them."""
