r"""Read ontologies in OBO 1.0 to 1.4 (Mondo, HPO, DOID, GO, ChEBI, Uberon, ...): an entity for each ``[Term]`` stanza.

::

    [Term]
    id: MADE:0001
    name: sore left toe
    namespace: complaint
    alt_id: MADE:0900
    def: "A toe that hurts." [MADE:curator]
    synonym: "toe pain, left" EXACT []
    synonym: "hurting foot" BROAD [MADE:curator]
    xref: OTHER:77 {source="MADE:curator"}
    is_a: MADE:0002 ! sore toe

``name`` is the canonical name. Synonyms with a requested scope are aliases; this includes ``exact_synonym`` and similar
tags of OBO 1.0, and a synonym without a scope is RELATED. Types are the ids of the ancestors by ``is_a``, nearest
first, and then the namespace; ids of obsolete terms that are ``replaced_by`` a term are ``alt_ids`` of it. Comments
(`` ! ...``), modifiers (``{...}``) and escapes are removed, and a line that ends with a backslash goes on in the next
one. Quotes that were not escaped within a quoted value are part of it. Obsolete terms, terms without a name (stubs of
other ontologies) and stanzas of other kinds are excluded and counted.

The files are read twice: the first pass, once for a reader, finds the ancestors and replaced ids (`ClassTree`). Several
files are one base: ancestors may be in another file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.io import limits
from ingest.io.encoding import BadLine, read_lines
from ingest.io.report import NO_ID, NO_NAME, TOO_MANY_ROWS, ReadReport
from ingest.readers.ontology import NOT_A_TERM, OBSOLETE, SCOPES, ClassTree, OntologyReader, Term, short_id
from pearl_qdrant.errors import FormatError

if TYPE_CHECKING:
    from ingest.io.source import ByteSource

BAD_SYNONYM = "bad_synonym"
MALFORMED_LINE = "malformed_line"

_TERM = "Term"
_OLD_SYNONYMS = {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_TREE_TAGS = frozenset({"id", "is_a", "is_obsolete", "replaced_by"})
_TAGS = frozenset(
    {"id", "name", "namespace", "default-namespace", "alt_id", "def", "synonym", "xref", "is_a", "is_obsolete"}
    | set(_OLD_SYNONYMS)
)
_MAX_BRACES = 8
_MAX_MODIFIERS = 1 << 16  # characters; real ones have about a hundred
_COMMENT = re.compile(r"\s!(?:\s|$)")
# There is only one way to match these expressions, so a mismatch is found in linear time.
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
_MODIFIER = rf'[^\s="{{}},][^\s="{{}}]*\s*=\s*(?:{_QUOTED.pattern}|[^\s",{{}}]+(?=[\s,}}]))\s*(?:,\s*)?'
_MODIFIERS = re.compile(rf"\{{\s*(?:{_MODIFIER})*\}}")
_SCOPED = rf"(?:{'|'.join(SCOPES)})\b"
_AFTER_QUOTED = re.compile(rf"\s*(?:$|[\[{{!]|{_SCOPED}|[\w:-]+\s*\[)")
# For quotes that were not escaped: up to the last quote that a scope or references follow.
_LOOSE = re.compile(rf'"(.*)"(?=\s*(?:{_SCOPED}[^"\[]*)?(?:[\[{{!].*)?$)')
_ID = re.compile(r"(?:[^\s!{\\]|\\.)+")
_ESCAPE = re.compile(r"\\(.)")
_BLANKS = {"n": " ", "t": " ", "W": " "}
_SPACE = re.compile(r"[\t ]+")


@dataclass(slots=True)
class Stanza:
    """One block of a file.

    Attributes:
        kind: The text in the brackets, such as ``Term``; empty for the header.
        line: Number of its first line.
        tags: Its lines with a requested tag: number, tag, and value as written.
    """

    kind: str
    line: int
    tags: list[tuple[int, str, str]] = field(default_factory=list)


class OboReader(OntologyReader):
    """An ontology in one or several OBO files; a `Reader`. A row of its report is a stanza."""

    def read_tree(self) -> ClassTree:
        """Ancestors and replaced ids of all files."""
        tree = ClassTree()
        for source in self.sources:
            for stanza in read_stanzas(source, _TREE_TAGS, ReadReport(max_errors=None)):
                if stanza.kind == _TERM:
                    term_id = next((first_id(value) for _, tag, value in stanza.tags if tag == "id"), "")
                    is_gone = _is_obsolete(stanza)
                    for _, tag, value in stanza.tags:
                        if tag == "is_a" and not is_gone and (parent := first_id(value)):
                            tree.add(term_id, parent)
                        elif tag == "replaced_by" and is_gone and term_id:
                            tree.replace(term_id, first_id(value))
        return tree.finish()

    def read_terms(self, source: ByteSource, tree: ClassTree, report: ReadReport) -> Iterator[Term | None]:
        """The terms of a file."""
        namespace, n_terms = "", 0
        for stanza in read_stanzas(source, _TAGS, report):
            if not stanza.kind:
                namespace = next((plain_value(v) for _, tag, v in stanza.tags if tag == "default-namespace"), "")
                continue
            report.rows += 1
            if stanza.kind != _TERM:
                report.filter_out(NOT_A_TERM)
                continue
            n_terms += 1
            report.place = source.path, stanza.line
            yield self._parse_term(source.path, stanza, namespace, report)
        if not n_terms:
            raise FormatError(source.path, None, "has no [Term] stanza. Is this an OBO file?")
        report.notes.append(f"{source.path}: OBO")

    def _parse_term(self, path: str, stanza: Stanza, namespace: str, report: ReadReport) -> Term | None:
        """The term of a stanza; None if it is bad or excluded, which is counted."""
        values: dict[str, list[str]] = {}
        for _, tag, value in stanza.tags:
            values.setdefault(tag, []).append(value)
        term_id = first_id(values.get("id", [""])[0])
        if not term_id:
            report.skip(NO_ID, path=path, line=stanza.line, text=f"[{stanza.kind}]")
            return None
        if _is_obsolete(stanza):
            report.filter_out(OBSOLETE)
            return None
        names = [name for name in map(plain_value, values.get("name", ())) if name]
        if not names:
            report.filter_out(NO_NAME)
            return None
        names += self._read_synonyms(path, stanza, report)
        definition = quoted_value(values["def"][0]) if "def" in values else None
        return Term(
            term_id,
            names,
            plain_value(values["namespace"][0]) if "namespace" in values else namespace,
            (definition[0] or None) if definition else None,
            [parent for parent in map(first_id, values.get("is_a", ())) if parent],
            [other for other in map(first_id, values.get("alt_id", ())) if other],
            [other for value in values.get("xref", ()) if (other := plain_value(value.partition(' "')[0]))],
        )

    def _read_synonyms(self, path: str, stanza: Stanza, report: ReadReport) -> Iterator[str]:
        """Synonyms with the requested scopes; the others are counted."""
        for number, tag, value in stanza.tags:
            if tag == "synonym" or tag in _OLD_SYNONYMS:
                parsed = quoted_value(value)
                if parsed is None:
                    report.skip(BAD_SYNONYM, path=path, line=number, text=f"{tag}: {value}")
                    continue
                text, rest = parsed
                given = rest.split(None, 1)[0] if rest.strip() else ""
                scope = _OLD_SYNONYMS.get(tag) or (given if given in SCOPES else "RELATED")
                if scope not in self.scopes:
                    report.filter_out(f"{scope.lower()}_synonym")
                elif text:
                    yield text


def read_stanzas(source: ByteSource, wanted: frozenset[str], report: ReadReport) -> Iterator[Stanza]:
    """The header and all stanzas of a file, with the requested tags only.

    Raises:
        FormatError: If the file is damaged, or does not begin like OBO.
        InputError: If it cannot be read.
        TooManyErrorsError: If there are more bad lines than the report allows.
    """
    stanza, is_begun = Stanza("", 1), False
    for number, line in _whole_lines(source, report):
        if not line or line[0] == "!":
            continue
        if line[0] == "[" and (end := line.find("]")) > 1:
            yield stanza
            stanza, is_begun = Stanza(line[1:end], number), True
            continue
        tag, colon, value = line.partition(":")
        if tag not in wanted and colon:
            is_begun = True
            continue
        if not colon:
            if not is_begun:
                raise FormatError(source.path, number, "is neither 'tag: value' nor '[Term]'. Is this an OBO file?")
            report.skip(MALFORMED_LINE, path=source.path, line=number, text=line)
        elif len(stanza.tags) < limits.MAX_ROWS:
            stanza.tags.append((number, tag, value.strip()))
        else:
            report.skip(TOO_MANY_ROWS, path=source.path, line=number, text=line)
        is_begun = True
    yield stanza


def _whole_lines(source: ByteSource, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Lines without space around them; one that ends with a backslash is joined to the next one."""
    parts: list[str] = []
    first = n_chars = 0
    for number, line in read_lines(source):
        if isinstance(line, BadLine):
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        line = line.strip()
        if line[-1:] == "\\" and (len(line) - len(line.rstrip("\\"))) % 2 and n_chars < limits.MAX_LINE_BYTES:
            first = first if parts else number
            parts.append(line[:-1])
            n_chars += len(line)
        elif parts:
            yield first, "".join([*parts, line])
            parts, n_chars = [], 0
        else:
            yield number, line
    if parts:
        yield first, "".join(parts)


