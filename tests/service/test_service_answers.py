"""The service answers as the linker does.
Names are found by prefix, by a word's prefix, and with a slip.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from linker_base import ENTITIES
from pair_table import other_outcomes
from service_client import handle_of

from pearl_qdrant import Annotation
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.records import link_record
from pearl_qdrant.service.names import NameIndex, build_index, fold
from pearl_qdrant.store.schema import NamePoint

MENTIONS = ["NYTimes", "Big Apple", "New York", "NYTimes; heart attack", "zzz qqq", ""]


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"limit": 1, "threshold": 0}, {"threshold": 1}, {"on_tie": "null"}, {"on_tie": "first", "nil_bias": 5.0}),
        *({"types": ["state"]}, {"types": ["state"], "type_mode": "soft", "limit": 9}, {"type_mode": "off"}),
        *({"languages": ["en"], "threshold": 0}, {"languages": ["fi"]}, {"context": "A newspaper"}, {"split": True}),
        *({"properties": {"kb_types": ["newspaper", None, "state", *[None] * 3]}},),
    ],
)
@pytest.mark.parametrize("explain", [False, True])
def test_mentions_are_linked_as_the_linker_does(client: TestClient, options: dict[str, Any], explain: bool) -> None:
    """Each option counts, and answers come in the order of the mentions; an explanation has features and lines."""
    linker, given = handle_of(client).linker, options
    if explain and "properties" not in options:  # which shows whatever the answer needs
        given = {"limit": 10, **options}
    answer = client.post("/v1/link", json={"mentions": MENTIONS, "explain": explain, **given}).json()["links"]
    links = list(linker.link_batch(MENTIONS, **given))

    explained = [one.pop("explanation") for one in answer if explain]
    parts = [{"parts": list(map(link_record, one.parts))} if one.parts else {} for one in links]  # not explained
    records = [link_record(one, is_explained=explain) for one in links]
    assert answer == [as_json(one | more) for one, more in zip(records, parts, strict=True)]
    assert explained == [explain_link(link, linker.calibration, linker.model) for link in links if explain]


PLACES = {"spans": [{"start": 4, "end": 11}, {"start": 18, "end": 21}], "threshold": 0}


@pytest.mark.parametrize(
    "path, body",
    [
        *(
            ("annotate", one)
            for one in ({"threshold": 0.2}, {"nested": True}, {"include_nil": True}, {"document": True})
        ),
        *(("annotate", {"assertions": [one]}) for one in ("affirmed", "other_person", "other-person")),
        *(("annotate", one) for one in ({"types": ["GPE"]}, {"common_words": "skip", "on_tie": "first"}, PLACES)),
        *(("documents", one) for one in (PLACES, {**PLACES, "types": ["GPE"], "limit": 2, "without": ["passages"]})),
    ],
)
def test_texts_are_annotated_as_the_linker_does(client: TestClient, path: str, body: dict[str, Any]) -> None:
    """Mentions are found, or linked at their places, which count code points; so it is with those of a document."""
    linker = handle_of(client).linker
    text = "The NYTimes was in NYC. \U0001f5de She never had a heart attack there, The New York Times said."
    found = client.post(f"/v1/{path}", json={"text": text, **body}).json()["annotations"]
    options = {**body, "spans": [(one["start"], one["end"]) for one in body["spans"]]} if "spans" in body else body
    expected = (linker.annotate if path == "annotate" else linker.link_document)(text, **options)

    assert found == [as_json({**vars_of(one), "link": link_record(one.link)}) for one in expected]
    assert "other" in str(body) or found


def vars_of(annotation: Annotation) -> dict[str, Any]:
    """The fields of an annotation."""
    return {one.name: getattr(annotation, one.name) for one in fields(annotation)}


def as_json(record: Any) -> Any:
    """A record as a client reads it."""
    return orjson.loads(orjson.dumps(record))


@pytest.mark.parametrize(
    "path, body, where, said",
    [
        ("link", {"mentions": ["x"], "languages": ["en"] * 5}, "languages", "max_"),
        (
            "link",
            {"mentions": ["x"], "properties": {"kb_types": []}},
            "properties.kb_types",
            "has 0 values, mentions 1",
        ),
        ("link", {"mentions": ["x"], "properties": {"no such": ["x"]}}, "", "no property 'no such'"),
        ("documents", {"text": "short", "spans": [{"start": 0, "end": 9}]}, "spans.0", "is 0 to 9"),
    ],
)
def test_what_does_not_fit_is_named(client: TestClient, path: str, body: dict[str, Any], where: str, said: str) -> None:
    """Columns of another length, or that the base does not have, too many languages, and places outside the text."""
    answer = client.post(f"/v1/{path}", json=body)

    assert (answer.status_code, answer.json().get("where", "")) == (422, where)
    assert said in answer.text


def test_a_program_in_javascript_gives_the_spans_of_its_recogniser(client: TestClient) -> None:
    """Spans with labels, offsets in UTF-16 code units, and HTML; what is outside the text is named."""
    body = {
        "text": "<p>🦄 wrote in the <b>NYTimes</b> of New&nbsp;York.</p>",
        "markup": "html",
        "offsets": "utf-16",
        "threshold": 0,
        "include_nil": True,
        "spans": [{"start": 22, "end": 29, "label": "PAPER"}, {"start": 37, "end": 50, "label": "PLACE"}],
        "label_types": {"PAPER": ["newspaper"], "PLACE": ["state"]},
    }

    first, second = client.post("/v1/annotate", json=body).json()["annotations"]

    assert (first["start"], first["text"], first["link"]["entity_id"]) == (22, "NYTimes", "nyt")
    assert (second["text"], second["link"]["entity_id"]) == ("New&nbsp;York", "nys")
    assert first["sentence"] == [3, 51]
    assert first["section"] is None
    outside = client.post("/v1/annotate", json={**body, "spans": [{"start": 0, "end": 56}]})
    assert outside.status_code == 422
    assert "spans.0 is 0 to 56, but the text has 55 UTF-16 code units" in outside.json()["message"]
    both = client.post("/v1/annotate", json={**body, "document": True})
    assert (both.status_code, "label_types is not for document" in both.json()["message"]) == (422, True)


def test_names_are_suggested_while_they_are_typed(client: TestClient) -> None:
    """The beginning of a name finds its entity, with types, also with a slip."""
    wait_until(lambda: client.get("/v1/search", params={"q": "n"}).status_code == 200)

    def found(query: str, **more: str) -> list[str]:
        results = client.get("/v1/search", params={"q": query, **more}).json()["results"]
        return [one["entity_id"] for one in results]

    [times] = client.get("/v1/search?q=new york t").json()["results"]
    shown = [times[key] for key in ("entity_id", "types", "kb_types", "description")]
    assert shown == ["nyt", ["ORG"], ["ORG", "newspaper"], "A newspaper"]
    assert found("apple") == ["nyc"]
    assert set(found("new yrok", type="state")) == {"nys"}
    assert found("new yrok", type="nothing") == []
    assert found("heart attakc") == ["mi"]
    assert found("!?") == []


def test_a_body_that_is_no_json_is_invalid(client: TestClient) -> None:
    """Bytes that are no JSON, or no UTF-8, are an error of the request."""
    for content in (b"{", b"\xff", b"", b'{"mentions": ["\\ud800"]}'):
        answer = client.post("/v1/link", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


@pytest.mark.parametrize(
    "method, path, body, code",
    [
        ("POST", "/v1/link", {"mentions": ["x"], "collection": "none"}, "collection_not_found"),
        ("GET", "/v1/nothing", None, "not_found"),
        ("GET", "/v1/link", None, "method_not_allowed"),
        ("POST", "/v1/link", {"mentions": ["x"], "mention": "y"}, "invalid"),
        ("POST", "/v1/link", {"mentions": ["x"], "types": ["newspapr"]}, "unknown_type"),
        ("GET", "/v1/entities/base/none", None, "entity_not_found"),
        ("GET", "/v1/entities/other/nyc", None, "entity_not_found"),
        ("POST", "/v1/accept", {"mention": "x", "entity_id": "nyc"}, "writing_not_allowed"),
    ],
)
def test_errors_are_json_with_a_code(
    client: TestClient, method: str, path: str, body: dict[str, object] | None, code: str
) -> None:
    """Every error has a status, a code for programs, a message for people without a command of a shell, and the
    request's id; an unknown type is named with a similar one.
    """
    answer = client.request(method, path, json=body)

    assert (answer.status_code == 422) is (code in ("invalid", "unknown_type"))
    assert answer.json()["error"] == code
    assert answer.json()["message"]
    assert code != "unknown_type" or "newspaper" in answer.json()["message"]
    assert "pearl-qdrant " not in answer.json()["message"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "query, expected",
    [
        ("q=new+y&collection=base&limit=10", {"nyt", "nyp", "nyc", "nys"}),
        ("q=new%20y&type=state&type=newspaper", {"nyt", "nyp", "nys"}),
        ("q=new%20york&limit=%2B2", {"nyc", "nys"}),
        ("q=x&q=new%20york%20t", {"nyt"}),
        ("q=new%20york%20t&unknown=1", {"nyt"}),
    ],
)
def test_every_way_to_ask_for_names_is_read(client: TestClient, query: str, expected: set[str]) -> None:
    """All parameters count, the last of several values does, and unknown parameters do not."""
    wait_until(lambda: client.get("/v1/search", params={"q": "n"}).status_code == 200)
    results = client.get(f"/v1/search?{query}").json()["results"]

    assert {one["entity_id"] for one in results} == expected
    for wrong in ("", "limit=3", "q=x&limit=0", "q=x&limit=-1", "q=x&limit=a"):
        answer = client.get(f"/v1/search?{wrong}")
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


def test_a_collection_says_what_it_takes_for_granted(client: TestClient) -> None:
    """State and counts; the thresholds where a request names none, and some names to try, each of another entity."""
    [listed] = client.get("/v1/collections").json()["collections"]
    assert (listed["collection"], listed["kb"], listed["entities"]) == ("base", "base", 7)
    found = client.get("/v1/collections/base").json()

    assert 0 < found["threshold"] < 1
    assert found["passage_threshold"] == 0.5
    names = {name: entity.entity_id for entity in ENTITIES for name in entity.names()}
    assert len({names[example] for example in found["examples"]}) == 5
    assert client.get("/v1/collections/none").status_code == 404


def index_over(*points: NamePoint) -> NameIndex:
    """An index of some points."""
    with TemporaryDirectory() as folder:  # what is open stays, when its name is gone
        build_index(points, Path(folder) / "index")
        return NameIndex(Path(folder) / "index")


def index_of(*names: str) -> NameIndex:
    """An index of names, each of an entity of its own."""
    return index_over(*(NamePoint("kb", name, name, name, True) for name in names))


def found(index: NameIndex, query: str, **options: int) -> list[str]:
    """The names that are found, in their order."""
    return [one.name for one in index.find(query, **options)]


def test_names_are_found_by_what_was_typed() -> None:
    """A name, the beginning of one, or of a word of one, in this order; then names with a slip, where it is likely."""

    def outcome(query: str, *base: str) -> str:
        names = found(index_of(*base), query)
        assert found(index_of(*base), query, limit=2) == names[:2]
        return "; ".join(names) or "none"

    assert other_outcomes(__file__, "typed", outcome) == []


def test_the_best_of_a_long_range_are_found() -> None:
    """Of thousands of names with one beginning, those of the most popular entities are shown, each entity once."""
    names = [f"name {i:05d}" for i in range(5000)]
    points = [NamePoint("kb", name, name, name, True, popularity=float(i % 4001)) for i, name in enumerate(names)]
    points.append(NamePoint("kb", "name 04000", "name, another", "name 04000", False, popularity=4000.0))

    best = index_over(*points).find("name", limit=3)

    assert [(one.entity_id, one.popularity) for one in best] == [(f"name 0{n}", n) for n in (4000, 3999, 3998)]


def test_an_index_is_written_once_and_read_by_all(tmp_path: Path) -> None:
    """Several readers open one file; a build that fails leaves none."""
    path = tmp_path / "new" / "index"
    build_index([NamePoint("kb", "q", "Zürich", "Zürich", True, ("city",), ("GPE",))], path)
    build_index([NamePoint("kb", "q", "Zürich", "Zürich", True, ("city",), ("GPE",))], path)  # another worker

    assert [found(one, "zuri") for one in (NameIndex(path), NameIndex(path))] == [["Zürich"]] * 2
    with pytest.raises(AttributeError):
        build_index([None], tmp_path / "new" / "other")  # type: ignore[list-item]
    assert [one.name for one in path.parent.iterdir()] == ["index"]


names = st.text("abcé -1東", min_size=1, max_size=14)


@settings(max_examples=40)
@given(base=st.lists(names, min_size=1, max_size=8, unique=True), query=names)
def test_prefixes_are_those_that_a_search_of_all_names_finds(base: list[str], query: str) -> None:
    """What is found without a slip are all names of which a word begins what was typed."""
    index = index_of(*base)
    typed = fold(query)
    expected = {
        name
        for name in base
        if typed and any((" " + fold(name))[i:].startswith(" " + typed) for i in range(len(name) * 4))
    }

    results = index.find(query, limit=100)

    assert {one.name for one in results if one.match != "slip"} == expected


@settings(max_examples=40)
@given(name=st.text("abcdefgh ", min_size=6, max_size=40), at=st.integers(0, 39), other=st.sampled_from("abcdefgh"))
def test_every_name_is_found_with_a_letter_changed(name: str, at: int, other: str) -> None:
    """A name whose letter was changed anywhere is found, if enough of it is left."""
    folded = fold(name)
    typed = fold(folded[: at % max(1, len(folded))] + other + folded[at % max(1, len(folded)) + 1 :])
    if len(folded) < 6 or len(typed) != len(folded):
        return

    assert name in found(index_of(name, "zzzz", "aaaa"), typed)


@pytest.mark.parametrize("query", ["\ufdfa" * 1000, "a name that goes on " * 45, "\u03bf" * 1000, "x" * 1000])
def test_the_work_of_a_search_does_not_grow_with_the_query(query: str) -> None:
    """A query that is long, or grows when it is folded, is found as it is written alone: no spellings are tried."""
    index = index_of("Paris", query, query[:-2])

    assert [one[:10] for one in found(index, query)] == [query[:10]] * 2
    assert found(index, query[:1] + "q" + query[2:]) == []
    assert found(index, query[:-1] + "?", limit=1)
