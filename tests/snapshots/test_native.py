"""The door to SQLite's own functions: found once, proved, and equal to what apsw reads."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_snapshots import native, sql, vfs
from bird_snapshots.errors import EngineFault, SettingsDidNotHold

VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(max_size=50),
)


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_rows_are_read_as_apsw_reads_them(values: list[native.Value]) -> None:
    connection = apsw.Connection(":memory:", statementcachesize=0)
    text = "SELECT " + ", ".join("?" for _ in values)
    running = sql.cursor(connection)
    running.execute(text, values)
    pointer = native.statement(connection, text)
    assert native.row(pointer) == tuple(values) == next(running)
    running.close(True)
    connection.close()


@given(st.binary(min_size=1, max_size=30))
def test_any_bytes_as_text_read_back_exactly(data: bytes) -> None:
    connection = apsw.Connection(":memory:", statementcachesize=0)
    ((value, again),) = sql.query(
        connection, f"SELECT CAST(x'{data.hex()}' AS TEXT), CAST(CAST(x'{data.hex()}' AS TEXT) AS BLOB)"
    )
    assert isinstance(value, str)
    assert value.encode("utf-8", "surrogateescape") == again == data
    connection.close()


def test_the_right_statement_is_found() -> None:
    connection = apsw.Connection(":memory:", statementcachesize=0)
    first, second = sql.cursor(connection), sql.cursor(connection)
    first.execute("SELECT 1 UNION ALL SELECT 2")
    second.execute("SELECT 'other'")
    assert native.row(native.statement(connection, "SELECT 1 UNION ALL SELECT 2")) == (1,)
    assert native.columns(native.statement(connection, "SELECT 'other'")) == ("'other'",)
    first.close(True)
    second.close(True)
    with pytest.raises(EngineFault):
        native.statement(connection, "SELECT 1")
    connection.close()


@pytest.mark.parametrize(
    ("text", "end", "names"),
    [
        ("SELECT ?, :a; SELECT 1", 13, ("?", ":a")),
        ("SELECT ?3", 9, ("?", "?", "?3")),
        ("SELECT 'ü', $x", 15, ("$x",)),
        ("SELECT 1", 8, ()),
        ("nonsense ?", 10, ()),
        ("", 0, ()),
    ],
)
def test_parameters(text: str, end: int, names: tuple[str, ...]) -> None:
    connection = apsw.Connection(":memory:", statementcachesize=0)
    assert native.parameters(connection, text) == (end, names)
    connection.close()


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        native.library().no_such_function()


def test_a_table_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.0.0")
    monkeypatch.setattr(native, "_library", None)
    with pytest.raises(SettingsDidNotHold, match=r"3\.0\.0"):
        native.library()


def test_an_sqlite_without_its_vfs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vfs, "_registered", None)
    monkeypatch.setattr(vfs, "BASE", "unix-nowhere")
    with pytest.raises(SettingsDidNotHold, match="unix-nowhere"):
        vfs.register()


def test_registered_once() -> None:
    assert vfs.register() == vfs.register() == "bird-none"
    assert apsw.vfs_names().count("bird-none") == 1
