"""`/v1/databases`, `/v1/tasks`, `/v1/tools`: what trajectories can start from. Gold and tests are in none of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from bird_env.models import (
    ColumnInfo,
    DatabaseInfo,
    DatabaseSchema,
    ForeignKeyInfo,
    Page,
    TableInfo,
    TaskInfo,
    ToolSchema,
)
from bird_server.auth import Scope, requires
from bird_server.openapi import problems
from bird_server.pages import DEFAULT_LIMIT, Limit, PageToken, decode_token, encode_token
from bird_server.schema_text import full_text
from bird_server.state import State, state_of
from bird_server.tools import TOOLS
from bird_server.wire import reply
from bird_snapshots.schema import SchemaObject

router = APIRouter(prefix="/v1", dependencies=[Depends(requires(Scope.RUN))])


@router.get("/databases", response_model=Page[DatabaseInfo], tags=["databases"], responses=problems())
async def databases(state: Annotated[State, Depends(state_of)]) -> Response:
    """Every database, by name."""
    found = await state.library.read(lambda catalogue: catalogue.databases())
    return reply(Page[DatabaseInfo](items=[each.info() for each in found]))


@router.get("/databases/{name}/schema", response_model=DatabaseSchema, tags=["databases"], responses=problems(404, 503))
async def schema(
    name: str,
    state: Annotated[State, Depends(state_of)],
    count: Annotated[bool, Query(description="With the number of rows of each table.")] = False,
) -> Response:
    """Tables, columns and keys, and the CREATE statements as text."""
    found = await state.library.database(name)
    objects = await state.engine.schema(found.digest, count=True) if count else await state.library.schema(found.digest)
    return reply(
        DatabaseSchema(
            database=found.name,
            sha256=found.digest,
            text=full_text(objects),
            tables=[_table(each) for each in objects],
        )
    )


@router.get("/tasks", response_model=Page[TaskInfo], tags=["tasks"], responses=problems(422))
async def tasks(
    state: Annotated[State, Depends(state_of)],
    database: Annotated[str | None, Query()] = None,
    category: Annotated[str | None, Query()] = None,
    limit: Limit = DEFAULT_LIMIT,
    page_token: PageToken = None,
) -> Response:
    """Tasks by id."""
    after = decode_token(page_token, str)
    found = await state.library.read(
        lambda catalogue: catalogue.tasks(database=database, category=category, after=after, limit=limit + 1)
    )
    token = encode_token(found[limit - 1].instance_id) if len(found) > limit else None
    return reply(Page[TaskInfo](items=[each.public() for each in found[:limit]], next_page_token=token))


@router.get("/tasks/{task_id:path}", response_model=TaskInfo, tags=["tasks"], responses=problems(404))
async def task(task_id: str, state: Annotated[State, Depends(state_of)]) -> Response:
    """One task as a policy may know it."""
    return reply((await state.library.task(task_id)).public())


@router.get("/tools", response_model=Page[ToolSchema], tags=["tasks"], responses=problems())
async def tools() -> Response:
    """The policy's tools as OpenAI function schemas."""
    return reply(Page[ToolSchema](items=TOOLS))


def _table(each: SchemaObject) -> TableInfo:
    return TableInfo(
        name=each.name,
        kind=each.kind,
        sql=each.sql,
        columns=[
            ColumnInfo(
                name=column.name,
                type=column.type,
                not_null=column.not_null,
                primary_key=column.primary_key,
                default=column.default,
            )
            for column in each.columns
        ],
        foreign_keys=[
            ForeignKeyInfo(
                columns=list(key.columns),
                references_table=key.references_table,
                references_columns=list(key.references_columns),
            )
            for key in each.foreign_keys
        ],
        rows=each.rows,
    )
