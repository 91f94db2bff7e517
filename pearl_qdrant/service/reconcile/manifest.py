"""The service manifest of version 0.2."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pearl_qdrant._version import __version__
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.reconcile.answers import type_list
from pearl_qdrant.service.reconcile.extending import LIMIT_SETTING
from pearl_qdrant.service.reconcile.properties.catalogue import Catalogue
from pearl_qdrant.service.settings import ServiceSettings

VERSIONS = ("0.2",)

PREVIEW_WIDTH, PREVIEW_HEIGHT = 430, 300
"""Of the frame of a preview, in pixels."""

_DEFAULT_TYPES = 10

_WIKIDATA = "wikidata"
"""Short name of a base whose ids are those of Wikidata: OpenRefine knows them by these addresses."""


def manifest(
    base_url: str, handle: CollectionHandle, catalogue: Catalogue, settings: ServiceSettings
) -> dict[str, Any]:
    """What the service offers for a collection, and where.

    Args:
        base_url: Address of the service, without a slash at its end.
        handle: The collection.
        catalogue: Its types.
        settings: Of the service.
    """
    endpoint = f"{base_url}/reconcile/{quote(handle.name, safe='')}"
    of_collection = handle.manifest
    is_wikidata = of_collection.kb.casefold() == _WIKIDATA
    record: dict[str, Any] = {
        "versions": list(VERSIONS),
        "name": f"{_title(handle)} (pearl-qdrant)",
        "identifierSpace": "http://www.wikidata.org/entity/" if is_wikidata else f"{endpoint}/view?id=",
        "schemaSpace": "http://www.wikidata.org/prop/direct/" if is_wikidata else f"{endpoint}/suggest/property",
        "serviceVersion": __version__,
        "documentation": f"{base_url}/openapi.json",
        "view": {"url": "https://www.wikidata.org/wiki/{{id}}" if is_wikidata else f"{endpoint}/view?id={{{{id}}}}"},
        "defaultTypes": type_list(list(catalogue.types)[:_DEFAULT_TYPES]),
        "preview": {
            "url": f"{endpoint}/preview?id={{{{id}}}}",
            "width": PREVIEW_WIDTH,
            "height": PREVIEW_HEIGHT,
        },
        "suggest": {
            kind: {
                "service_url": endpoint,
                "service_path": f"/suggest/{kind}",
                "flyout_service_url": endpoint,
                "flyout_service_path": f"/flyout/{kind}?id=${{id}}",
            }
            for kind in ("entity", "property", "type")
        },
        "extend": {
            "propose_properties": {"service_url": endpoint, "service_path": "/extend/propose"},
            "property_settings": [LIMIT_SETTING],
        },
        "batchSize": min(settings.reconcile_batch, settings.max_mentions),
        "standardizedScore": True,
    }
    if settings.api_keys:
        record["authentication"] = {"type": "apiKey", "name": "X-API-Key", "in": "header"}
    return record


def _title(handle: CollectionHandle) -> str:
    """The name of a collection, with those of its base and release where it does not have them."""
    known = handle.name.casefold()
    others = [one for one in (handle.kb, handle.manifest.kb_version) if one and one.casefold() not in known]
    return f"{handle.name}: {' '.join(others)}" if others else handle.name
