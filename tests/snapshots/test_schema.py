"""What a database holds, as a prompt or a listing shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bird_snapshots.schema import Column, ForeignKey, SchemaObject
from bird_snapshots.store import Store

Maker = Callable[..., Path]

SCRIPT = """
CREATE TABLE a(id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'x''y', price REAL DEFAULT (1 + 1));
CREATE TABLE b(
    x, y, z AS (x + 1), PRIMARY KEY (y, x), FOREIGN KEY (x, y) REFERENCES pair(p, q), FOREIGN KEY (y) REFERENCES a
);
CREATE TABLE pair(p, q, UNIQUE (p, q));
CREATE VIEW v AS SELECT id, name AS n FROM a;
CREATE VIEW broken AS SELECT * FROM missing;
CREATE VIRTUAL TABLE words USING fts5(body, title);
CREATE TABLE "odd ""name"(" c 1", [select]);
CREATE INDEX i ON a(name);
INSERT INTO a(name) VALUES ('one'), ('two');
INSERT INTO "odd ""name" VALUES (1, 2);
"""


def described(store: Store, source: Path, *, count: bool = False) -> dict[str, SchemaObject]:
    digest = store.templates.publish(source).digest
    return {each.name: each for each in store.templates.schema(digest, count=count)}


def test_objects_in_the_order_of_the_file(store: Store, make_database: Maker) -> None:
    found = described(store, make_database(SCRIPT))
    kinds = {name: each.kind for name, each in found.items()}
    assert list(kinds)[:6] == ["a", "b", "pair", "v", "broken", "words"]
    assert {name: kind for name, kind in kinds.items() if not name.startswith("words_")} == {
        "a": "table",
        "b": "table",
        "pair": "table",
        "v": "view",
        "broken": "view",
        "words": "virtual",
        'odd "name': "table",
    }
    assert {kind for name, kind in kinds.items() if name.startswith("words_")} == {"shadow"}


def test_columns_and_keys(store: Store, make_database: Maker) -> None:
    found = described(store, make_database(SCRIPT))
    assert found["a"].columns == (
        Column("id", "INTEGER", False, True, None),
        Column("name", "TEXT", True, False, "'x''y'"),
        Column("price", "REAL", False, False, "1 + 1"),
    )
    assert [each.name for each in found["b"].columns] == ["x", "y", "z"]
    assert found["b"].foreign_keys == (
        ForeignKey(("x", "y"), "pair", ("p", "q")),
        ForeignKey(("y",), "a", ("id",)),
    )
    assert [each.name for each in found["v"].columns] == ["id", "n"]
    assert found["broken"].columns == ()
    assert [each.name for each in found["words"].columns] == ["body", "title"]
    assert found["a"].sql is not None
    assert found["a"].sql.startswith("CREATE TABLE a(id INTEGER PRIMARY KEY")


def test_rows_are_counted_on_demand(store: Store, make_database: Maker) -> None:
    source = make_database(SCRIPT)
    assert described(store, source)["a"].rows is None
    counted = described(store, source, count=True)
    assert (counted["a"].rows, counted["b"].rows, counted['odd "name'].rows, counted["v"].rows) == (2, 0, 1, None)


def test_names_that_are_no_utf8(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "latin.db"
    with closing(sqlite3.connect(source)) as connection:
        connection.executescript(
            "CREATE TABLE tabXX(cafXX INT REFERENCES tabXX(cafXX), y DEFAULT 'dXX'); INSERT INTO tabXX VALUES (1,2)"
        )
    source.write_bytes(source.read_bytes().replace(b"XX", b"\xe9\xe9"))
    found = described(store, source, count=True)
    (only,) = found.values()
    assert only.name == "tab\udce9\udce9"
    assert [each.name for each in only.columns] == ["caf\udce9\udce9", "y"]
    assert only.columns[1].default == "'d\udce9\udce9'"
    assert only.foreign_keys == (ForeignKey(("caf\udce9\udce9",), "tab\udce9\udce9", ("caf\udce9\udce9",)),)
    assert only.rows is None, "a name that is no UTF-8 cannot stand in a statement"
