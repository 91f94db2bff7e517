"""What a call or a command can be told, as pydantic models: bounds and variables from `Field`, help from the string
below a field. The command line reads the fields that have no option of their own from `--set NAME=VALUE`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pearl_qdrant.errors import OptionError

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Device = Annotated[str, Field(json_schema_extra={"env": "PEARL_QDRANT_DEVICE"})]
Model = Annotated[str | None, Field(json_schema_extra={"env": "PEARL_QDRANT_MODEL"})]

_SHOWN = 200  # characters of a value in a message
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "over", "maximum": "at most", "exclusiveMaximum": "below"}


class Options(BaseModel):
    """Base of the models. Raises OptionError with the first field that does not fit, its value and what it must be, and
    TypeError for one that there is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _refusal(error) from error

    @classmethod
    def read(
        cls, texts: Sequence[str], *, but: Collection[str] = (), environment: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        """The fields that texts such as "max_mentions=500" give, as values of their types.

        Args:
            texts: A field with several values is repeated.
            but: Fields that have an option of their own.
            environment: Where the variables of other fields are.

        Raises:
            OptionError: With the names that are near, or the bound.
        """
        known = {name: of.get("env") for name, of in cls.model_json_schema()["properties"].items() if name not in but}
        given: dict[str, list[str]] = {}
        for text in texts:
            name, sign, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not sign or name not in known:
                near = ", ".join(get_close_matches(name, known) or known)
                raise OptionError("set", f"'{text}' is no setting: write NAME=VALUE, with a name of: {near}.")
            given.setdefault(name, []).append(value)
        named = {name: [environment[one]] for name, one in known.items() if one and environment.get(one)}
        return {name: cls._value(name, values) for name, values in (named | given).items()}

    @classmethod
    def _value(cls, name: str, texts: list[str]) -> Any:
        numbers = ConfigDict(allow_inf_nan=False)
        kind: TypeAdapter[Any] = TypeAdapter(cls.model_fields[name].rebuild_annotation(), config=numbers)
        try:
            if len(texts) == 1:
                try:
                    return kind.validate_python(texts[0])
                except ValidationError as error:
                    if error.errors()[0]["type"] != "tuple_type":
                        raise
            return kind.validate_python(texts)
        except ValidationError as error:
            raise _refusal(error, name) from error

    @classmethod
    def describe(cls, *, but: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """The names that `read` takes, each with its help, bounds, default and variable."""
        for name, schema in cls.model_json_schema()["properties"].items():
            if name not in but:
                said, default = " ".join(schema.get("description", "").split()), schema.get("default")
                facts = [*_bounds(schema), *([schema["env"]] if "env" in schema else [])]
                if default not in (None, [], "") and default is not False and "[default" not in said:
                    facts.append(f"default: {default}")
                yield name, f"{said} [{'; '.join(facts)}]" if facts else said


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for one in (schema, *schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from (f"{word} {one[key]:g}" for key, word in _BOUNDS.items() if key in one)
        if "enum" in one:
            yield ", ".join(map(str, one["enum"]))


def _refusal(error: ValidationError, name: str | None = None) -> OptionError | TypeError:
    first = error.errors()[0]
    if isinstance(of_model := first.get("ctx", {}).get("error"), OptionError):
        return of_model
    name = name or str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return TypeError(f"there is no option {name!r}")
    value, message = repr(first["input"])[:_SHOWN], first["msg"]
    must = f", but must be {message[16:]}" if message.startswith("Input should be ") else f": {message}"
    return OptionError(name, f"'{name}' is {value}{must}.")
