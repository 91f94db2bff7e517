"""Mentions that come again: they are not searched again, and no edit leaves an old answer behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from counting_encoder import CountingEncoder
from linker_base import ENTITIES, fill

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking import mention_stream
from pearl_qdrant.linking.mention_stream import ENTRY_BYTES, MentionCache
from pearl_qdrant.linking.ranking.model import LinkQuery
from pearl_qdrant.linking.state import Overrides
from pearl_qdrant.store import open_store

MENTIONS = ["New York", "NYTimes", "heart attack", "New Yrok", "New York", "zzz", " New York", "", "heart attack"]
QUERY = LinkQuery(10)


@pytest.fixture
def base(tmp_path: Path, model: Path) -> Path:
    """A store with the collection `base`, as after an ingest."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)
    return tmp_path


def opened(path: Path, encoder: Encoder) -> EntityLinker:
    """A linker over `base`."""
    store = open_store(path)
    return EntityLinker(store, [store.open("base")], encoder, Overrides(threshold=0.0))


def as_opened_now(path: Path, mentions: Sequence[str]) -> list[Link]:
    """The links of a linker that knows nothing yet."""
    with EntityLinker.open("base", store=str(path), threshold=0.0) as linker:
        return list(linker.link_batch(mentions, limit=10))


def test_a_mention_that_comes_again_is_not_encoded_again(base: Path, model: Path) -> None:
    """Each distinct mention is encoded once, in one batch or in several calls, and its answer is the same."""
    encoder = CountingEncoder(load_encoder(str(model), device="cpu"))
    with opened(base, encoder) as linker:
        encoder.names.clear()
        first = list(linker.link_batch(MENTIONS, limit=10))
        again = [linker.link(mention, limit=10) for mention in MENTIONS]

    assert encoder.names == ["New York", "NYTimes", "heart attack", "New Yrok", "zzz", ""]
    assert first == again == as_opened_now(base, MENTIONS)
    assert [link.mention for link in again] == MENTIONS


def test_answers_with_other_options_are_kept_apart(base: Path) -> None:
    """A type filter, a type preference or more candidates give the answers that they give without a cache."""
    with EntityLinker.open("base", store=str(base), threshold=0.0) as linker:
        found = [
            linker.link("New York", types=types, type_mode=type_mode, limit=limit)
            for types, type_mode, limit in (
                ((), "hard", 10),
                (("ORG",), "hard", 10),
                (("ORG",), "soft", 10),
                ((), "off", 10),
                ((), "hard", 12),
            )
        ]

    assert [len(link.candidates) for link in found] == [7, 2, 7, 7, 7]
    answers = {tuple((c.entity_id, c.score, c.features["type_agreement"]) for c in link.candidates) for link in found}
    assert len(answers) == 4, "more candidates than there are change nothing"


