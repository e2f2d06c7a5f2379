"""The policy's tools: schemas that chat APIs take, and arguments that become actions."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from bird_server.tools import EXECUTE_SQL, SUBMIT_SOLUTION, TOOLS


def test_names_and_arguments_are_those_that_trained_policies_know() -> None:
    assert [tool.function.name for tool in TOOLS] == ["execute_sql", "submit_solution"]
    assert list(EXECUTE_SQL.function.parameters["properties"]) == ["sql"]
    assert list(SUBMIT_SOLUTION.function.parameters["properties"]) == ["sql_list"]
    assert {tool.type for tool in TOOLS} == {"function"}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.function.name))
def test_parameters_are_a_json_schema_that_asks_for_all_and_nothing_else(tool: Any) -> None:
    parameters = tool.function.parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert parameters["required"] == list(parameters["properties"])
    assert parameters["additionalProperties"] is False
    assert all(each["description"] for each in parameters["properties"].values())
    assert tool.function.description


@pytest.mark.parametrize(
    ("tool", "arguments", "fits"),
    [
        (EXECUTE_SQL, {"sql": "SELECT 1"}, True),
        (EXECUTE_SQL, {"sql": ["SELECT 1"]}, False),
        (EXECUTE_SQL, {}, False),
        (EXECUTE_SQL, {"sql": "x", "timeout": 1}, False),
        (SUBMIT_SOLUTION, {"sql_list": ["a", "b"]}, True),
        (SUBMIT_SOLUTION, {"sql_list": "a"}, False),
    ],
)
def test_calls_are_told_apart(tool: Any, arguments: dict[str, Any], fits: bool) -> None:
    assert jsonschema.Draft202012Validator(tool.function.parameters).is_valid(arguments) == fits
