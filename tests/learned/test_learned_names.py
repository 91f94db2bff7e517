"""What a linker learned: counts of a name, their probabilities with the model's, links at once and opened again. Files
of labelled mentions, and the command that learns them; learned names that become names of the base.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from cli_runner import Run
from hypothesis import given
from hypothesis import strategies as st
from linker_base import ENTITIES, fill
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, Link, NilReason, load_base
from pearl_qdrant.errors import EntityNotFoundError, FormatError, LearningError, LinkerClosedError, StoreError
from pearl_qdrant.linking.learned import learning
from pearl_qdrant.linking.learned.learning import read_labelled
from pearl_qdrant.linking.learned.ledger import LearnedRow
from pearl_qdrant.linking.learned.names import PRIOR_WEIGHT, Counts, Observation, Outcome, posterior
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.store import open_store


def counts(*rows: tuple[str, str | None, int]) -> Counts:
    """Counts of these rows."""
    made = Counts()
    made.add(LearnedRow(*row) for row in rows)
    return made


def test_letter_case_decides_which_forms_count() -> None:
    """What was seen of a name in capitals says nothing of the word in small letters. Names without letters are learned
    as they are.
    """

    def outcome(seen: str, mention: str) -> str:
        return "counts" if counts((seen, "Q1", 1)).evidence(mention) else "says nothing"

    assert other_outcomes(__file__, "form", outcome) == []


A, B = ("kb", "a"), ("kb", "b")


def test_the_formula() -> None:
    """The model is worth K observations: (n(e) + K p(e)) / (n + K). What a rejected entity loses, the others share as
    they stood; if nothing else is left, it speaks for NIL.
    """
    prior, no_a = {A: 0.6, B: 0.3, None: 0.1}, Observation(1, excludes=frozenset((A,)).__contains__)
    after = posterior(prior, [Observation(2, B), Observation(1)])

    assert after[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (3 + PRIOR_WEIGHT))
    assert after[B] == pytest.approx((2 + PRIOR_WEIGHT * 0.3) / (3 + PRIOR_WEIGHT))
    assert after[None] == pytest.approx((1 + PRIOR_WEIGHT * 0.1) / (3 + PRIOR_WEIGHT))
    rejected = posterior(prior, [no_a])
    assert rejected[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (1 + PRIOR_WEIGHT))
    assert rejected[B] / rejected[None] == pytest.approx(3)
    assert posterior({A: 1.0, None: 0.0}, [no_a])[None] == pytest.approx(1 / (1 + PRIOR_WEIGHT))


outcomes = st.sampled_from([A, B, ("other", "c"), None])


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda values: sum(values) > 0.01),
    st.lists(st.tuples(st.integers(1, 1000), outcomes, st.booleans()), max_size=8),
)
def test_probabilities_stay_probabilities(weights: list[float], seen: list[tuple[int, Outcome, bool]]) -> None:
    """Whatever was seen, they are not negative and sum to 1."""
    prior = {key: w / sum(weights) for key, w in zip([A, B, ("other", "c"), None], weights, strict=True)}
    after = posterior(
        prior,
        [
            Observation(n, excludes=frozenset((outcome,)).__contains__)
            if rejects and outcome
            else Observation(n, outcome)
            for n, outcome, rejects in seen
        ],
    )

    assert all(p >= 0 for p in after.values())
    assert math.fsum(after.values()) == pytest.approx(1)


def probability(link: Link, entity_id: str) -> float:
    """The probability of a candidate; 0 if it is none."""
    return next((c.probability or 0.0 for c in link.candidates if c.entity_id == entity_id), 0.0)


def test_an_accepted_link_is_the_answer_from_then_on(linker: EntityLinker) -> None:
    """One accept makes an entity the answer that the search does not even find, with one candidate, too; its rule says
    so. Learning NIL for a name makes it NIL, with the reason.
    """
    batch = linker.accept("zzz qqq", "horse")
    link = linker.link("zzz qqq")

    assert (link.entity_id, link.rule, batch.number, batch.kind) == ("horse", "learned name", 1, "accept")
    assert [(one.entity_id, one.as_written) for one in link.learned] == [("horse", 1)]
    linker.add([Entity(f"c{i}", f"Company {i}") for i in range(30)])
    before = linker.link("Company 7")
    linker.accept("Company 7", "mi")
    link = linker.link("Company 7", limit=1)

    assert "mi" not in [c.entity_id for c in before.candidates]
    assert [c.entity_id for c in link.candidates] == ["mi"]
    assert link.canonical_name == "myocardial infarction"
    assert link.candidates[0].dense_score is None
    assert linker.link("Big Apple").entity_id == "nyc"
    linker.accept("Big Apple", None)
    link = linker.link("Big Apple")

    assert (link.entity_id, link.nil_reason) == (None, NilReason.BELOW_THRESHOLD)
    assert link.rule == "learned name"


def test_a_rejected_entity_gives_way_and_equal_counts_are_ambiguous(linker: EntityLinker) -> None:
    """After a reject, the next candidate of the name is the answer. If a name meant two entities equally often, nothing
    separates them but the order of `first`.
    """
    before = linker.link("New York")
    linker.reject("New York", "nyc")
    link = linker.link("New York")

    assert (before.entity_id, link.entity_id) == ("nyc", "nys")
    assert probability(link, "nyc") < probability(before, "nyc")
    assert link.learned[0].rejected == 1
    linker.learn([("the city paper", "nyt"), ("the city paper", "nyp")] * 20)

    link = linker.link("the city paper", threshold=0.6)
    assert link.nil_reason is NilReason.AMBIGUOUS
    assert {c.entity_id for c in link.candidates[:2]} == {"nyt", "nyp"}
    assert linker.link("the city paper", on_tie="first").entity_id in ("nyt", "nyp")


def test_a_learned_entity_counts_if_it_is_there_and_has_the_type(linker: EntityLinker) -> None:
    """Without the wanted type it does not count. If it is deleted, the model decides again, until it comes back."""
    linker.accept("zzz qqq", "nyt")

    assert linker.link("zzz qqq", types=["GPE"]).rule != "learned name"
    assert linker.link("zzz qqq", types=["newspaper"]).entity_id == "nyt"
    assert linker.link("zzz qqq", types=["GPE"], type_mode="off").entity_id == "nyt"
    linker.delete(["nyt"])
    assert linker.link("zzz qqq").rule != "learned name"
    linker.add([Entity("nyt", "The New York Times")])
    assert linker.link("zzz qqq").entity_id == "nyt"


def test_every_linker_knows_it(store_path: Path, linker: EntityLinker) -> None:
    """A second linker on the collection that is open already answers by what the first one learned, and undid. One that
    is opened later gives the same answers.
    """
    with EntityLinker.open("base", store=str(store_path)) as other:
        linker.accept("zzz qqq", "horse")
        assert other.link("zzz qqq").entity_id == "horse"
        assert other.accept("zzz qqq", "horse").number == 2
        assert len(linker.learned_batches()) == 2
        linker.undo_learned(1)
        other.undo_learned(2)
        assert linker.link("zzz qqq").learned == other.link("zzz qqq").learned == ()
    mentions = ["zzz www", "ZZZ WWW", "New York", "NYTimes"]
    linker.accept("zzz www", "horse")
    linker.reject("New York", "nyc")
    before = list(linker.link_batch(mentions))
    linker.close()
    with EntityLinker.open("base", store=str(store_path)) as again:
        assert list(again.link_batch(mentions)) == before


def test_explain_shows_the_counts_and_annotate_uses_them(linker: EntityLinker) -> None:
    """`--explain` says that the name was learned, and how often it meant what. It is found in running text, too."""
    linker.learn([("the paper", "nyt")] * 3 + [("The Paper", None), ("the paper", "nyp")])
    linker.reject("the paper", "nyp")
    lines = explain_link(linker.link("the paper"), linker.calibration)

    assert "what was learned of this name" in lines[0]
    assert lines[1:4] == [
        "learned: nyt: 3 as written",
        "learned: nyp: 1 as written, 1 rejected",
        "learned: NIL: 1 in other forms",
    ]
    linker.learn([("Gotham", "nyc")] * 5)
    found = linker.annotate("She left Gotham in May.")

    assert [(one.text, one.link.entity_id) for one in found] == [("Gotham", "nyc")]


def test_several_collections_learn_apart(tmp_path: Path, model: Path) -> None:
    """With several collections, the one that learns must be named; NIL in one leaves the other."""
    fill(tmp_path, "base", str(model), ENTITIES)
    fill(tmp_path, "other", str(model), [Entity("ny2", "New York", (), ("city",), ("GPE",))])
    with EntityLinker.open("base", "other", store=str(tmp_path)) as linker:
        with pytest.raises(ValueError, match="name the collection"):
            linker.accept("New York", "nyc")
        linker.accept("New York", None, collection="base")
        link = linker.link("New York")
        assert (link.kb, link.entity_id) == ("other", "ny2")
        assert linker.learned_batches("other") == ()
        assert len(linker.learned_batches("base")) == 1


def test_bad_arguments_are_errors(linker: EntityLinker) -> None:
    """Unknown ids and mentions that are no text are refused, and nothing is learned; so it is after close."""
    with pytest.raises(EntityNotFoundError, match="No entity 'nobody' in base"):
        linker.accept("NYC", "nobody")
    with pytest.raises(EntityNotFoundError, match="No entity 'nobody' in base"):
        linker.reject("NYC", "nobody")
    for mention in ("", " ", "\ud800", "x" * 20_000):
        with pytest.raises(LearningError, match="cannot be learned"):
            linker.accept(mention, "nyc")

    assert linker.learned_batches() == ()
    linker.close()
    for use in (lambda: linker.accept("a", "nyc"), lambda: linker.learn([("a", "nyc")]), linker.learned_batches):
        with pytest.raises(LinkerClosedError):
            use()


def read(folder: Path, text: str, name: str = "labelled.tsv") -> list[tuple[str, str | None, int]]:
    """What a file with this text has."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [(one.mention, one.entity_id, one.line) for one in read_labelled(path)]


