"""What a JSON value has that its schema forbids: the part of JSON Schema that cudakit's schema uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None),
}  # fmt: skip


def faults_of(value: Any, schema: dict[str, Any]) -> list[str]:
    return list(_faults(value, schema, schema, "document"))


def _faults(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        yield from _faults(value, root["$defs"][name], root, where)
        return
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any((isinstance(value, TYPES[name]) and type(value) is not bool) or
                         (name == "boolean" and isinstance(value, bool)) for name in types):  # fmt: skip
        yield f"{where} is {value!r}, no {types}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where} is {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}, none of {schema['enum']}"
    if isinstance(value, dict):
        yield from (f"{where} has no {name}" for name in schema.get("required", ()) if name not in value)
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from _faults(value[name], inner, root, f"{where}.{name}")
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{where} has {len(value)} items"
        for position, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), root, f"{where}[{position}]")
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where} is {value}"
