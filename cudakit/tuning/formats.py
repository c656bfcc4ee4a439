"""Files of spaces and results: a result's JSON, and Kernel Tuner's caches, T1 (spaces) and T4 (results).

T1 and T4 are formats of the tuning community: https://github.com/odgaard/TuningSchema.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudakit.errors import ArgumentError
from cudakit.tuning.expression import Expression
from cudakit.tuning.recorded import Measurement, Recorded
from cudakit.tuning.space import Space

#: Kernel Tuner's word for a point without a value → T4's.
_ERRORS = {"CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime", "InvalidConfig": "constraints"}
#: State of a candidate without a value → T4's word.
_STATES = {"wrong": "correctness", "invalid": "constraints", "failed": "runtime"}
#: Times of an entry of a cache that Kernel Tuner reads.
_TIMES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
#: Type of a value → T1's word.
_TYPES = {bool: "bool", int: "int", float: "float", str: "string"}


def read(path: str | Path) -> Recorded:
    """Read a recorded space: a result's JSON, Kernel Tuner's cache file, or T4; packed by gzip or not.

    Raises
    ------
    ArgumentError
        The file is none of these.
    """
    document = _document(path)
    if "cache" in document:
        return _of_cache(document)
    if "results" in document:
        return _of_t4(document)
    if "table" in document:
        return _of_tuned(document)
    raise ArgumentError(f"{path}: expected a result's JSON, Kernel Tuner's cache or T4; got {', '.join(document)}")


def write_cache(recorded: Recorded, path: str | Path, problem_size: Sequence[int] = ()) -> None:
    """Write a recorded space as a cache file of Kernel Tuner, for its `cache=` and its simulation mode.

    Parameters
    ----------
    recorded : Recorded
        Recorded space.
    path : str or Path
        File to write.
    problem_size : sequence of int
        Size of the problem, which Kernel Tuner compares with the one it gets. Default: the recorded one.
    """
    words = {word: error for error, word in _ERRORS.items()}
    entries = {}
    for point, value, invalidity in recorded.measurements:
        result: Any = words.get(invalidity, "RuntimeFailedConfig") if value is None else value
        times = {
            "compile_time": 0,
            "verification_time": 0,
            "benchmark_time": 0,
            "strategy_time": 0,
            "framework_time": 0,
        }
        entries[",".join(map(str, point.values()))] = {**point, recorded.objective: result, **times}
    document = {
        "device_name": recorded.card,
        "kernel_name": recorded.kernel,
        "problem_size": list(problem_size or recorded.problem_size),
        "tune_params_keys": list(recorded.space.names),
        "tune_params": _parameters(recorded.space),
        "objective": recorded.objective,
        "cache": entries,
    }
    Path(path).write_text(json.dumps(document), encoding="utf-8")


def write_t4(recorded: Recorded, path: str | Path) -> None:
    """Write a recorded space as T4."""
    now = datetime.now(UTC).isoformat(sep=" ")
    results = [
        {
            "timestamp": now,
            "configuration": point,
            "times": {} if value is None or recorded.objective != "time" else {"runtimes": [value]},
            "invalidity": invalidity,
            "correctness": int(value is not None),
            "measurements": [
                {
                    "name": recorded.objective,
                    "value": invalidity if value is None else value,
                    "unit": recorded.unit,
                }
            ],
            "objectives": [recorded.objective],
        }
        for point, value, invalidity in recorded.measurements
    ]
    metadata = {"timeunit": "miliseconds", "kernel": recorded.kernel, "device": recorded.card}  # spelled as they do
    document = {"metadata": metadata, "results": results, "schema_version": "1.0.0"}
    Path(path).write_text(json.dumps(document), encoding="utf-8")


def read_t1(path: str | Path) -> Space:
    """Read the space of a T1 file: its parameters and conditions.

    Raises
    ------
    ArgumentError
        The file is not T1, or a condition is more than an expression of parameters.
    """
    document = _document(path)
    try:
        space = document["ConfigurationSpace"]
        values = {parameter["Name"]: _list_of(parameter) for parameter in space["TuningParameters"]}
        conditions = [condition["Expression"] for condition in space.get("Conditions", ())]
    except ArgumentError:
        raise
    except (KeyError, TypeError):
        raise ArgumentError(f"{path}: expected T1, with ConfigurationSpace and TuningParameters") from None
    return Space(values, [Expression(condition) for condition in conditions])


def write_t1(
    space: Space,
    path: str | Path,
    *,
    kernel: str,
    file: str,
    local_size: Mapping[str, str],
    global_size: Mapping[str, str],
) -> None:
    """Write a space as T1.

    Parameters
    ----------
    space : Space
        Space, whose restrictions are expressions: text, not functions.
    path : str or Path
        File to write.
    kernel, file : str
        Name of the kernel, and the file of its source.
    local_size, global_size : mapping of str to str
        Threads of a block, and blocks, each an expression of parameters: ``{"X": "BLOCK"}``.

    Raises
    ------
    ArgumentError
        A restriction is a function.
    """
    conditions = []
    for restriction in space.where:
        if not isinstance(restriction, Expression):
            raise ArgumentError('T1 has restrictions as text: write `where="BLOCK * ITEMS <= 1024"`, not a function')
        conditions.append({"Parameters": list(restriction.names), "Expression": restriction.text})
    parameters = [
        {"Name": name, "Type": _TYPES.get(type(values[0]), "string"), "Values": repr(values)}
        for name, values in _parameters(space).items()
    ]
    document = {
        "General": {"FormatVersion": 1, "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions},
        "KernelSpecification": {
            "Language": "CUDA",
            "KernelName": kernel,
            "KernelFile": file,
            "GlobalSizeType": "CUDA",
            "LocalSize": dict(local_size),
            "GlobalSize": dict(global_size),
        },
    }
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def _document(path: str | Path) -> dict[str, Any]:
    """Return a file's JSON. A cache file without its last two brackets, of a search that was ended, is complete."""
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    for end in ("", "}}"):
        try:
            document = json.loads(text.rstrip().rstrip(",") + end)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    raise ArgumentError(f"{path}: expected a JSON object")


