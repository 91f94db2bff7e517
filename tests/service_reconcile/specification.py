"""The shapes that version 0.2 of the specification demands, written down from its text and schemas.

A field that the specification does not name is an error where its schemas say so, and allowed elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1, strict=True)]
Number = Annotated[float, Field(strict=True)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://")]
Template = Annotated[str, StringConstraints(pattern=r"^https?://.*\{\{id\}\}")]
FlyoutPath = Annotated[str, StringConstraints(pattern=r"\$\{id\}")]


class Closed(BaseModel):
    """An object without other fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Type(BaseModel):
    """A type."""

    id: Text
    name: Text
    description: str = ""


class Property(BaseModel):
    """A property."""

    id: Text
    name: Text


class Feature(BaseModel):
    """A feature, with a name for people."""

    id: Text
    name: Text
    value: bool | Number


class Candidate(BaseModel):
    """A candidate; a service with standardizedScore has scores from 0 to 100."""

    id: Text
    name: Text
    type: list[Type]
    score: Annotated[float, Field(ge=0, le=100)]
    match: Annotated[bool, Field(strict=True)]
    description: Text = "left out"
    features: list[Feature] = []


class Result(BaseModel):
    """The candidates of a query."""

    result: list[Candidate]


class ResultBatch(RootModel[dict[str, Result]]):
    """The results of a batch of version 0.2."""


class Template1(BaseModel):
    """An object with a template."""

    url: Template


class Preview(Template1):
    """Where previews are, and how large."""

    width: Annotated[int, Field(gt=0, strict=True)]
    height: Annotated[int, Field(gt=0, strict=True)]


class SuggestPlace(BaseModel):
    """Where suggestions are."""

    service_url: Url
    service_path: Annotated[str, StringConstraints(pattern=r"^/[^?]*$")]
    flyout_service_url: Url
    flyout_service_path: FlyoutPath


class Suggest(BaseModel):
    """The suggest services."""

    entity: SuggestPlace
    property: SuggestPlace
    type: SuggestPlace


class ProposePlace(BaseModel):
    """Where properties are proposed. OpenRefine appends ?type=, so that the path must have no query."""

    service_url: Url
    service_path: Annotated[str, StringConstraints(pattern=r"^/[^?]*$")]


class NumberSetting(Closed):
    """A setting of a property."""

    type: Literal["number"]
    name: Text
    label: Text
    default: int
    help_text: str


class Extend(BaseModel):
    """The data extension service."""

    propose_properties: ProposePlace
    property_settings: list[NumberSetting]


class Authentication(Closed):
    """A security scheme with a key in a header."""

    type: Literal["apiKey"]
    name: Literal["X-API-Key"]
    in_: Annotated[Literal["header"], Field(alias="in")]


class Manifest(BaseModel):
    """The service manifest."""

    versions: list[str]
    name: Text
    identifierSpace: Url  # noqa: N815
    schemaSpace: Url  # noqa: N815
    defaultTypes: list[Type]  # noqa: N815
    documentation: Url
    serviceVersion: Text  # noqa: N815
    view: Template1
    preview: Preview
    suggest: Suggest
    extend: Extend
    batchSize: Annotated[int, Field(gt=0, strict=True)]  # noqa: N815
    standardizedScore: Literal[True]  # noqa: N815
    authentication: Authentication | None = None


class SuggestedEntity(BaseModel):
    """A suggested entity."""

    id: Text
    name: Text
    description: Text = "left out"
    notable: list[Type]


class EntitySuggestions(BaseModel):
    """Suggested entities."""

    result: list[SuggestedEntity]


class Suggestions(BaseModel):
    """Suggested types or properties."""

    result: list[Type]


class Flyout(Closed):
    """A small preview."""

    id: Text
    html: Text


class TextValue(Closed):
    """A text."""

    str: str


class FloatValue(Closed):
    """A number."""

    float: float


class EntityValue(Closed):
    """An entity."""

    id: Text
    name: Text


Value = TextValue | FloatValue | EntityValue


class Extension(BaseModel):
    """Values of properties."""

    meta: list[Property]
    rows: dict[str, dict[str, list[Value]]]


class Proposal(BaseModel):
    """Proposed properties."""

    properties: list[Property]
    type: str
    limit: int = 0


def check(shape: type[BaseModel], answer: Any) -> Any:
    """The body of an answer, after it was found to have a shape."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    shape.model_validate(answer.json())
    return answer.json()
