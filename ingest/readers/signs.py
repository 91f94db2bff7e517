"""How a file of each format begins, so that a format is recognised before its reader is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import msgspec

from ingest.base.format import Head
from ingest.io.encoding import BOM, HEAD_BYTES, describe_text

N_TRIPLES, TURTLE, RDF_XML, JSON_LD = "N-Triples", "Turtle", "RDF/XML", "JSON-LD"

VOCABULARIES: dict[str, Any] = msgspec.json.decode(
    resources.files("ingest.readers").joinpath("vocabularies.json").read_bytes()
)
PREFIXES: dict[str, str] = VOCABULARIES["prefixes"]
"""Well-known prefixes: of options, and of files that forgot to declare them."""

_COMMENTS = re.compile(rb"(?:[ \t\r\n]+|#[^\n]*(?:\n|$))*")
_IRI = rb"<[^<>\"{}|^`\\\s]*>"
_OBJECT = rb"(?:<[^<>\s]*>|_:\S+|\"(?:[^\"\\\n]|\\.)*\"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?)"
_N_ROW = re.compile(
    rb"[ \t]*(?:" + _IRI + rb"|_:\S+)[ \t]*<[^<>\s]*>[ \t]*" + _OBJECT + rb"[ \t]*(?:(?:" + _IRI + rb"|_:\S+)[ \t]*)?"
    rb"\.[ \t]*(?:#.*)?\r?"
)
_DIRECTIVE = re.compile(rb"[ \t]*(?:@(?:prefix|base)\b|(?:prefix[ \t]+[\w.-]*:|base)[ \t]*<)", re.IGNORECASE)
_DIRECTIVES = re.compile(rb"^" + _DIRECTIVE.pattern, re.IGNORECASE | re.MULTILINE)
_KNOWN_NAME = rb"(?:" + "|".join(PREFIXES).encode() + rb"):[\w-]+"
_STATEMENT = re.compile(
    rb"(?:" + _IRI + rb"|_:\S+|\[[^\]]{0,999}\])\s+(?:a|" + _IRI + rb"|" + _KNOWN_NAME + rb")\s+[<\"'_\[(\w]"
    rb"|" + _IRI + rb"\s*\{"
)
_MISC = re.compile(rb"(?:\s+|<\?(?:[^?]|\?(?!>))*\?>|<!--(?:[^-]|-(?!->))*-->)*")
_DOCTYPE = re.compile(
    rb"<!DOCTYPE[^\[>]*(?:\[((?:[^\]\"'<]|\"[^\"]*\"|'[^']*'|<!--(?:[^-]|-(?!->))*-->|<(?!!--))*)\]\s*)?>"
)
_ROOT = re.compile(rb"<((?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*))(?=[\s/>])")
_LD_KEY = re.compile(rb'"@(?:context|id|graph)"\s*:')
RDF_ENDING = re.compile(r"\.(?:ttl|trig|nt|nq|owl|rdf|jsonld)(?:\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)
_FILES = re.compile(r"(?:MR|RXN)(CONSO|STY|DEF|RANK)\.RRF(?:\.(?:gz|bz2|xz|zst))?", re.IGNORECASE)
UMLS_PACKED = re.compile(r"MRCONSO\.RRF\.[a-z]{2}(?:\.gz)?|.*\.nlm", re.IGNORECASE)
_CUI = re.compile(r"C[0-9N][0-9]{5,}|[0-9]{1,8}")
_TABLE_OF_WIDTH = {18: "MRCONSO", 6: "MRSTY", 8: "MRDEF"}
_OBO_SIGN = re.compile(
    rb"^(?:format-version:[ \t]*1\.|(?:ontology|subsetdef|synonymtypedef|default-namespace):|\[Term\][ \t]*\r?$)",
    re.MULTILINE,
)
_OBO_LINE = re.compile(rb"[A-Za-z][\w-]*:(?:[ \t]|$)|!|\[\w+\]|[ \t]|$")
_CHECKED_LINES = 200
_OBO_GRAPH = re.compile(
    rb'\s*\{(?=.*?"(?:lbl|pred|propertyChainAxioms|logicalDefinitionAxioms|equivalentNodesSets|basicPropertyValues)")'
    rb'(?:(?!"nodes"|"graphs").)*"(?:graphs|nodes)"\s*:\s*\[\s*\{',
    re.DOTALL,
)
_WIKIDATA = re.compile(
    rb'\s*(?:\[\s*)?\{\s*(?=")(?=.*?"type"\s*:\s*"(?:item|property|lexeme)")(?=.*?"id"\s*:\s*"[QPL][1-9]\d*")',
    re.DOTALL,
)


def looks_like_json(head: bytes) -> bool:
    """Whether a file begins with an object, or an array of objects."""
    texts = rb"\[\s*\[?\s*\"[^\"\n]*\"\s*[,\]]"  # a list of texts or lists, which are no objects
    if re.match(rb"(?:\xef\xbb\xbf)?\s*" + texts, head):
        return head.rstrip().endswith(b"]") or len(head) >= HEAD_BYTES
    return re.match(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*[\"}]", head) is not None


def find_syntax(data: bytes) -> str | None:
    """The syntax that the beginning of a file shows, or None."""
    if data.lstrip()[:1] in (b"{", b"["):
        is_blank_node = _STATEMENT.match(data.lstrip()) is not None
        is_linked = _LD_KEY.search(data) and b'"#text"' not in data  # which is XML as JSON, with "@id" for attributes
        return TURTLE if is_blank_node else JSON_LD if is_linked else None
    comments = _COMMENTS.match(data)
    rest = data[comments.end() if comments else 0 :]
    root = find_root(data)
    is_xml = root is not None and root[2] == b"RDF" and PREFIXES["rdf"].encode() in data
    return _find_triples(data, rest) or (RDF_XML if is_xml else None)


def _find_triples(data: bytes, rest: bytes) -> str | None:
    """Whether a file, and what follows its comments, is N-Triples, Turtle, or none of them."""
    if rest[:2] in (b"<?", b"<!"):
        return None
    if _DIRECTIVE.match(rest):
        return TURTLE
    rows = [row for row in rest.split(b"\n", 100)[:100] if row.strip() and not row.lstrip().startswith(b"#")]
    if len(data) >= HEAD_BYTES and len(rows) > 1:
        rows.pop()  # it may be cut
    n_good = sum(_N_ROW.fullmatch(row) is not None for row in rows)
    if rows and n_good * 2 >= len(rows) and not _DIRECTIVES.search(rest):
        return N_TRIPLES
    return TURTLE if _STATEMENT.match(rest) or (_DIRECTIVES.search(rest) and n_good) else None


def find_root(data: bytes) -> re.Match[bytes] | None:
    """The start of the root element of XML: its name, and that without the prefix."""
    place = _MISC.match(data)
    end = place.end() if place else 0
    if doctype := _DOCTYPE.match(data, end):
        misc = _MISC.match(data, doctype.end())
        end = misc.end() if misc else doctype.end()
    return _ROOT.match(data, end)


def umls_table_of_rows(head: bytes) -> str | None:
    """Which file this is, by its first sound row: MRCONSO, MRSTY, MRDEF or None."""
    for line in head.removeprefix(BOM).decode("utf-8", "replace").split("\n")[:100]:
        cells = line.rstrip("\r").split("|")
        table = _TABLE_OF_WIDTH.get(len(cells) - 1)
        if table and not cells[-1] and _CUI.fullmatch(cells[0]):
            if table == "MRCONSO":
                return table if re.fullmatch(r"[A-Z]{3}", cells[1]) else None
            if cells[0].startswith("C"):
                return table if table != "MRSTY" or re.fullmatch(r"T[0-9]{3}", cells[1]) else None
    return None


def umls_table_of(path: str) -> str | None:
    """The table that the name of a file shows."""
    match = _FILES.fullmatch(last_part(path))
    return None if match is None else f"MR{match[1].upper()}"


def last_part(path: str) -> str:
    """The name of a file in a folder or archive."""
    return re.split(r"[/!]", path)[-1]


def _is_obo(head: Head) -> bool:
    """Whether a file begins like OBO: lines of tags and values, and one that only OBO has."""
    if not _OBO_SIGN.search(head.data):
        return False
    lines = head.data.split(b"\n", _CHECKED_LINES)[:-1] or [head.data]
    odd = sum(_OBO_LINE.match(line.rstrip(b"\r")) is None for line in lines)
    return odd * 4 <= len(lines)


SIGNS: dict[str, Callable[[Head], bool]] = {
    "umls": lambda head: umls_table_of(head.path) is not None or umls_table_of_rows(head.data) == "MRCONSO",
    "mesh": lambda head: b"<DescriptorRecordSet" in head.data or b"<SupplementalRecordSet" in head.data,
    "wikidata": lambda head: _WIKIDATA.match(head.data.removeprefix(BOM)) is not None,
    "obograph": lambda head: _OBO_GRAPH.match(head.data) is not None,
    "rdf": lambda head: find_syntax(head.data) is not None,
    "obo": _is_obo,
    "xml": lambda head: (describe_text(head.data) or "").startswith("XML"),
    "yaml": lambda head: (describe_text(head.data) or "").startswith("YAML"),
}
"""By format, whether a file begins so; in the order in which they are tried. They never raise."""

SIGNS_OF_NAMES: dict[str, Callable[[Iterable[str]], bool]] = {
    "umls": lambda names: any(
        UMLS_PACKED.fullmatch(last_part(one)) or umls_table_of(one) == "MRCONSO" for one in names
    ),
    "rdf": lambda names: any(
        RDF_ENDING.search(one) or re.search(r"yago[^/]*\.zip$", one, re.IGNORECASE) for one in names
    ),
}
"""By format, whether the names of the files in a folder or archive show it."""
