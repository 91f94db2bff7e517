"""The HTTP service: one linker a collection, requests of many clients joined into batches.

    from pearl_qdrant.service import ServiceSettings, create_app, serve

`create_app` makes the ASGI application, `serve` runs it. Needs the extra `serve`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.service.app import create_app, serve
    from pearl_qdrant.service.settings import ServiceSettings

__all__ = ["ServiceSettings", "create_app", "serve"]

__getattr__, __dir__ = lazy_exports(__name__)
