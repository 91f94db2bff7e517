"""Reading RDF triples."""

from __future__ import annotations

import gzip
import io
from collections.abc import Collection
from contextlib import closing
from typing import NamedTuple

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest.readers.rdf.triples import RDF_TYPE, read_subjects

from ingest.io.limits import MAX_LINE_BYTES
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError, InputError, TooManyErrorsError

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
PREFIXES = (
    "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .\n"
    "@prefix ex: <http://example.org/> .\n"
)


class Triple(NamedTuple):
    """One row with all its terms."""

    subject: str
    predicate: str
    object: str
    language: str | None
    is_literal: bool
    line: int


def read(
    content: str | bytes,
    *,
    predicates: Collection[str] = (LABEL, RDF_TYPE),
    languages: Collection[str] | None = None,
    report: ReadReport | None = None,
) -> list[Triple]:
    """Triples from standard input."""
    data = content if isinstance(content, bytes) else content.encode()
    report = ReadReport() if report is None else report
    with closing(Source("-", io.BytesIO(data))) as source:
        return [
            Triple(subject, predicate, value, language or None, language is not None, line)
            for subject, facts in read_subjects(source, predicates, report, languages=languages)
            for predicate, value, language, line in facts
        ]


def test_n_triples_give_their_terms() -> None:
    """Rows separated by spaces or tabs give full IRIs, texts and line numbers; other predicates are skipped."""
    text = f'<http://a/1> <{LABEL}> "one"@EN .\n<http://a/1>\t<http://a/other>\t"x"\t.\n\n# note\n'
    text += f'<http://a/1>\t<{RDF_TYPE}>\t<http://a/T>\t.\n_:b1 <{LABEL}> "two"^^<http://a/string> . # why\n'
    report = ReadReport()

    assert read(text, report=report) == [
        Triple("http://a/1", LABEL, "one", "en", True, 1),
        Triple("http://a/1", RDF_TYPE, "http://a/T", None, False, 5),
        Triple("_:b1", LABEL, "two", None, True, 6),
    ]
    assert (report.rows, report.skipped, report.filtered) == (3, {}, {})


def test_turtle_prefixes_are_expanded() -> None:
    """Prefixed names become full IRIs, also the predicates; ``a`` is rdf:type; Windows line ends are fine."""
    text = PREFIXES + 'ex:A\trdfs:label\t"a"@en\t.\nex:A a ex:T .\nex:A rdf:type ex:T2.\nex:a\\,b rdfs:label "c"@en .\n'

    for content in (text, text.replace("\n", "\r\n"), "\ufeff" + text, text.rstrip("\n")):
        assert [triple[:4] for triple in read(content)] == [
            ("http://example.org/A", LABEL, "a", "en"),
            ("http://example.org/A", RDF_TYPE, "http://example.org/T", None),
            ("http://example.org/A", RDF_TYPE, "http://example.org/T2", None),
            ("http://example.org/a,b", LABEL, "c", "en"),
        ]


def test_short_words_are_found_among_other_rows() -> None:
    """The predicate ``a`` is found between tabs too, in N-Triples without any prefix."""
    rows = '<http://a/1>\t<http://a/p>\t"x" .\n' * 5 + "<http://a/1>\ta\t<http://a/T>\t.\n"

    assert [triple.line for triple in read(rows)] == [6]


def test_prefixes_of_the_other_spelling_hold_at_once() -> None:
    """Rows right after ``PREFIX`` without a dot are read with it."""
    assert [
        triple.subject for triple in read("PREFIX : <http://a/>\n:x\ta\t:T\t.\n:y a :T .\nPREFIX x: <b:>\n:z a x:T .\n")
    ] == [
        "http://a/x",
        "http://a/y",
        "http://a/z",
    ]


def test_a_prefix_with_a_nul_is_a_bad_row() -> None:
    """What is written with it would carry the NUL into ids and types."""
    report = ReadReport(max_errors=None)

    assert (
        read("@prefix p: <http://one\0/> .\nPREFIX q: <\0>\n<http://a> a p:T .\n<http://a> a q:T .\n", report=report)
        == []
    )
    assert report.skipped == {"nul_character": 2, "bad_triple": 2}


