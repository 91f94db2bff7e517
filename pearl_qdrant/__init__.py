"""Entity linking over Qdrant with PEARL phrase embeddings.

    from pearl_qdrant import EntityLinker

    with EntityLinker.open("umls") as linker:
        link = linker.link("heart attack", types=["DISO"])

Names resolve on first use (PEP 562), so that `import pearl_qdrant` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    "Annotation": "pearl_qdrant.records",
    "Candidate": "pearl_qdrant.records",
    "Entity": "pearl_qdrant.records",
    "Link": "pearl_qdrant.records",
    "NilReason": "pearl_qdrant.records",
}
"""Where a public name lives; the others are errors."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF.get(name, "pearl_qdrant.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