def _of_cache(document: Mapping[str, Any]) -> Recorded:
    """Return the recorded space of Kernel Tuner's cache."""
    objective = document.get("objective") or "time"
    objective = objective if isinstance(objective, str) else objective[0]
    names = document["tune_params_keys"]
    measurements = [
        _measurement({name: entry[name] for name in names}, entry.get(objective))
        for entry in document["cache"].values()
    ]
    size = document.get("problem_size", ())
    return Recorded(
        measurements,
        kernel=document.get("kernel_name", ""),
        card=document.get("device_name", ""),
        objective=objective,
        problem_size=[size] if isinstance(size, int) else size if isinstance(size, list) else (),
        parameters=document.get("tune_params"),
    )


def _of_t4(document: Mapping[str, Any]) -> Recorded:
    """Return the recorded space of a T4 document."""
    results = document["results"]
    objective = next((result["objectives"][0] for result in results if result.get("objectives")), "time")
    measurements = []
    unit = ""
    for result in results:
        values = {entry["name"]: entry for entry in result.get("measurements", ())}
        entry = values.get(objective, {})
        unit = unit or entry.get("unit", "")
        value = entry.get("value") if result["invalidity"] == "correct" else None
        measurements.append(_measurement(result["configuration"], value, result["invalidity"]))
    metadata = document.get("metadata", {})
    return Recorded(
        measurements, metadata.get("kernel", ""), metadata.get("device", ""), objective=objective, unit=unit or "ms"
    )


def _of_tuned(document: Mapping[str, Any]) -> Recorded:
    """Return the recorded space of a result's JSON."""
    measurements = [
        Measurement(row["point"], row["value"])
        if row["state"] in ("right", "slow") and row["value"] is not None
        else Measurement(row["point"], None, _STATES.get(row["state"], "runtime"))
        for row in document["table"]
    ]
    card = (document.get("traffic") or {}).get("card", "")
    return Recorded(measurements, document["kernel"], card, objective=document["objective"], unit=document["unit"])


def _measurement(point: dict[str, Any], value: Any, invalidity: str = "correct") -> Measurement:
    """Return a measurement from a number, numbers, or the name of an error."""
    if isinstance(value, list) and value:
        value = sum(value) / len(value)
    if isinstance(value, int | float) and value < 1e19:  # caches of older versions have 1e20 for errors
        return Measurement(point, float(value))
    return Measurement(point, None, _ERRORS.get(str(value), invalidity if invalidity != "correct" else "runtime"))


def _list_of(parameter: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values of a parameter of T1: a list, or its text."""
    values = parameter["Values"]
    if isinstance(values, str):
        try:
            values = ast.literal_eval(values)
        except (SyntaxError, ValueError):
            raise ArgumentError(f"parameter {parameter['Name']}: expected a list of values, got {values!r}") from None
    return list(values)


def _parameters(space: Space) -> dict[str, list[Any]]:
    """Return the values of each parameter, as JSON has them."""
    return {name: list(values) for name, values in zip(space.names, space.values, strict=True)}
