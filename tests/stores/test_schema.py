"""Points and manifests as stored and read back."""

from __future__ import annotations

import orjson
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.schema import Manifest, NamePoint, point_id

TEXT = st.text(min_size=1, max_size=20)
TYPES = st.lists(TEXT, max_size=3).map(tuple)
POINTS = st.builds(
    NamePoint,
    kb=TEXT,
    entity_id=TEXT,
    name=TEXT,
    canonical_name=TEXT,
    is_canonical=st.booleans(),
    kb_types=TYPES,
    types=TYPES,
    description=st.none() | TEXT,
    popularity=st.none() | st.floats(min_value=0, allow_infinity=False, allow_nan=False),
    language=st.none() | TEXT,
    extra=st.dictionaries(st.sampled_from(["source", "sab"]), TEXT),
)


@settings(max_examples=examples(100))
@given(POINTS)
def test_a_point_comes_back_as_it_was(point: NamePoint) -> None:
    """Whatever its texts, a point read from its payload equals the one written, with the head's prediction too."""
    typed = replace(point, phrase_type="NP-ORG", lexical_class="NP", predicted_type="ORG", type_probability=0.5)
    for one in (point, typed):
        assert NamePoint.from_json(orjson.dumps(one.to_payload()), "c") == one
    assert ("popularity" in point.to_payload()) == (point.popularity is not None)


ODD = [
    b"",
    b"null",
    b"{",
    b'{"kb": "\xff"}',
    b'{"x":' * 100_000,
    *(
        orjson.dumps(NamePoint("kb", "e", "n", "n", True).to_payload() | change)
        for change in ({"kb": None}, {"types": ["ORG", 3]}, {"is_canonical": "?"})
    ),
]


@pytest.mark.parametrize("payload", ODD, ids=range(len(ODD)))
def test_a_foreign_payload_is_refused(payload: bytes) -> None:
    """What was not written by us is an error at once, not a failure somewhere later."""
    with pytest.raises(ManifestError, match="not valid"):
        NamePoint.from_json(payload, "c")


def test_ids_never_change() -> None:
    """Point ids depend only on base, entity and name; a release that changed them would duplicate every base."""
    assert point_id("umls", "C0027051", "heart attack") == "8207e181-ae30-5cfd-a7a5-92d26ffe08ba"
    assert point_id("a", "b", "c") != point_id("a", "bc", "")


def test_a_newer_manifest_is_refused() -> None:
    """A collection of a newer version is an error; it is not read in part."""
    manifest = Manifest(collection="c", kb="c", model="m", weights_hash="sha256:0", dim=3, has_head=True)
    assert Manifest.parse(manifest.model_dump_json(), "c") == manifest
    with pytest.raises(ManifestError, match=r"format 1\.7 of .*, this program has 4\.7\).*Ingest the base again"):
        Manifest.parse(manifest.model_copy(update={"format_version": 1}).model_dump_json(), "c")
    with pytest.raises(ManifestError, match="there is none"):
        Manifest.parse(None, "c")
    with pytest.raises(ManifestError, match="unreadable"):
        Manifest.parse("{", "c")
