"""The policy's two tools as function schemas for OpenAI-compatible chat APIs."""

from __future__ import annotations

from bird_env.models import FunctionSchema, ToolSchema

EXECUTE_SQL = ToolSchema(
    function=FunctionSchema(
        name="execute_sql",
        description=(
            "Run SQL on your own copy of the SQLite database and read the result or the error. "
            "Changes, open transactions and TEMP tables last until the episode ends."
        ),
        parameters={
            "type": "object",
            "properties": {"sql": {"type": "string", "description": "One SQL text; it may hold several statements."}},
            "required": ["sql"],
            "additionalProperties": False,
        },
    )
)

SUBMIT_SOLUTION = ToolSchema(
    function=FunctionSchema(
        name="submit_solution",
        description="Hand in the final SQL and end the episode. It is run on a fresh copy of the database and scored.",
        parameters={
            "type": "object",
            "properties": {
                "sql_list": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "The statements of the solution in order, one statement an entry.",
                }
            },
            "required": ["sql_list"],
            "additionalProperties": False,
        },
    )
)

TOOLS = [EXECUTE_SQL, SUBMIT_SOLUTION]
