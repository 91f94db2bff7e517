"""The service manifest, cross-origin access and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from reconcile_cases import ENDPOINT, post_form, serving
from specification import Manifest, check

from pearl_qdrant.errors import OptionError
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.service.settings import read_settings

KEY = "0123456789abcdef-key"
ORIGIN = "http://127.0.0.1:3333"


def test_the_manifest_has_what_version_0_2_demands(client: TestClient) -> None:
    """The manifest names all services with absolute addresses of the host that was asked."""
    manifest = check(Manifest, client.get(ENDPOINT))

    assert manifest["versions"] == ["0.2"]
    assert manifest["preview"]["url"] == "http://127.0.0.1:8765/reconcile/places/preview?id={{id}}"
    assert manifest["suggest"]["type"]["service_url"] == "http://127.0.0.1:8765/reconcile/places"
    assert manifest["defaultTypes"][0] == {"id": "GPE", "name": "GPE"}
    assert "authentication" not in manifest


def test_addresses_of_the_manifest_answer(client: TestClient) -> None:
    """Each address of the manifest is that of a service, put together as the specification says."""
    manifest = client.get(ENDPOINT).json()
    addresses = [
        manifest["preview"]["url"].replace("{{id}}", "nyt"),
        manifest["view"]["url"].replace("{{id}}", "nyt"),
        manifest["documentation"],
        "{service_url}{service_path}?type=city".format(**manifest["extend"]["propose_properties"]),
    ]
    for one in manifest["suggest"].values():
        addresses.append("{service_url}{service_path}?prefix=n".format(**one))
        flyout = "{flyout_service_url}{flyout_service_path}".format(**one)
        addresses.append(flyout.replace("${id}", "nyt"))

    assert [client.get(one).status_code for one in addresses] == [200] * len(addresses)


def test_any_page_may_read_answers_and_errors(client: TestClient) -> None:
    """Every path of reconciliation allows other origins, with errors and pre-flight requests; no other path does."""
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    for answer in (
        client.get(ENDPOINT, headers={"Origin": ORIGIN}),
        client.get("/reconcile/none", headers={"Origin": ORIGIN}),
        client.get(f"{ENDPOINT}/suggest/type", headers={"Origin": ORIGIN}),
        client.options(ENDPOINT, headers={**preflight, "Access-Control-Request-Headers": "x-api-key"}),
    ):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer.headers
    elsewhere = client.get("/v1/collections", headers={"Origin": ORIGIN})
    assert "Access-Control-Allow-Origin" not in elsewhere.headers


@pytest.fixture(scope="module")
def guarded(reconcile_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of a service with a key, behind a proxy, for pages of one origin."""
    changed = {
        "api_keys": (SecretStr(KEY),),
        "public_url": "https://names.example.org/link/",
        "reconcile_origins": (ORIGIN,),
    }
    with serving(reconcile_settings.model_copy(update=changed)) as opened:
        yield opened


def test_a_service_with_keys_says_so_in_an_open_manifest(guarded: TestClient) -> None:
    """The manifest needs no key and says where the key goes; it has no key in any address."""
    answer = guarded.get(ENDPOINT)
    manifest = check(Manifest, answer)

    assert manifest["authentication"] == {"type": "apiKey", "name": "X-API-Key", "in": "header"}
    assert KEY not in answer.text
    with_key = guarded.get(ENDPOINT, headers={"X-API-Key": KEY})
    assert with_key.text == answer.text


def test_a_service_with_keys_opens_nothing_but_the_manifest(guarded: TestClient) -> None:
    """Queries, suggestions, previews and extensions need the key, in a header."""
    batch = {"q0": {"query": "NYTimes"}}
    closed = [
        guarded.get(ENDPOINT, params={"queries": json.dumps(batch)}),
        guarded.get(ENDPOINT, params={"x": "y"}),
        guarded.get(ENDPOINT, params={"api_key": KEY}),
        post_form(guarded, "queries", batch),
        guarded.get(f"{ENDPOINT}/suggest/type"),
        guarded.get(f"{ENDPOINT}/preview", params={"id": "nyt"}),
        guarded.post(f"{ENDPOINT}/match", json={"queries": []}),
    ]

    assert [one.status_code for one in closed] == [401] * len(closed)
    assert post_form(guarded, "queries", batch, **{"X-API-Key": KEY}).status_code == 200


def test_addresses_behind_a_proxy_are_those_of_the_proxy(guarded: TestClient) -> None:
    """With public_url, the manifest has its addresses, whatever host the request names."""
    manifest = guarded.get(ENDPOINT, headers={"Host": "10.1.2.3"}).json()

    assert manifest["view"]["url"] == "https://names.example.org/link/reconcile/places/view?id={{id}}"


def test_other_origins_may_be_shut_out(guarded: TestClient) -> None:
    """With reconcile_origins, only pages of these origins may read answers; a 401 may be read as well."""
    allowed = guarded.get(f"{ENDPOINT}/suggest/type", headers={"Origin": ORIGIN})
    refused = guarded.get(f"{ENDPOINT}/suggest/type", headers={"Origin": "https://evil.example"})

    assert allowed.status_code == 401
    assert allowed.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "Access-Control-Allow-Origin" not in refused.headers


def test_origins_are_read_from_the_command_line() -> None:
    """Several origins are separated by commas; an address of a proxy must be one."""
    settings = read_settings({}, ["reconcile_origins=http://a,http://b", "public_url=https://names.example.org"])

    assert settings.reconcile_origins == ("http://a", "http://b")
    with pytest.raises(OptionError, match="public_url"):
        read_settings({}, ["public_url=names.example.org"])


def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(client: TestClient) -> None:
    """The header and the message name the methods of all routes of the path."""
    answer = client.put(ENDPOINT)

    assert answer.status_code == 405
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))
    assert answer.json()["message"] == f"This path takes {answer.headers['Allow']}, not PUT."
