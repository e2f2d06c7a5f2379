"""A schema within its budget: never longer, what matters first, and nothing left out without a word."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from bird_server.schema_text import full_text, within_budget
from bird_snapshots.schema import SchemaObject


def table(name: str, width: int = 10, *, sql: str | None = "", kind: str = "table") -> SchemaObject:
    made = f"CREATE TABLE {name}({'c' * width})" if sql == "" else sql
    return SchemaObject(name=name, kind=kind, sql=made, columns=())


def test_everything_in_the_order_of_the_file() -> None:
    objects = [table("b", 1), table("a", 1), table("v", sql="CREATE VIEW v AS SELECT 1;\n", kind="view")]
    expected = "CREATE TABLE b(c);\n\nCREATE TABLE a(c);\n\nCREATE VIEW v AS SELECT 1;"
    assert full_text(objects) == expected
    assert within_budget(objects, len(expected)).text == expected
    assert within_budget(objects, len(expected)).truncated_chars == 0


def test_what_a_virtual_table_keeps_for_itself_is_no_part_of_it() -> None:
    objects = [
        table("docs", sql="CREATE VIRTUAL TABLE docs USING fts5(body)", kind="virtual"),
        table("docs_data", kind="shadow"),
        table("auto", sql=None),
    ]
    assert full_text(objects) == "CREATE VIRTUAL TABLE docs USING fts5(body);"
    assert full_text([]) == ""
    assert within_budget([], 200).text == ""


def test_tables_that_the_issue_names_come_first_and_keep_the_order_of_the_file() -> None:
    objects = [table(name, 60) for name in ("customers", "orders", "Order Details", "items", "notes")]
    found = within_budget(objects, 360, ['select * from ITEMS join "order details" on 1', "orders are wrong"])
    assert re.findall(r"CREATE TABLE ([\w ]+)\(", found.text) == ["orders", "Order Details", "items"]
    assert found.text.endswith("\n\n-- 2 more, not shown: customers, notes")
    assert len(found.text) <= 360


def test_a_name_inside_another_word_is_not_named() -> None:
    objects = [table("order", 80), table("t", 80), table("x.y", 80)]
    found = within_budget(objects, 200, ["reordered, orders, at; and x.y"])
    assert found.text.startswith("CREATE TABLE x.y(")
    assert found.text.endswith("-- 2 more, not shown: order, t")


def test_a_table_too_large_for_the_budget_gives_its_place_to_others() -> None:
    objects = [table("huge", 5_000), table("small", 20)]
    found = within_budget(objects, 200, ["SELECT * FROM huge"])
    assert found.text == f"{full_text(objects[1:])}\n\n-- 1 more, not shown: huge"
    assert found.truncated_chars == len(full_text(objects)) - len(full_text(objects[1:]))


def test_where_even_the_names_are_too_many_they_are_counted() -> None:
    objects = [table(f"table_number_{number}") for number in range(1_000)]
    found = within_budget(objects, 400)
    note = found.text.splitlines()[-1]
    shown = re.findall(r"CREATE TABLE (\w+)", found.text)
    counted = re.fullmatch(r"-- (\d+) more, not shown: (.*), …", note)
    assert counted is not None
    assert int(counted.group(1)) == 1_000 - len(shown)
    named = counted.group(2).split(", ")
    assert named == [f"table_number_{number}" for number in range(len(shown), len(shown) + len(named))]


def test_a_name_stays_within_the_line_of_its_comment() -> None:
    objects = [table("two\nlines", 300), table("a", 10)]
    assert within_budget(objects, 200).text.splitlines()[-1] == "-- 1 more, not shown: two lines"


NAMES = st.text(st.sampled_from("abcAB_ \n\"'é-1"), min_size=1, max_size=30).filter(lambda name: bool(name.strip()))


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.tuples(NAMES, st.integers(0, 400)), max_size=40, unique_by=lambda each: each[0]),
    chars=st.integers(200, 2_000),
    mentioned=st.lists(NAMES, max_size=4),
)
def test_it_is_never_longer_than_the_budget_and_accounts_for_everything(
    sizes: list[tuple[str, int]], chars: int, mentioned: list[str]
) -> None:
    objects = [table(name, width) for name, width in sizes]
    whole = full_text(objects)
    found = within_budget(objects, chars, mentioned)
    assert len(found.text) <= chars
    if len(whole) <= chars:
        assert (found.text, found.truncated_chars) == (whole, 0)
        return
    body, _, note = found.text.rpartition("\n\n-- ") if not found.text.startswith("-- ") else ("", "", found.text[3:])
    assert found.truncated_chars == len(whole) - len(body)
    counted = re.fullmatch(r"(\d+) more, not shown(?:: (.*))?", note)
    assert counted is not None
    missing = int(counted.group(1))
    left_out = list(sizes)
    for each in objects:  # what is shown is shown whole, in order
        statement = full_text([each])
        if body == statement or body.startswith(f"{statement}\n\n"):
            body = body[len(statement) :].removeprefix("\n\n")
            left_out.remove((each.name, len(each.sql or "") - len(f"CREATE TABLE {each.name}()")))
    assert body == ""
    assert missing == len(left_out)
    names = [" ".join(name.split()) for name, _ in left_out]
    listed = counted.group(2) or ""
    if not listed.endswith(", …"):
        assert listed == (", ".join(names) if listed else "")
        assert listed or len(f"-- {missing} more, not shown: {', '.join(names)}") > chars // 4
    else:
        assert ", ".join(names).startswith(listed.removesuffix(", …"))
