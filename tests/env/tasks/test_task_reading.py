"""Files of objects: told apart by content, read past their damage, each object with its place."""

from __future__ import annotations

import codecs
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env.errors import DataError
from bird_env.tasks.reading import LFS_POINTER, NO_TEXTS, PARQUET_MAGIC, Found, read_objects


def read(path: Path, data: bytes | str) -> list[Found]:
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return list(read_objects(path))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every example of a property writes anew."""
    return tmp_path_factory.mktemp("scratch") / "x"


def values(found: list[Found]) -> list[tuple[int, Any]]:
    assert [one.fault for one in found] == [None] * len(found)
    return [(one.number, one.value) for one in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \r\n \n", []),
        ("[]", []),
        ('{"a": 1}', [(1, {"a": 1})]),
        ('{"a": 1}\n{"a": 2}', [(1, {"a": 1}), (2, {"a": 2})]),
        ('\n\r\n{"a": 1}\r\n\r\n{"a": 2}\r\n', [(3, {"a": 1}), (5, {"a": 2})]),
        ('[{"a": 1}, {"a": 2}]', [(1, {"a": 1}), (2, {"a": 2})]),
        ('\n [\n{"a": 1}\n,\n{"a": 2}\n]\n', [(1, {"a": 1}), (2, {"a": 2})]),
        ('{\n "a": 1\n}\n', [(1, {"a": 1})]),
        ('{\n "a": 1\n}\n{\n "a": 2\n}', [(1, {"a": 1}), (2, {"a": 2})]),
        ('{"a": "x\u2028y\u0085z"}\n{"a": 2}', [(1, {"a": "x\u2028y\u0085z"}), (2, {"a": 2})]),
        ('{"a": "\\ud800\\u0000"}', [(1, {"a": "\ud800\0"})]),
        ("3\nnull", [(1, 3), (2, None)]),
    ],
)
def test_json_and_json_lines_are_told_apart(tmp_path: Path, text: str, expected: list[Any]) -> None:
    assert values(read(tmp_path / "tasks.txt", text)) == expected


@pytest.mark.parametrize("text", ['{"a": "é"}\n{"a": 2}', '[{"a": "é"}, {"a": 2}]'])
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (b"", "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_encodings_with_and_without_a_mark(tmp_path: Path, text: str, mark: bytes, encoding: str) -> None:
    found = read(tmp_path / "x", mark + text.encode(encoding))
    assert values(found) == [(1, {"a": "é"}), (2, {"a": 2})]


def test_files_joined_with_their_marks(tmp_path: Path) -> None:
    one = codecs.BOM_UTF8 + b'{"a": 1}\n'
    assert values(read(tmp_path / "x", one + one)) == [(1, {"a": 1}), (2, {"a": 1})]


def test_a_bad_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1}',
        b"{bad",
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a": 1},',
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"a": 7}',
    ]
    found = read(tmp_path / "x", b"\n".join(lines))
    assert [(one.number, one.value) for one in found if one.fault is None] == [(1, {"a": 1}), (7, {"a": 7})]
    faults = {one.number: one.fault or "" for one in found if one.fault is not None}
    assert list(faults) == [2, 3, 4, 5, 6]
    assert "not JSON" in faults[2]
    assert "UTF-8" in faults[3]
    assert "nested too deeply" in faults[4]
    assert all(one.unit == "line" for one in found)


def test_a_first_line_that_is_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    found = read(tmp_path / "x", '{"a": \n{"a": 2}\n{"a": 3}')
    assert [(one.number, one.value) for one in found if one.fault is None] == [(2, {"a": 2}), (3, {"a": 3})]
    assert found[0].fault is not None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'[{"a": 1}, {"a": ]', "nothing after it can be read"),
        (b'[{"a": 1} {"a": 2}]', "no comma follows"),
        (b'[{"a": 1}', "the file ends here"),
        (b'[{"a": 1},', "nothing after it can be read"),
        (b'[{"a": 1}, ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_array_is_read_up_to_the_damage(tmp_path: Path, text: bytes, reason: str) -> None:
    found = read(tmp_path / "x", text)
    assert found[0].value == {"a": 1}
    assert len(found) == 2
    assert found[1].number == 2
    assert reason in (found[1].fault or "")


def test_an_array_names_the_record_that_is_not_utf8(tmp_path: Path) -> None:
    found = read(tmp_path / "x", b'[{"a": "\xff"}, {"a": 2}]')
    assert [one.fault for one in found] == ["not valid UTF-8", None]


def test_one_huge_line(tmp_path: Path) -> None:
    text = "x" * 5_000_000
    assert values(read(tmp_path / "x", json.dumps({"a": text}))) == [(1, {"a": text})]


def test_parquet_rows(tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    rows = [{"a": ["x", None], "b": {"c": 1, "d": None}, "e": b"text"}, {"a": None, "b": None, "e": None}]
    path = tmp_path / "tasks.jsonl"  # the name says nothing
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    found = list(read_objects(path))
    assert [one.value for one in found] == [
        {"a": ["x", None], "b": {"c": 1, "d": None}, "e": "text"},
        {"a": None, "b": None, "e": None},
    ]
    assert [(one.unit, one.number, one.table) for one in found] == [("record", 1, True), ("record", 2, True)]


def test_a_damaged_parquet_file_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x"
    path.write_bytes(b"PAR1" + b"nonsense" * 20)
    with pytest.raises(DataError, match="damaged Parquet"):
        list(read_objects(path))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    path = tmp_path / "x"
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="pyarrow is not installed") as caught:
        list(read_objects(path))
    assert caught.value.hint is not None
    assert "bird-env[server]" in caught.value.hint


def test_what_is_no_file_of_tasks_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_objects(tmp_path / "absent")
    with pytest.raises(DataError, match="is a folder"):
        read_objects(tmp_path)
    pointer = tmp_path / "pointer"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(DataError, match="Git LFS pointer"):
        read_objects(pointer)


objects = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none(), max_size=3))


@given(objects=objects, ascii_only=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n"]), array=st.booleans())
def test_what_json_writes_is_read_back(
    scratch: Path, objects: list[dict[str, Any]], ascii_only: bool, end: str, array: bool
) -> None:
    spelt = [json.dumps(one, ensure_ascii=ascii_only) for one in objects]
    text = f"[{f',{end}'.join(spelt)}]" if array else end.join(spelt)
    assert [value for _, value in values(read(scratch, text))] == objects


@given(st.binary(max_size=200) | st.binary(max_size=50).map(lambda tail: codecs.BOM_UTF16_LE + tail))
def test_any_bytes_are_read_or_named(scratch: Path, data: bytes) -> None:
    try:
        found = read(scratch, data)
    except DataError:
        # Whole files are refused for what they are; damage inside a file of text never is.
        known = (PARQUET_MAGIC, LFS_POINTER, *(magic for magic, _, _ in NO_TEXTS))
        assert data.startswith(known) or b"\0" in data or not json.detect_encoding(data).startswith("utf-8")
    else:
        assert all(one.number >= 1 for one in found)


@pytest.mark.parametrize(("magic", "kind", "hint"), NO_TEXTS, ids=lambda value: None)
def test_what_is_often_given_instead_is_named(scratch: Path, magic: bytes, kind: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        read(scratch, magic + b"\0\1\n" * 5_000)
    assert kind in caught.value.detail
    assert caught.value.hint == hint


def test_a_binary_file_is_refused_as_a_whole(scratch: Path) -> None:
    with pytest.raises(DataError, match="binary"):
        read(scratch, b"\x89PNG\r\n\x1a\n" + b"\0\1\2\n" * 5_000)


def test_a_file_that_a_crash_left_with_nul_in_it_is_read_where_it_can_be(scratch: Path) -> None:
    found = read(scratch, b'{"a": 1}\n\0\0\0\n{"a": 2}\n')
    assert [one.value for one in found if one.fault is None] == [{"a": 1}, {"a": 2}]
    assert sum(one.fault is not None for one in found) == 1