def test_pairs_with_header_nil_and_further_columns(tmp_path: Path) -> None:
    """The header is left out, NIL and nothing are no entity, and repeated pairs are kept. A row without a mention or a
    second column is an error, which names its line; so is a missing file.
    """
    text = "mention\tid\nNYC\tQ60\textra\n\nNYC\tQ60\nthe mayor\tNIL\nhe\t\n"

    assert read(tmp_path, text) == [("NYC", "Q60", 2), ("NYC", "Q60", 4), ("the mayor", None, 5), ("he", None, 6)]
    for line in ("NYC", "\tQ60", " \tQ60"):
        with pytest.raises(FormatError, match=r"labelled\.tsv:2: expected a mention, a tab and an entity id"):
            read(tmp_path, f"NYC\tQ60\n{line}\n")
    with pytest.raises(FormatError, match=r"none\.tsv: cannot be read"):
        list(read_labelled(tmp_path / "none.tsv"))


def test_documents_with_spans_and_single_mentions(tmp_path: Path) -> None:
    """JSON Lines may have documents with spans, or one mention a line."""
    text = (
        '{"text": "Zürich or 🦄 NYC", "mentions": [{"start": 0, "end": 6, "id": "Q72"}, '
        '{"start": 12, "end": 15, "entity_id": 60}, {"start": 10, "end": 11, "id": null}]}\n'
        '{"mention": "NYC", "id": "NIL"}\n'
        '{"text": "nothing", "mentions": []}\n'
    )

    assert read(tmp_path, text, "documents.JSONL") == [
        ("Zürich", "Q72", 1),
        ("NYC", "60", 1),
        ("🦄", None, 1),
        ("NYC", None, 2),
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "not JSON"),
        ("[1]", "neither a text with mentions nor a mention"),
        ('{"mention": " ", "id": "Q60"}', "neither a text with mentions nor a mention"),
        ('{"mention": "NYC"}', "without id"),
        ('{"mention": "NYC", "id": []}', r"the id is \[\]"),
        ('{"mention": "NYC", "id": true}', "the id is true"),
        ('{"text": "NYC", "mentions": [{"start": 0, "end": 4, "id": "Q60"}]}', "from 0 to 4, but the text has 3 char"),
        ('{"text": "NYC", "mentions": [{"start": 2, "end": 2, "id": "Q60"}]}', "from 2 to 2"),
        ('{"text": "N YC", "mentions": [{"start": 1, "end": 2, "id": "Q60"}]}', "white space"),
    ],
)
def test_bad_documents_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    """Each error has path and line, and says what is wrong."""
    with pytest.raises(FormatError, match=rf"bad\.jsonl:2: .*{message}"):
        read(tmp_path, '{"mention": "NYC", "id": "Q60"}\n' + line + "\n", "bad.jsonl")


