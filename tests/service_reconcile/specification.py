"""The shapes that version 0.2 of the specification demands, written down from its text and schemas.

A field that the specification does not name is an error where its schemas say so, and allowed elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, create_model

Text = Annotated[str, StringConstraints(min_length=1, strict=True)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[int, Field(gt=0, strict=True)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://")]
Path = Annotated[str, StringConstraints(pattern=r"^/[^?]*$")]
"""OpenRefine appends ?type=, so that a path must have no query."""
Template = Annotated[str, StringConstraints(pattern=r"^https?://.*\{\{id\}\}")]
FlyoutPath = Annotated[str, StringConstraints(pattern=r"\$\{id\}")]


def shape(closed: bool = False, /, **fields: Any) -> Any:
    """An object with these fields, (type, value) where one may be left out; a closed one has no others."""
    config = ConfigDict(extra="forbid", strict=True) if closed else None
    given = {name: one if isinstance(one, tuple) else (one, ...) for name, one in fields.items()}
    return create_model("Shape", __config__=config, **given)


Type = shape(id=Text, name=Text, description=(str, ""))
Property = shape(id=Text, name=Text)
Feature = shape(id=Text, name=Text, value=bool | Number)
Score = Annotated[float, Field(ge=0, le=100)]  # of a service with standardizedScore
Candidate = shape(
    id=Text,
    name=Text,
    type=list[Type],
    score=Score,
    match=Annotated[bool, Field(strict=True)],
    description=(Text, "left out"),
    features=(list[Feature], []),
)
ResultBatch = dict[str, shape(result=list[Candidate])]  # type: ignore[misc]

View = shape(url=Template)
Preview = shape(url=Template, width=Positive, height=Positive)
SuggestPlace = shape(service_url=Url, service_path=Path, flyout_service_url=Url, flyout_service_path=FlyoutPath)
Suggest = shape(entity=SuggestPlace, property=SuggestPlace, type=SuggestPlace)
ProposePlace = shape(service_url=Url, service_path=Path)
NumberSetting = shape(True, type=Literal["number"], name=Text, label=Text, default=int, help_text=str)
Extend = shape(propose_properties=ProposePlace, property_settings=list[NumberSetting])
InHeader = Annotated[Literal["header"], Field(alias="in")]
Authentication = shape(True, type=Literal["apiKey"], name=Literal["X-API-Key"], in_=InHeader)
Manifest = shape(
    versions=list[str],
    name=Text,
    identifierSpace=Url,
    schemaSpace=Url,
    defaultTypes=list[Type],
    documentation=Url,
    serviceVersion=Text,
    view=View,
    preview=Preview,
    suggest=Suggest,
    extend=Extend,
    batchSize=Positive,
    standardizedScore=Literal[True],
    authentication=(Authentication | None, None),
)

SuggestedEntity = shape(id=Text, name=Text, description=(Text, "left out"), notable=list[Type])
EntitySuggestions = shape(result=list[SuggestedEntity])
Suggestions = shape(result=list[Type])
Flyout = shape(True, id=Text, html=Text)

Value = shape(True, str=str) | shape(True, float=float) | shape(True, id=Text, name=Text)
Extension = shape(meta=list[Property], rows=dict[str, dict[str, list[Value]]])
Proposal = shape(properties=list[Property], type=str, limit=(int, 0))


def check(expected: Any, answer: Any) -> Any:
    """The body of an answer, after it was found to have a shape."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    TypeAdapter(expected).validate_python(answer.json())
    return answer.json()