def test_a_prefix_may_change_in_the_middle() -> None:
    """The last declaration of a prefix counts."""
    text = "@prefix p: <http://one/> .\np:a a p:T .\nPREFIX p: <http://two/>\np:a a p:T .\n"

    assert [(t.subject, t.object) for t in read(text)] == [
        ("http://one/a", "http://one/T"),
        ("http://two/a", "http://two/T"),
    ]


def test_escapes_are_undone() -> None:
    """Escapes in literals and IRIs become their characters; a pair of surrogates is one character."""
    text = rf'<http://a/\u00e9> <{LABEL}> "t\t\"q\" \\ \u00e9 \U0001F600 \uD83D\uDE00"@en .'

    assert read(text) == [Triple("http://a/é", LABEL, 't\t"q" \\ é 😀 😀', "en", True, 1)]


def test_other_languages_are_skipped() -> None:
    """Only the requested languages and literals without one are read; "en" is not "en-gb"; the others are counted."""
    rows = [("a", "@en"), ("b", "@fr"), ("c", ""), ("d", "@en-gb"), ("e", "@EN"), ("f", "^^<http://a/s>"), ("g", "@fr")]
    text = "".join(f'<http://a/1> <{LABEL}> "{value}"{tag} .\n' for value, tag in rows * 2)
    report = ReadReport()

    assert [triple.object for triple in read(text, languages=["en"], report=report)] == ["a", "c", "e", "f"] * 2
    assert report.filtered == {"other_language": 6}
    assert report.rows == 14


@pytest.mark.parametrize(
    "row, reason",
    [
        ('ex:A rdfs:label "no dot"@en', "bad_triple"),
        ('ex:A rdfs:label "not closed .', "bad_triple"),
        ('ex:A rdfs:label "not closed ;', "bad_triple"),
        ('ex:A rdfs:label "two" "literals" .', "bad_triple"),
        ('ex:A rdfs:label "bad escape \\x"@en .', "bad_triple"),
        ('ex:A rdfs:label "half a pair \\uD83D"@en .', "bad_triple"),
        ('ex:A rdfs:label "too far \\U00110000"@en .', "bad_triple"),
        ('ex:A rdfs:label "nothing \\u0000"@en .', "bad_triple"),
        ('<http://a/\\u0000> rdfs:label "nothing in the subject"@en .', "bad_triple"),
        ("ex:A rdf:type <http://a/\\U00000000> .", "bad_triple"),
        ('ex:A rdfs:label "bad language"@e_n .', "bad_triple"),
        ("ex:A rdf:type unknown:B .", "bad_triple"),
        ("unknown:A rdf:type ex:B .", "bad_triple"),
        ("ex:A rdf:type B .", "bad_triple"),
        ("ex:A rdf:type <http://a b> .", "bad_triple"),
        ("no triple at all", "bad_triple"),
        ("ex:A ex:unwanted", "bad_triple"),
        ("@base <http://a/> .", "bad_triple"),
        ('ex:A rdfs:label "a\0b"@en .', "nul_character"),
        (b'ex:A rdfs:label "a\xffb"@en .', "invalid_utf8"),
        (b"ex:\xff rdf:type ex:B .", "invalid_utf8"),
        ("ex:A ex:b " + "x" * (MAX_LINE_BYTES + 1), "line_too_long"),
    ],
)
def test_a_bad_row_is_counted_and_the_rest_is_read(row: str | bytes, reason: str) -> None:
    """A bad row is skipped alone, and is shown with its line."""
    good = b'ex:G\trdfs:label\t"g"@en\t.\n'
    bad = row if isinstance(row, bytes) else row.encode()
    report = ReadReport()

    found = read(PREFIXES.encode() + good + bad + b"\n" + good * 4, report=report)

    assert [triple.line for triple in found] == [4, 6, 7, 8, 9]
    assert report.skipped == {reason: 1}
    assert (report.examples[0].path, report.examples[0].line) == ("-", 5)


def test_too_many_bad_rows_stop_the_reading() -> None:
    """Reading ends past the bad rows that are allowed, at the row that was one too many."""
    with pytest.raises(TooManyErrorsError, match="-:3: bad_triple: junk"):
        read("junk\n" * 9, report=ReadReport(max_errors=2))


def test_rows_about_rows_are_skipped() -> None:
    """RDF-star rows are counted, and never taken for what they speak of."""
    report = ReadReport()

    assert (
        read(PREFIXES + '<< ex:A rdfs:label "a"@en >> ex:since "1999" .\n<<ex:A a ex:B>> ex:c ex:D .\n', report=report)
        == []
    )
    assert report.filtered == {"row_about_a_row": 2}
    assert not report.skipped