PAIRS = [("Gotham", "nyc")] * 3 + [("GOTHAM", "nyc"), ("the paper", "nyt"), ("the paper", "nyp"), ("Empire", "nys")]


def names_of(store: Path) -> dict[str, set[str]]:
    """The names of each entity of the collection `base`."""
    opened = open_store(store)
    found: dict[str, set[str]] = {}
    for point in opened.open("base").scroll():
        found.setdefault(point.entity_id, set()).add(point.name)
    opened.close()
    return found


def test_names_that_were_seen_often_enough_are_added(linker: EntityLinker) -> None:
    """The most frequent form of a name is added to its entity, and is exact from then on; no name of two is.
    Undone, the base has its own names alone; an undone undo brings them back.
    """
    before = linker.entity("nyc")
    learned = linker.learn(PAIRS, add_aliases=2)

    assert learned.batch.aliases == (("Gotham", "nyc"),)
    assert "Gotham" in linker.entity("nyc").aliases
    assert linker.known_names(["Gotham", "the paper", "Empire"]) == {"Gotham"}
    assert (linker.link("gotham").entity_id, linker.link("gotham").rule) == ("nyc", "exact name")
    undone = linker.undo_learned(1)
    assert linker.entity("nyc") == before
    linker.undo_learned(undone.number)
    assert "Gotham" in linker.entity("nyc").aliases