def _is_obsolete(stanza: Stanza) -> bool:
    """Whether the term of a stanza is marked as obsolete."""
    return any(tag == "is_obsolete" and first_id(value).lower() == "true" for _, tag, value in stanza.tags)


def plain_value(value: str) -> str:
    """A value without quotes: comment and modifiers removed, unescaped, on one line."""
    if " !" in value or "\t!" in value:
        value = _COMMENT.split(value, maxsplit=1)[0].rstrip()
    if value.endswith("}"):
        value = _cut_modifiers(value)
    return _unescape(value)


def first_id(value: str) -> str:
    """The id that a value begins with; a comment or modifiers may follow without a space."""
    match = _ID.match(value)
    return short_id(_unescape(match[0])) if match else ""


def quoted_value(value: str) -> tuple[str, str] | None:
    """The text of a quoted value and the rest after it; None if the quotes are wrong."""
    match = _QUOTED.match(value)
    if match is None or not _AFTER_QUOTED.match(value, match.end()):
        match = _LOOSE.match(value) or match
    return None if match is None else (_unescape(match[1]), value[match.end() :])


def _unescape(text: str) -> str:
    r"""Undo the escapes: ``\n``, ``\t`` and ``\W`` become a space, any other escaped character stands for itself."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: _BLANKS.get(match[1], match[1]), text)
    if "  " in text or "\t" in text:
        text = _SPACE.sub(" ", text)
    return text.strip()


def _cut_modifiers(value: str) -> str:
    """Remove ``{key="value", ...}`` at the end; other braces are part of a name."""
    start = -1
    for _ in range(_MAX_BRACES):
        start = value.find(" {", start + 1)
        if start < 0:
            break
        if len(value) - start <= _MAX_MODIFIERS and _MODIFIERS.fullmatch(value, start + 1):
            return value[:start].rstrip()
    return value
