"""Search by vector, by n-grams, and by both together, in every kind of store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from scored_names import ngram_rows
from store_cases import DIM, many, point, put, unit, yes

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.keys import key_rows, name_keys, near_rows, slip_features
from pearl_qdrant.lexical.ngrams import fold_name, join_rows
from pearl_qdrant.store import Collection
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import IsNear, OwnNames, ScoredName, SlipQuery

ONE = unit([1.0])


def hybrid(
    collection: Collection,
    vector: list[float],
    name: str,
    *,
    limit: int = 1,
    lexical_limit: int = 10,
    types: tuple[str, ...] = (),
) -> list[ScoredName]:
    """What one mention finds."""
    lexical = ngram_rows([name])
    (hits,) = collection.search_hybrid(unit(vector), lexical, limit=limit, lexical_limit=lexical_limit, types=types)
    return hits


def shown(hits: list[ScoredName]) -> list[tuple[str, float | None]]:
    """Names and rounded scores."""
    return [(hit.point.name, None if hit.score is None else round(hit.score, 3)) for hit in hits]


def cities() -> list[tuple[NamePoint, list[float]]]:
    """Cities and a company whose vectors are near other names than their spelling is."""
    return [
        (point("1", "København", types=("GPE",)), [0.0, 1.0]),
        (point("2", "Danish capital", types=("GPE",)), [1.0, 0.1]),
        (point("3", "Aarhus", types=("GPE",)), [1.0, 1.0]),
        (point("4", "Kobenhavn Airport Ltd."), [0.6, 0.8]),
    ]


def test_spelling_finds_what_the_vector_misses(collection: Collection) -> None:
    """A name with similar spelling is found although its vector is far, with its cosine; each name appears once.

    Each search has its own limit: n-grams find the nearest spelling first. Neither finds a name of another type.
    """
    put(collection, *cities())

    hits = hybrid(collection, [1.0], "kobenhavn")
    assert shown(hits) == [("Danish capital", 0.995), ("Kobenhavn Airport Ltd.", 0.6), ("København", 0.0)]
    assert hits[1].point == cities()[3][0]
    assert [name for name, _ in shown(hybrid(collection, [1.0], "the danish capital"))] == ["Danish capital"]
    assert shown(hybrid(collection, [1.0], "kobenhavn", limit=4))[1:] == [
        ("Aarhus", 0.707),
        ("Kobenhavn Airport Ltd.", 0.6),
        ("København", 0.0),
    ]
    nearest = shown(hybrid(collection, [1.0], "kobenhavn", lexical_limit=1))
    assert [name for name, _ in nearest] == ["Danish capital", "København"]
    assert len(hybrid(collection, [1.0], "kobenhavn", limit=3, lexical_limit=1)) == 4
    gpe, org = (shown(hybrid(collection, [1.0], "kobenhavn", types=(one,))) for one in ("GPE", "ORG"))
    assert [name for name, _ in gpe] == ["Danish capital", "København"]
    assert [name for name, _ in org] == ["Kobenhavn Airport Ltd."]
    assert hybrid(collection, [1.0], "kobenhavn", types=("\ud800",)) == []


def test_names_that_share_features_are_found_without_a_vector(collection: Collection) -> None:
    """Each row of features finds its names, best first, at most as many as I ask for it; of those that tie at the end
    none, unless all do.
    """
    names = ["Winchester", "Winchcombe", "Manchester", "Aarhus", "Aarhus"]
    put(collection, *((point(str(i), name, language="en" if i else "de"), [1.0]) for i, name in enumerate(names)))
    rows = join_rows([near_rows(["winchetser"]), key_rows([name_keys("aarhus")]), near_rows(["nothing like it"])])

    def found(limits: list[int], **options: Any) -> list[list[str]]:
        return [[one.name for one in some] for some in collection.search_lexical(rows, limits, **options)]

    assert found([1, 2, 3]) == [["Winchester"], ["Aarhus", "Aarhus"], []]
    assert found([9, 1, 3]) == [["Winchester", "Winchcombe"], ["Aarhus"], []]
    assert found([9, 9, 9], languages=["en"]) == [["Winchcombe"], ["Aarhus", "Aarhus"], []]


def test_a_filter_by_language_keeps_names_without_one(collection: Collection) -> None:
    """By vector, by spelling and by the name itself; a name of several languages passes too."""
    names = [
        ("1", "Genf", "de"),
        ("2", "Geneva", "en"),
        ("3", "Genève", "fr"),
        ("4", "Genf VD", None),
        ("5", "GE", "mul"),
    ]
    put(collection, *((point(key, name, language=code), [1.0, float(key) / 10]) for key, name, code in names))

    def names_in(*languages: str, types: tuple[str, ...] = ()) -> set[str]:
        options = {"limit": 9, "lexical_limit": 9, "types": types, "languages": languages}
        (hits,) = collection.search_hybrid(unit([1.0]), ngram_rows(["Genf"]), **options)
        return {hit.point.name for hit in hits}

    assert names_in("de") == {"Genf", "Genf VD", "GE"}
    assert names_in("fr", "en", types=("ORG",)) == {"Geneva", "Genève", "Genf VD", "GE"}
    assert names_in("\ud800") == {"Genf VD", "GE"}
    assert names_in("de", types=("GPE",)) == set()
    assert len(names_in()) == 5
    assert collection.find(names=["Geneva", "GE"], languages=("de",), limit=9) == [point("5", "GE", language="mul")]
    assert collection.language_counts() == {"de": 1, "en": 1, "fr": 1, "mul": 1}


def test_names_without_a_vector_are_found_by_spelling(collection: Collection) -> None:
    """A name that the tokenizer cannot encode is found by its letters, without a score, after names with a score; of
    more namesakes than requested, every store returns those with the first ids.
    """
    points = [point("1", "Токио"), point("2", "Токио 2"), point("3", "Tokyo"), point("4", "\U0001f600")]
    collection.upsert(points, unit([], [], [1.0], []), np.array([False, False, True, False]))
    unseen = sorted((p for p in points[:2]), key=lambda p: p.id)

    hits = hybrid(collection, [1.0], "ТОКИО")
    assert shown(hits) == [("Tokyo", 1.0), *[(p.name, None) for p in unseen]]
    assert [hit.point for hit in hits[1:]] == unseen
    assert shown(hybrid(collection, [1.0], "\U0001f600")) == [("Tokyo", 1.0)]
    namesakes = [point(f"E{i}", "Springfield") for i in range(30)]
    collection.upsert(namesakes, np.zeros((30, DIM), dtype=np.float32), np.zeros(30, dtype=np.bool_))
    first = hybrid(collection, [], "Springfield", lexical_limit=3)
    assert [hit.point.id for hit in first] == sorted(p.id for p in namesakes)[:3]


def test_a_mention_without_a_vector_is_searched_by_spelling(collection: Collection) -> None:
    """Without a vector I get names by n-grams, without scores; without letters by vector; without both nothing."""
    put(collection, *cities())

    assert dict(shown(hybrid(collection, [], "kobenhavn"))) == {"København": None, "Kobenhavn Airport Ltd.": None}
    assert shown(hybrid(collection, [1.0], "!?")) == [("Danish capital", 0.995)]
    assert hybrid(collection, [], "") == []


def test_equal_scores_are_ordered_by_point_id(collection: Collection) -> None:
    """Namesakes have the same order in each search, even if the limit of the dense one cuts through them."""
    points = [point(f"E{i}", "Springfield") for i in range(40)]
    collection.upsert(points, np.repeat(unit([1.0, 2.0, 3.0]), 40, axis=0), yes(40))
    ordered = sorted(p.id for p in points)

    for limit in (1, 5, 39, 40, 100):
        hits = collection.search(unit([1.0, 2.0, 2.5]), limit=limit)[0]
        assert [hit.point.id for hit in hits] == ordered[:limit]
        hits = hybrid(collection, [1.0, 2.0, 2.5], "other words", limit=limit)
        assert [hit.point.id for hit in hits] == ordered[:limit]
        by_both = [hit.point.id for hit in hybrid(collection, [1.0, 2.0, 2.5], "springfield", limit=limit)]
        assert by_both == sorted(set(by_both))
        assert set(ordered[:limit]) <= set(by_both)


def test_an_exact_match_skips_the_search_by_ngrams(collection: Collection) -> None:
    """A query whose own name is found is not searched by n-grams; the other queries of the batch are."""
    put(collection, *cities())
    vectors = np.concatenate([unit([0.0, 1.0]), unit([0.0, 1.0]), unit([1.0, 1.0])])
    asked: list[tuple[int, str]] = []

    def is_match(number: int, point: NamePoint) -> bool:
        asked.append((number, point.name))
        return number == 0

    rows, keys = ngram_rows(["København"] * 3), key_rows([name_keys(fold_name("København"))] * 3)
    found = collection.search_hybrid(vectors, rows, limit=1, lexical_limit=4, own=OwnNames(is_match, keys))

    assert [[hit.point.name for hit in hits] for hits in found] == [
        ["København"],
        ["København", "Kobenhavn Airport Ltd."],
        ["Aarhus", "Kobenhavn Airport Ltd.", "København"],
    ]
    assert asked == [(0, "København"), (1, "København"), (2, "København")]


def test_one_mention_finds_what_it_finds_in_a_batch(collection: Collection) -> None:
    """A single mention may need fewer requests, but it finds the same names with the same scores."""
    points, vectors, encodable = many(60)
    collection.upsert(points, vectors, encodable)
    unencodable = [point(f"U{i}", f"E{i} a b") for i in range(6)]
    collection.upsert(unencodable, np.zeros((6, DIM), dtype=np.float32), np.zeros(6, dtype=np.bool_))
    queries = np.concatenate([vectors[:8], many(8, start=1)[1]])
    names = [f"E{i} a" if i % 3 else f"E{i + 8} a b" for i in range(16)]
    queries[::7] = 0
    names[::5] = ["\U0001f600"] * 4

    def search(first: int, last: int) -> list[list[ScoredName]]:
        rows = ngram_rows(names[first:last])
        return collection.search_hybrid(
            queries[first:last],
            rows,
            limit=3,
            lexical_limit=4,
            own=OwnNames(
                lambda number, _: (first + number) % 2 == 0,
                key_rows([name_keys(fold_name(name)) for name in names[first:last]]),
            ),
        )

    for i, together in enumerate(search(0, 16)):
        (alone,) = search(i, i + 1)
        assert [hit.point.id for hit in alone] == [hit.point.id for hit in together]
        assert shown(alone) == shown(together)


def test_rare_features_count_more(collection: Collection) -> None:
    """Of two names that share a word with the mention, the one that shares the rarer word is nearer."""
    points = [point(f"E{i}", f"Bank of {chr(65 + i)}") for i in range(20)] + [point("X", "Zimbra")]
    collection.upsert(points, np.repeat(unit([1.0]), 21, axis=0), yes(21))

    assert [name for name, _ in shown(hybrid(collection, [], "bank zimbra", lexical_limit=1))] == ["Zimbra"]


def test_ngrams_follow_writes_and_deletions(collection: Collection) -> None:
    """Deleted names are no longer found, new ones are; a new payload changes no vector; a load writes both vectors."""
    put(collection, *cities())
    collection.delete_entities(["1"])
    collection.replace_payloads([point("4", "Kobenhavn Airport Ltd.", description="new")])
    points, vectors, _ = many(300)
    with collection.writer() as writer:
        writer.write([*points, point("E9", "Kobenhavn Nord")], np.vstack([vectors, unit([0.0, 0.0, 1.0])]), yes(301))
    collection.finalize()

    hits = hybrid(collection, [], "kobenhavn")
    assert {(hit.point.name, hit.point.description) for hit in hits} == {
        ("Kobenhavn Airport Ltd.", "new"),
        ("Kobenhavn Nord", None),
    }
    collection.upsert([point("4", "Kobenhavn Airport Ltd.")], unit([]), np.array([False]))
    assert ("Kobenhavn Airport Ltd.", None) in shown(hybrid(collection, [0.0, 0.0, 1.0], "kobenhavn"))
    status = collection.status()
    assert (status.points, status.vectors) == (304, 303)
    assert status.is_finalized


def test_a_name_with_slips_is_found_by_its_parts(collection: Collection) -> None:
    """Neither its vector nor rare n-grams are near; if it is a match, n-grams are not searched; alone as in a batch."""
    put(
        collection,
        (point("1", "Winchester"), [1.0, 0.0]),
        (point("2", "Rochester"), [0.0, 1.0]),
        (point("3", "hetser"), [0.9, 0.1]),
    )
    mentions = ["winchetser", "rohcester", "etser"]
    arguments = {"limit": 1, "lexical_limit": 2}

    def search(first: int, last: int, is_match: bool) -> list[list[str]]:
        found = collection.search_hybrid(
            np.repeat(unit([0.0, 0.0, 1.0]), last - first, axis=0),
            ngram_rows(mentions[first:last]),
            own=OwnNames(
                lambda number, point: is_match and point.name == "Winchester",
                slips=lambda number: SlipQuery(*slip_features(mentions[first:last][number])),
            ),
            **arguments,
        )
        return [[hit.point.name for hit in hits if hit.point.name != "hetser"] for hits in found]

    assert search(0, 3, is_match=True)[0] == ["Winchester"]
    assert "Rochester" in search(0, 3, is_match=False)[1]
    for i in range(3):
        for is_match in (True, False):
            assert search(i, i + 1, is_match) == [search(0, 3, is_match)[i]]


@pytest.mark.parametrize("is_near", [lambda point: False, lambda point: True, None])
def test_a_wide_search_looks_through_more_names(collection: Collection, is_near: IsNear | None) -> None:
    """Many names share a part with a mention that has two slips; if none is near, its own is found among more."""
    is_wide = is_near is not None and not is_near(point("0", "near"))
    others = [point(str(i), f"Winter{chr(97 + i) * 6}") for i in range(10)]
    put(collection, *((one, [1.0, 0.0]) for one in [*others, point("99", "Wintergarden")]))
    mentions = ["wintergxrdxn", "winterqqqqqq"]

    def search(rows: list[int]) -> list[list[str]]:
        found = collection.search_hybrid(
            np.repeat(unit([0.0, 0.0, 1.0]), len(rows), axis=0),
            ngram_rows(["zzz"] * len(rows)),
            limit=1,
            lexical_limit=1,
            own=OwnNames(
                lambda number, point: rows[number] == 0 and point.name == "Wintergarden",
                slips=lambda number: SlipQuery(*slip_features(mentions[rows[number]]), is_near),
            ),
        )
        return [[hit.point.name for hit in hits] for hits in found]

    both = search([0, 1])
    assert ("Wintergarden" in both[0]) == is_wide
    assert len(both[1]) <= 4
    assert [search([0]), search([1])] == [[both[0]], [both[1]]]


def test_a_batch_gives_what_single_queries_give(collection: Collection) -> None:
    """Many vectors in one call, more than fit into a request, get the same answers as alone."""
    collection.upsert(*many(60, types=("ORG",)))
    _, queries, _ = many(70, start=1)

    batch = collection.search(queries, limit=3, types=("ORG",))

    assert len(batch) == 70
    for i in (0, 63, 64, 69):
        single = collection.search(queries[i : i + 1], limit=3, types=("ORG",))[0]
        assert [h.point.id for h in batch[i]] == [h.point.id for h in single]
        assert [h.score for h in batch[i]] == pytest.approx([h.score for h in single], abs=1e-6)


def test_many_threads_may_search(collection: Collection) -> None:
    """Concurrent searches return the same as single ones."""
    points, vectors, encodable = many(100)
    collection.upsert(points, vectors, encodable)

    def best(i: int) -> str:
        return collection.search(vectors[i : i + 1], limit=1)[0][0].point.name

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(best, range(40))) == [p.name for p in points[:40]]


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_search_refuses_bad_arguments(collection: Collection, is_hybrid: bool) -> None:
    """Another width or number of rows, NaN, a limit of 0, or nothing to find is an error, not an empty answer."""

    def search(vectors: FloatArray = ONE, n: int = 1, limit: int = 1, lexical_limit: int = 1) -> object:
        lexical = {"lexical_limit": lexical_limit} if is_hybrid else {}
        return find(vectors, *[ngram_rows(["a"] * n)] * is_hybrid, limit=limit, **lexical)

    find = collection.search_hybrid if is_hybrid else collection.search
    nan = np.full((1, DIM), np.nan, dtype=np.float32)
    wrong = [(str(DIM), {"vectors": np.ones((1, DIM + 1), dtype=np.float32)}), ("finite", {"vectors": nan})]
    wrong += [("limit", {"limit": 0})]
    if is_hybrid:
        wrong += [("2 rows, 1 vectors", {"n": 2}), ("limit must be positive", {"lexical_limit": 0})]
    for message, given in wrong:
        with pytest.raises(ValueError, match=message):
            search(**given)
    with pytest.raises(ValueError, match="entity_ids"):
        collection.find(limit=10)