def test_counts_of_earlier_batches_add_up(linker: EntityLinker) -> None:
    """A name is added when all that was learned reaches the number; a name of the entity is not added again. If a user
    adds the name by hand, it is no learned name any more, and an undo leaves it.
    """
    linker.accept("Gotham", "nyc")
    assert linker.learn([("Gotham", "nyc"), ("NYTimes", "nyt")], add_aliases=3).batch.aliases == ()
    assert linker.learn([("Gotham", "nyc"), ("NYTIMES", "nyt")], add_aliases=3).batch.aliases == (("Gotham", "nyc"),)
    assert linker.learn([("gotham", "nyc")], add_aliases=1).batch.aliases == ()
    linker.add([Entity("nyc", "New York", ("Gotham",))])
    linker.undo_learned(3)

    assert linker.entity("nyc").aliases == ("Gotham",)


def test_if_the_names_cannot_be_written_nothing_is_learned(
    linker: EntityLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch whose names could not be added is undone, so that it can be learned again."""

    def fail(*args: object) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr(learning, "sync_aliases", fail)
        with pytest.raises(StoreError, match="no"):
            linker.learn(PAIRS, add_aliases=2)
    assert linker.link("Gotham").learned == ()

    assert linker.learn(PAIRS, add_aliases=2).batch.is_effective


ROWS = "id\tname\taliases\nnyc\tNew York City\tNYC\nnyt\tThe New York Times\tNYTimes\n"


@pytest.fixture
def base(tmp_path: Path, model: Path) -> Path:
    """A base that was loaded and has learned names; its file."""
    path = tmp_path / "base.tsv"
    path.write_text(ROWS, encoding="utf-8")
    load_base(path, "base", store=tmp_path / "store", model=model)
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        linker.learn([("Gotham", "nyc"), ("the paper", "nyt")] * 3, add_aliases=2)
    return path


def test_an_update_keeps_what_was_learned(base: Path, tmp_path: Path, model: Path) -> None:
    """Learned names stay in an update, follow their entity, and go with it; nobody is asked about them."""
    base.write_text("id\tname\taliases\nnyc\tCity of New York\tNYC\n", encoding="utf-8")
    asked = []
    result = load_base(
        base,
        "base",
        store=tmp_path / "store",
        model=model,
        update=True,
        may_remove=lambda n, total: asked.append(n) is None,
    )

    assert asked == [3], "of the paper and the old canonical name"
    assert result.removed == 3
    assert names_of(tmp_path / "store") == {"nyc": {"City of New York", "NYC", "Gotham"}}
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        link = linker.link("Gotham")
        assert (link.canonical_name, link.learned[0].as_written) == ("City of New York", 3)


def test_a_rebuild_has_them_again(base: Path, tmp_path: Path, model: Path) -> None:
    """A base that is loaded from the start has learned names and counts as before, and they do not make a finished one
    look unfinished. A deleted collection forgets.
    """
    before = names_of(tmp_path / "store")
    assert load_base(base, "base", store=tmp_path / "store", model=model).is_unchanged
    load_base(base, "base", store=tmp_path / "store", model=model, restart=True)

    assert names_of(tmp_path / "store") == before
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        assert linker.link("the paper").learned[0].as_written == 3
    store = open_store(tmp_path / "store")
    store.delete("base")
    store.close()
    load_base(base, "base", store=tmp_path / "store", model=model)

    assert names_of(tmp_path / "store") == {"nyc": {"New York City", "NYC"}, "nyt": {"The New York Times", "NYTimes"}}


@pytest.fixture
def labelled(tmp_path: Path, store_path: Path) -> Path:
    """A file of labelled mentions, beside a store with a collection."""
    path = tmp_path / "labelled.tsv"
    path.write_text("mention\tid\nGotham\tnyc\nGotham\tnyc\nfoo\tnobody\n", encoding="utf-8")
    return path


def test_learn_list_and_undo(run: Run, labelled: Path) -> None:
    """I learn a file, see it in the list, and undo it."""
    learned = run("learn", "--labelled", str(labelled), "--set", "skip_unknown=yes", "--set", "add_aliases=2")
    assert learned.status == 0
    assert "batch 1: 2 mentions, 0 of them without an entity; 1 distinct; names added to entities: 1" in learned.err
    assert "left out: 1 mentions of 1 entities that base does not have, e.g. nobody" in learned.err
    assert run("link", "Gotham", "--json").lines()[0]["entity_id"] == "nyc"
    listed = run("learn", "--list")
    assert "learn         2      1    0        1  counts  labelled.tsv" in listed.out
    assert "Undid batch 1; this is batch 2" in run("learn", "--undo", "1").err

    assert [one["is_effective"] for one in run("learn", "--list", "--json").lines()] == [False, True]
    assert "undo of 1" in run("learn", "--list").out


def test_json_has_what_was_learned(run: Run, labelled: Path) -> None:
    """`--json` prints the batch; a link has what was learned of it, others have no such field."""
    record = run("learn", "--labelled", str(labelled), "--set", "skip_unknown=yes", "--json").lines()[0]
    links = run("link", "Gotham", "NYTimes", "--json").lines()

    assert (record["mentions"], record["skipped"], record["unknown_ids"]) == (2, 1, ["nobody"])
    expected = {"entity_id": "nyc", "kb": "base", "as_written": 2, "other_forms": 0, "rejected": 0}
    assert links[0]["learned"] == [expected]
    assert "learned" not in links[1]
    assert run("learn", "--undo", "1", "--json").lines()[0]["undoes"] == 1


def test_errors_name_the_option(run: Run, labelled: Path) -> None:
    """An unknown id, or a file that was learned already, names the option that helps."""
    unknown = run("learn", "--labelled", str(labelled))
    assert unknown.status == 1
    assert "labelled.tsv:4: entity id 'nobody' is not in" in unknown.err
    assert "--set skip_unknown" in unknown.err
    run("learn", "--labelled", str(labelled), "--set", "skip_unknown=yes")
    again = run("learn", "--labelled", str(labelled), "--set", "skip_unknown=yes")
    assert "learned these very mentions already" in again.err
    assert "--yes" in again.err
    assert "no batch 7" in run("learn", "--undo", "7").err
    assert "no batch with the key zz" in run("learn", "--undo", "zz").err


@pytest.mark.usefixtures("labelled")
def test_options_that_do_not_go_together_and_nothing_learned(run: Run) -> None:
    """One of learn, list and undo is done at a time. An empty list says so on stderr."""
    for words in ((), ("--list", "--undo", "1"), ("--list", "--yes"), ("--undo", "1", "--set", "add_aliases=2")):
        assert run("learn", *words).status == 2
    listed = run("learn", "--list")

    assert (listed.status, listed.out) == (0, "")
    assert "base has learned nothing yet" in listed.err