EDITS: dict[str, Callable[[EntityLinker], object]] = {
    "add": lambda linker: linker.add([Entity("w", "New Yrok")]),
    "delete": lambda linker: linker.delete(["nyc"]),
    "learn": lambda linker: linker.learn([("New Yrok", "nyc")] * 2, add_aliases=2),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("by_another", [False, True], ids=["this linker", "another linker of the process"])
def test_an_edit_leaves_no_old_answer(base: Path, model: Path, edit: Callable[..., object], by_another: bool) -> None:
    """After an edit, by this linker or another one, a mention that came before is searched again."""
    encoder = CountingEncoder(load_encoder(str(model), device="cpu"))
    with opened(base, encoder) as linker:
        before = list(linker.link_batch(MENTIONS, limit=10))
        if by_another:
            with opened(base, encoder) as other:
                edit(other)
        else:
            edit(linker)
        encoder.names.clear()
        after = list(linker.link_batch(MENTIONS, limit=10))

    assert set(encoder.names) == {mention.strip() for mention in MENTIONS}
    assert after != before
    if not by_another:  # another linker's edit does not change the statistics of this one
        assert after == as_opened_now(base, MENTIONS)


def test_an_edit_within_a_batch_counts_from_the_next_slice_on(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mentions that are not linked yet when an entity is added are linked with it, also those that came before."""
    monkeypatch.setattr(mention_stream, "SEARCH_BATCH", 2)
    with EntityLinker.open("base", store=str(base), threshold=0.0) as linker:
        before = linker.link("New Yrok", limit=10)
        links = linker.link_batch(["New Yrok", "NYC", "New Yrok"], limit=10)
        first = next(links)
        linker.add([Entity("w", "New Yrok")])
        _, last = links

    assert first == before
    assert (last.entity_id, last.rule) == ("w", "exact name")


def test_nothing_is_remembered_during_a_load(base: Path, model: Path) -> None:
    """While a collection is written without notice, each mention is searched each time."""
    encoder = CountingEncoder(load_encoder(str(model), device="cpu"))
    with opened(base, encoder) as linker:
        (collection,) = linker.collections
        collection.write_manifest(collection.manifest.model_copy(update={"state": "loading"}))
        encoder.names.clear()
        linker.link("New York", limit=10)
        linker.link("New York", limit=10)

    assert encoder.names == ["New York", "New York"]


def test_excluded_names_are_neither_kept_nor_found(base: Path) -> None:
    """An evaluation that holds out a name does so for a mention that came before, and for that mention alone. What was
    learned counts at once, though a mention is not searched again.
    """
    with EntityLinker.open("base", store=str(base), threshold=0.0) as linker:
        before = linker.link("NYTimes", limit=10)
        held_out = list(linker.score_batch(["NYTimes", "NYTimes"], exclude=lambda i, point: i == 1))

        assert [len(scored.found) for scored in held_out] == [7, 0]
        assert linker.link("NYTimes", limit=10) == before
        linker.accept("NYTimes", "nyp")
        assert linker.link("NYTimes", limit=10).rule == "learned name"


def test_equal_mentions_share_nothing_that_can_be_changed(base: Path) -> None:
    """A caller that changes the candidates of one mention changes no other answer."""
    with EntityLinker.open("base", store=str(base), threshold=0.0) as linker:
        one, other = linker.score_batch(["NYTimes", "NYTimes"])
        n_found, first = len(other.found), other.found[0].features.tolist()
        one.found[0].features[:] = 7.0
        one.found.clear()
        (third,) = linker.score_batch(["NYTimes"])

    assert len(other.found) == len(third.found) == n_found
    assert other.found[0].features.tolist() == third.found[0].features.tolist() == first


def test_the_last_mentions_used_are_kept_up_to_a_number_of_bytes() -> None:
    """Where the bytes do not suffice, the mention that was not used for longest is forgotten."""
    key_bytes = len(repr(QUERY)) + 1
    cache = MentionCache(3 * (100 + key_bytes + ENTRY_BYTES))
    assert cache.get("abc", QUERY, ()) == {}
    for text in "abc":
        cache.put(text, QUERY, text.encode() * 100, ())
    assert set(cache.get("a", QUERY, ())) == {"a"}
    cache.put("d", QUERY, b"d" * 100, ())

    assert set(cache.get("abcd", QUERY, ())) == {"a", "c", "d"}
    cache.clear()
    assert cache.get("abcd", QUERY, ()) == {}

    # What was searched before an edit and arrives after it is dropped.
    cache, old, new = MentionCache(), (object(),), (object(),)
    cache.get("a", QUERY, old)
    cache.get("a", QUERY, new)
    cache.put("a", QUERY, b"a", old)

    assert cache.get("a", QUERY, new) == {}
    assert MentionCache(0).get("a", QUERY, ()) == {}


def test_the_answer_for_a_mention_does_not_depend_on_its_batch(tmp_path: Path, model: Path) -> None:
    """Words of other mentions that share a normal spelling with its own do not count as its own."""
    names = ["left tumours", "right tumours", "tumours of the lung", "lung nodule"]
    fill(tmp_path, "base", str(model), [Entity(f"e{i}", name) for i, name in enumerate(names)], is_loaded=True)
    mentions = ["bladder tumor", "bladder tumours", "bladder tumors", "bladder tumor x"]

    def features(batch: Sequence[str]) -> dict[str, list[list[float]]]:
        with EntityLinker.open("base", store=str(tmp_path)) as linker:
            return {
                one.mention: [entity.features.tolist() for entity in one.found] for one in linker.score_batch(batch)
            }

    together = features(mentions)
    for mention in mentions:
        assert features([mention])[mention] == [pytest.approx(row, abs=1e-4) for row in together[mention]]
