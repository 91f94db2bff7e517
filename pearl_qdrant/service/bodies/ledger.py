"""Bodies of /v1/accept and /v1/reject, and their answer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from pearl_qdrant.service.bodies.limits import Body, Limit

_LIMITS = tuple(Limit(name, "max_mention_characters", "characters") for name in ("mention", "entity_id", "collection"))


class AcceptBody(Body):
    """A mention and the entity that it meant."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "Big Apple", "entity_id": "new-york-city"}]})
    limits = _LIMITS

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")
    mention: str = Field(description="The mention.")
    entity_id: str | None = Field(description="The entity that it meant; null for no entity.")


class RejectBody(Body):
    """A mention and an entity that it did not mean."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "Big Apple", "entity_id": "apple-inc"}]})
    limits = _LIMITS

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")
    mention: str = Field(description="The mention.")
    entity_id: str = Field(description="The entity that it did not mean.")


class BatchAnswer(BaseModel):
    """What the collection learned. `pearl-qdrant learn --undo` takes its number."""

    collection: str
    number: int
    kind: str
    time: str