def test_statements_over_several_lines_are_skipped() -> None:
    """A schema in Turtle's longer form before the rows is counted as such, not as damage."""
    schema = "ex:Work a ex:Shape ;\n\trdfs:label ex:x, ex:y ;\n\ta ex:Class .\n\n"
    schema += "ex:p\n\tex:q [ ex:r ex:s ] ;\n\tex:t ex:u .\n"
    report = ReadReport()

    assert [
        triple.line for triple in read(PREFIXES + schema + 'ex:A rdfs:label "a" .\nex:x\tjunk\n', report=report)
    ] == [11]
    assert report.filtered == {"statement_over_lines": 6}
    assert report.skipped == {"bad_triple": 1}


def test_a_damaged_file_says_how_far_it_was_read() -> None:
    """A file that was cut off ends with an error after the rows before the cut."""
    rows = "".join(f'<http://a/{i}> <{LABEL}> "{i * 7919 % 10007}" .\n' for i in range(20_000))
    whole = gzip.compress(rows.encode())

    assert len(read(whole)) == 20_000
    with pytest.raises(FormatError, match=r"-:[0-9]+: after this line, .* ends early"):
        read(whole[: len(whole) // 2])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xff\xfeh\0i\0"])
def test_what_is_no_text_is_refused(content: bytes) -> None:
    """An empty or foreign file is an error."""
    with pytest.raises(FormatError):
        read(content)


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_NAMES = st.text("abcXYZ_é-0.", min_size=1, max_size=6).filter(lambda name: not name.endswith("."))
_TAGS = st.sampled_from(["", "@en", "@fr", "@en-gb", "^^ex:string", "^^<http://a/s>"])
_SPACE = st.sampled_from([" ", "\t", " \t "])
_ENDS = st.sampled_from([".\n", " .\n", "\t.\r\n", ' . # it said "so" .\n'])


def escape(text: str, *, wide: bool) -> str:
    """The text, escaped as in a literal."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return "".join(f"\\U{ord(c):08X}" if wide and ord(c) > 127 else c for c in plain)


@given(st.lists(st.tuples(_NAMES, _TEXT, _TAGS, _SPACE, _ENDS, st.booleans(), st.booleans()), max_size=12))
@settings(deadline=None, max_examples=examples(200))
def test_whatever_is_written_comes_back(rows: list[tuple[str, str, str, str, str, bool, bool]]) -> None:
    """Any text survives being written as a row and read again, and no row beside it is lost."""
    content = PREFIXES
    expected: list[tuple[str, str, str | None]] = []
    for name, value, tag, space, end, wide, is_name in rows:
        content += f"ex:{name}{space}"
        if is_name:
            content += f"rdf:type{space}<http://a/{name}>{end}"
            expected.append((f"http://example.org/{name}", f"http://a/{name}", None))
        else:
            content += f'rdfs:label{space}"{escape(value, wide=wide)}"{tag}{end}'
            language = tag[1:] if tag.startswith("@") else None
            if language in (None, "en"):
                expected.append((f"http://example.org/{name}", value, language))
    report = ReadReport(max_errors=0)

    found = read(content, languages={"en"}, report=report)

    assert [(triple.subject, triple.object, triple.language) for triple in found] == expected
    assert report.rows == len(rows)


_SCRAPS = [b"<", b">", b'"', b"\\", b"\\u12", b".", b"\n", b"\r", b"\t", b" ", b"@prefix ", b"@en", b"^^", b"<<"]
_SCRAPS += [b"\0", b"\xff", b";", b"#", b"ex:", b"rdfs:label", b"a", b"ex:A", f"<{LABEL}>".encode()]
_SCRAPS += [b'ex:A rdfs:label "x"@en .\n', *[PREFIXES.encode()] * 3]


@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(_SCRAPS), max_size=30).map(b"".join)))
@settings(deadline=None, max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
def test_no_bytes_break_it(content: bytes) -> None:
    """Any bytes give triples, counted rows, or an error that explains what is wrong."""
    report = ReadReport(max_errors=None)
    try:
        found = read(content, report=report)
    except InputError:
        return
    assert len(found) + report.n_skipped <= content.count(b"\n") + 1
    for triple in found:
        "".join(triple[:3]).encode("utf-8")
