"""Entity linking over Qdrant with PEARL phrase embeddings.

    from pearl_qdrant import EntityLinker

    with EntityLinker.open("umls") as linker:
        link = linker.link("heart attack", types=["DISO"])

Names resolve on first use (PEP 562), so that `import pearl_qdrant` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports
from pearl_qdrant._version import __version__

if TYPE_CHECKING:
    from pearl_qdrant.errors import (
        CollectionNotFoundError,
        DeviceError,
        EntityNotFoundError,
        InputError,
        ModelError,
        ModelMismatchError,
        PearlQdrantError,
        SettingsError,
        StoreError,
        StoreLockedError,
        StoreUnavailableError,
        UnknownTypeError,
    )
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.options import LinkOptions
    from pearl_qdrant.records import Annotation, Candidate, Entity, Link, NilReason

__all__ = [
    "Annotation",
    "Candidate",
    "CollectionNotFoundError",
    "DeviceError",
    "Entity",
    "EntityLinker",
    "EntityNotFoundError",
    "InputError",
    "Link",
    "LinkOptions",
    "ModelError",
    "ModelMismatchError",
    "NilReason",
    "PearlQdrantError",
    "SettingsError",
    "StoreError",
    "StoreLockedError",
    "StoreUnavailableError",
    "UnknownTypeError",
    "__version__",
]

_MODULE_OF = {
    "EntityLinker": "pearl_qdrant.linking.linker",
    "LinkOptions": "pearl_qdrant.linking.options",
    "Annotation": "pearl_qdrant.records",
    "Candidate": "pearl_qdrant.records",
    "Entity": "pearl_qdrant.records",
    "Link": "pearl_qdrant.records",
    "NilReason": "pearl_qdrant.records",
}
"""The modules of the public names that are not errors."""

__getattr__, __dir__ = lazy_exports(
    __name__,
    {name: _MODULE_OF.get(name, "pearl_qdrant.errors") for name in __all__ if name != "__version__"},
)
