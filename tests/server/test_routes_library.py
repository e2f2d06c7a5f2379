"""Databases, their schemas, tasks and tools over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bird_env.models import DatabaseInfo, DatabaseSchema, Page, TaskInfo
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue
from bird_server.datadir import DataDirectory
from bird_server.library import REVISION_S
from bird_server.pages import encode_token
from bird_snapshots.template import TemplateStore
from bird_world import World, add_database, problem


def add(world: World, name: str, script: str, *tasks: dict[str, Any]) -> str:
    """A further database and tasks, as an import beside the server would make them."""
    template = add_database(world.root, name, script)
    with Catalogue(world.root) as catalogue:
        catalogue.add_tasks([Task.from_record(record) for record in tasks], source="test")
    world.clock.advance(REVISION_S)
    return template.digest


def record(instance_id: str, database: str = "shop", **more: Any) -> dict[str, Any]:
    base = {"preprocess_sql": [], "issue_sql": [], "sol_sql": ["SELECT 1"], "query": "?"}
    return {"instance_id": instance_id, "selected_database": database, **base, **more}


async def get(world: World, path: str, **params: Any) -> Any:
    response = await world.http.get(path, params=params)
    assert response.status_code == 200, response.text
    return json.loads(response.text)


async def test_databases_are_listed_by_name_without_their_paths(world: World) -> None:
    digest = add(world, "airlines", "CREATE TABLE flight(id)")
    text = (await world.http.get("/v1/databases")).text
    page = Page[DatabaseInfo].model_validate(json.loads(text))
    assert [(each.database, each.sha256) for each in page.items] == [
        ("airlines", digest),
        ("shop", world.template.digest),
    ]
    assert str(world.root) not in text


async def test_a_schema_has_every_object_and_its_rows_when_asked(world: World) -> None:
    schema = DatabaseSchema.model_validate(await get(world, "/v1/databases/shop/schema"))
    tables = {each.name: each for each in schema.tables}
    assert [(each.name, each.kind) for each in schema.tables] == [("t", "table"), ("child", "table"), ("big", "view")]
    assert [(column.name, column.type, column.primary_key) for column in tables["t"].columns] == [
        ("id", "INTEGER", True),
        ("a", "TEXT", False),
        ("b", "INTEGER", False),
    ]
    (key,) = tables["child"].foreign_keys
    assert (key.columns, key.references_table, key.references_columns) == (["t_id"], "t", ["id"])
    assert {each.rows for each in schema.tables} == {None}
    assert schema.text.startswith("CREATE TABLE t(")
    counted = DatabaseSchema.model_validate(await get(world, "/v1/databases/shop/schema", count="true"))
    assert {each.name: each.rows for each in counted.tables} == {"t": 3, "child": 0, "big": None}


async def test_a_schema_is_the_templates_whatever_trajectories_do(world: World) -> None:
    await world.create()
    await world.sql("DROP VIEW big; DROP TABLE t; CREATE TABLE mine(x)")
    schema = await get(world, "/v1/databases/shop/schema", count="true")
    assert [each["name"] for each in schema["tables"]] == ["t", "child", "big"]


async def test_a_database_that_is_replaced_is_seen_and_old_trajectories_keep_theirs(world: World) -> None:
    await world.create("old")
    digest = add(world, "shop", "CREATE TABLE other(x)")
    assert (await get(world, "/v1/databases/shop/schema"))["sha256"] == digest
    assert (await world.sql("SELECT count(*) FROM t", "old"))["observation"]["rows"] == [[3]]
    made = await world.create("new")
    assert made["template_sha256"] == digest
    response = await world.post("/v1/trajectories/old/reset", {})
    assert response.json()["template_sha256"] == world.template.digest


async def test_names_and_texts_that_are_no_utf_8_come_through(world: World) -> None:
    script = (
        "CREATE TABLE x(a);PRAGMA writable_schema=ON;"
        "UPDATE sqlite_schema SET sql = CAST(x'435245415445205441424c4520782861e929' AS TEXT)"
    )
    add(
        world,
        "latin",
        script,
        record("odd", "latin", query="why \ud83d?", issue_sql=["SELECT '\ud83d'"], evidence="\ud83d"),
    )
    schema = await get(world, "/v1/databases/latin/schema")
    assert schema["text"] == "CREATE TABLE x(a\udce9);"
    assert schema["tables"][0]["columns"][0]["name"] == "a\udce9"
    assert TaskInfo.model_validate(await get(world, "/v1/tasks/odd")).issue == "why \ud83d?"
    for prompt in ("plain", "bird_rl"):
        made = await world.create(prompt, task_id="odd", prompt=prompt)
        assert "SELECT '\ud83d'" in made["observation"]["text"]
        assert "CREATE TABLE x(a\udce9)" in made["observation"]["messages"][1]["content"]


async def test_tasks_are_found_by_database_and_category_in_pages(world: World) -> None:
    add(
        world,
        "airlines",
        "CREATE TABLE flight(id)",
        *(record(f"f{number}", "airlines", category="Query" if number % 2 else "Efficiency") for number in range(5)),
    )

    async def ids(**params: Any) -> list[str]:
        found: list[str] = []
        token: str | None = None
        while True:
            page = await get(world, "/v1/tasks", **params, **({"page_token": token} if token else {}))
            assert len(page["items"]) <= params.get("limit", 100)
            found += [each["task_id"] for each in page["items"]]
            token = page["next_page_token"]
            if token is None:
                return found

    assert await ids(database="airlines") == ["f0", "f1", "f2", "f3", "f4"]
    assert await ids(database="airlines", limit=1) == ["f0", "f1", "f2", "f3", "f4"]
    assert await ids(database="airlines", category="Query") == ["f1", "f3"]
    assert await ids(limit=3) == ["bad_preprocess", "f0", "f1", "f2", "f3", "f4", "no_gold", "read_1", "write_1"]
    assert await ids(database="none") == []


@pytest.mark.parametrize("task_id", ["dir/one", "a b", "é", "x?y", "..", "%41"])
async def test_a_task_may_have_any_id(world: World, task_id: str) -> None:
    add(world, "more", "CREATE TABLE t(x)", record(task_id, "more"))
    from urllib.parse import quote

    path = quote(task_id, safe="/") if task_id != ".." else "%2e%2e"
    assert (await get(world, f"/v1/tasks/{path}"))["task_id"] == task_id


@pytest.mark.parametrize("token", ["x", encode_token(3), encode_token("\ud83d"), encode_token(None)])
async def test_a_token_of_no_page_is_refused(world: World, token: str) -> None:
    problem(await world.http.get("/v1/tasks", params={"page_token": token}), 422, "invalid_request")


async def test_what_is_not_there_is_named(world: World) -> None:
    problem(await world.http.get("/v1/databases/none/schema"), 404, "unknown_database")
    problem(await world.http.get("/v1/tasks/none"), 404, "unknown_task")
    assert (await get(world, "/v1/tools"))["next_page_token"] is None


async def test_a_template_that_is_gone_is_no_defect(world: World, tmp_path: Path) -> None:
    digest = add(world, "lost", "CREATE TABLE t(x)")
    TemplateStore(DataDirectory(world.root).store).get(digest).path.unlink()
    problem(await world.http.get("/v1/databases/lost/schema"), 404, "unknown_database")
    problem(await world.post("/v1/trajectories", {"database": "lost"}), 404, "unknown_database")
