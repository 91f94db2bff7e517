"""The service answers as the linker does.
Names are found by prefix, by a word's prefix, and with a slip.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from linker_base import ENTITIES

from pearl_qdrant.service.names import NameIndex, build_index, fold
from pearl_qdrant.store.schema import NamePoint


def test_mentions_are_linked_in_their_order(client: TestClient) -> None:
    """A batch of mentions has one link each, with candidates and probability, or NIL with a reason."""
    answer = client.post("/v1/link", json={"mentions": ["NYTimes", "Big Apple"], "limit": 1, "threshold": 0})

    assert answer.status_code == 200
    first, second = answer.json()["links"]
    assert (first["mention"], first["entity_id"]) == ("NYTimes", "nyt")
    assert (second["mention"], second["entity_id"]) == ("Big Apple", "nyc")
    assert len(first["candidates"]) == 1
    assert "features" not in first["candidates"][0]


def test_columns_beside_the_mentions_must_fit(client: TestClient) -> None:
    """Values of a property are one for each mention, and of a property that the base has; null changes nothing."""
    plain = client.post("/v1/link", json={"mentions": ["NYTimes"]}).json()["links"][0]
    body = {"mentions": ["NYTimes"], "properties": {"kb_types": [None]}}
    short = client.post("/v1/link", json={**body, "properties": {"kb_types": []}})
    unknown = client.post("/v1/link", json={**body, "properties": {"no such": ["x"]}})
    agreeing = client.post("/v1/link", json={**body, "properties": {"kb_types": ["newspaper"]}}).json()["links"][0]

    same = client.post("/v1/link", json=body).json()["links"][0]
    assert (same["entity_id"], same["probability"]) == (plain["entity_id"], pytest.approx(plain["probability"]))
    assert (short.status_code, unknown.status_code) == (422, 422)
    assert "no property 'no such'" in unknown.text
    assert agreeing["candidates"][0]["properties"]["kb_types"] == 1.0


def test_a_link_that_its_row_changed_is_explained(client: TestClient) -> None:
    """With columns and `explain` an answer says that the row changed the link."""
    body = {"mentions": ["New York"], "properties": {"kb_types": ["state"]}, "explain": True}
    answer = client.post("/v1/link", json=body)

    assert answer.status_code == 200, answer.text
    changed = [one for one in answer.json()["links"] if one["rule"] == "properties"]
    assert changed
    assert all("the values of its row" in one["explanation"][0] for one in changed)


def test_lists_are_split_when_asked(client: TestClient) -> None:
    """A list of names is NIL; `split` adds the links of its names."""
    whole, split = (
        client.post("/v1/link", json={"mentions": ["NYTimes; heart attack"], "split": one}).json()["links"][0]
        for one in (False, True)
    )

    assert (whole["nil_reason"], "parts" in whole) == ("several_names", False)
    assert [one["entity_id"] for one in split["parts"]] == ["nyt", "mi"]


def test_options_of_the_linker_count(client: TestClient) -> None:
    """Types filter, a threshold makes NIL, and an explanation has features and lines."""
    typed = {"mentions": ["New York"], "types": ["state"], "threshold": 0, "explain": True}
    found = client.post("/v1/link", json=typed).json()["links"][0]
    nil = client.post("/v1/link", json={"mentions": ["zzz qqq"], "threshold": 1}).json()["links"][0]

    assert found["entity_id"] == "nys"
    assert found["explanation"][0].startswith("linked")
    assert "dense" in found["candidates"][0]["features"]
    assert (nil["entity_id"], nil["nil_reason"]) == (None, "below_threshold")


def test_languages_choose_the_names(client: TestClient) -> None:
    """A name in another language is not found; one without a language is. Answers show the language of the name."""
    found, other = (
        client.post("/v1/link", json={"mentions": ["Big Apple"], "languages": [code], "threshold": 0}).json()
        for code in ("en", "fi")
    )
    refused = client.post("/v1/link", json={"mentions": ["Big Apple"], "languages": ["en"] * 5})

    assert [found["links"][0]["candidates"][0][key] for key in ("name", "language")] == ["Big Apple", "en"]
    assert {one["language"] for one in other["links"][0]["candidates"]} == {None}
    assert (refused.status_code, refused.json()["where"]) == (422, "languages")


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


def test_mentions_in_a_text_are_found(client: TestClient) -> None:
    """A text is annotated; offsets count code points. Each mention has an assertion and its trigger, and the request
    may keep some.
    """
    text = "\U0001f5de She read the NYTimes."
    found = client.post("/v1/annotate", json={"text": text, "threshold": 0.2}).json()["annotations"]

    at = text.index("NYTimes")
    assert [one["link"]["entity_id"] for one in found if one["start"] == at] == ["nyt"]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)
    body = {"text": "She never read the NYTimes.", "threshold": 0.2}
    (found,) = client.post("/v1/annotate", json=body).json()["annotations"]
    assert (found["text"], found["assertion"], found["trigger"]) == ("NYTimes", "negated", "never")
    for others in (["affirmed"], ["other_person"], ["other-person"]):
        assert client.post("/v1/annotate", json={**body, "assertions": others}).json()["annotations"] == []


def test_mentions_of_a_document_are_linked_at_their_places(client: TestClient) -> None:
    """A document with known places has one annotation for each; a place behind the end of the text is named."""
    body = {"text": "The NYTimes is in NYC.", "spans": [{"start": 4, "end": 11}, {"start": 18, "end": 21}]}
    found = client.post("/v1/documents", json={**body, "threshold": 0}).json()["annotations"]
    outside = client.post("/v1/documents", json={"text": "short", "spans": [{"start": 0, "end": 9}]})

    assert [one["link"]["entity_id"] for one in found] == ["nyt", "nyc"]
    assert (outside.status_code, outside.json()["where"]) == (422, "spans.0")


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


EINSTEIN = ("Albert Einstein", "Paris", "Elephant")


@pytest.mark.parametrize(
    "base, query, expected",
    [
        pytest.param(
            *(("Great Yorkshire", "Yorkshire", "York", "New York"), "york"),
            ["York", "New York", "Yorkshire", "Great Yorkshire"],
            id="names, beginnings, inner words",
        ),
        *(
            pytest.param(EINSTEIN, query, ["Albert Einstein"], id=f"a slip: {query}")
            for query in ("enstein", "eiinstein", "eimstein", "ienstein", "albert einstien", "alberteinstein")
        ),
        pytest.param(
            *(("University of Cambridge", "Oxford"), "universty of cambrige"),
            ["University of Cambridge"],
            id="two slips of a long query",
        ),
        pytest.param(("Martin", "Mertin"), "martin", ["Martin"], id="no slip beside a whole name"),
        pytest.param(("Martin", "Mertin"), "marti", ["Martin", "Mertin"], id="a slip beside a beginning"),
        pytest.param(("York",), "yrk", [], id="three letters are too few for a slip"),
        pytest.param(("Éclair-au chocolat",), "eclair au", ["Éclair-au chocolat"], id="accents and signs"),
        pytest.param(("α-synuclein",), "ALPHA syn", ["α-synuclein"], id="Greek letters and case"),
        pytest.param(("C++", "C"), "c++", ["C++"], id="symbols"),
        pytest.param(("東京都",), "東京", ["東京都"], id="another script"),
        pytest.param((), "anything", [], id="no names"),
    ],
)
def test_names_are_found_by_what_was_typed(base: tuple[str, ...], query: str, expected: list[str]) -> None:
    """A name, the beginning of one, or of a word of one, in this order; then names with a slip, where it is likely."""
    assert found(index_of(*base), query) == expected
    assert found(index_of(*base), query, limit=2) == expected[:2]


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
