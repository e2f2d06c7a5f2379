"""A small store, and databases made on the spot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bird_snapshots.store import Store
from bird_snapshots.template import Template

Maker = Callable[..., Path]

SHOP = """
CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
INSERT INTO t SELECT i, 'row ' || i, i * 10 FROM n;
CREATE INDEX t_b ON t(b);
CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE child(id INTEGER PRIMARY KEY, p INTEGER REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO parent VALUES (1, 'one'), (2, 'two');
INSERT INTO child VALUES (1, 1);
CREATE VIEW big AS SELECT * FROM t WHERE b > 500;
"""


@pytest.fixture
def make_database(tmp_path: Path) -> Maker:
    """Writes a database file with the stock library from a script; `before` runs first, for PRAGMAs of the file."""

    def make(script: str = SHOP, name: str = "source.sqlite", before: str = "") -> Path:
        path = tmp_path / name
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(before + script)
            connection.commit()
        return path

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def template(store: Store, make_database: Maker) -> Template:
    return store.templates.publish(make_database())
