"""Texts of SQL as policies write them: what runs, what fails, what stays, what is shown."""

from __future__ import annotations

import pytest

from bird_snapshots.execution import NAME_CHARACTERS, TOLD_STATEMENTS, Execution
from bird_snapshots.failures import Outcome
from bird_snapshots.limits import Limits
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store
from bird_snapshots.template import Template


@pytest.fixture
def replica(store: Store, template: Template) -> Replica:
    return store.acquire(template.digest)


def message(execution: Execution) -> str:
    assert execution.error is not None
    return execution.error.message


class TestSplitting:
    @pytest.mark.parametrize(
        "text", ["", "  \n\t", ";", " ;; ; ", "-- a comment", "/* a */", "/* open", "\ufeff", ";\ufeff;", "-- a\n;"]
    )
    def test_a_text_of_nothing_has_no_statement(self, replica: Replica, text: str) -> None:
        result = replica.execute(text)
        assert (result.outcome, result.statements, result.error) == (Outcome.OK, [], None)
        assert result.columns == ()
        assert result.rows == []

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT 1;;",
            "SELECT 1;\ufeff",
            "\ufeffSELECT 1",
            "SELECT 1; -- done",
            "SELECT 1 /* x",
            ";;SELECT 1",
            "-- a\nSELECT 1",
        ],
    )
    def test_tails_and_heads_of_nothing_change_nothing(self, replica: Replica, text: str) -> None:
        result = replica.execute(text)
        assert result.rows == [(1,)]
        assert len(result.statements) == 1

    def test_a_trigger_body_is_one_statement(self, replica: Replica) -> None:
        text = "CREATE TRIGGER tg AFTER INSERT ON t BEGIN UPDATE t SET b = 0 WHERE id = new.id; END; SELECT 2;"
        result = replica.execute(text)
        assert [each.sql for each in result.statements] == [text[: text.index("END;") + 4], "SELECT 2;"]
        replica.execute("INSERT INTO t VALUES (1000, 'x', 7)")
        assert replica.execute("SELECT b FROM t WHERE id = 1000").rows == [(0,)]

    def test_semicolons_in_literals_names_and_comments(self, replica: Replica) -> None:
        result = replica.execute("SELECT 'a;b' AS \"c;d\" /* e;f */; SELECT [g;h] FROM (SELECT 3 AS [g;h]) -- i;j")
        assert [each.columns for each in result.statements] == [("c;d",), ("g;h",)]
        assert result.rows == [(3,)]

    def test_long_texts_are_split_as_short_ones(self, replica: Replica) -> None:
        inserts = "".join(f"INSERT INTO t(a) VALUES ('{'é;' * (index % 700)}'); -- {index}\n" for index in range(300))
        result = replica.execute(inserts + "SELECT count(*), max(length(a)) FROM t")
        assert result.statements_seen == 301
        assert result.rows == [(400, 2 * 299)]

    def test_of_very_many_statements_the_first_and_the_last_are_told(self, replica: Replica) -> None:
        many = "UPDATE t SET b = 0 WHERE id < 3;" * 250
        result = replica.execute(f"SELECT 5; {many} SELECT 6, 7; {many} SELECT nope; SELECT 8")
        assert result.statements_seen == 503
        assert len(result.statements) == TOLD_STATEMENTS + 1
        assert [each.sql[:6] for each in result.statements] == ["SELECT", *["UPDATE"] * 99, "SELECT"]
        assert result.statements[-1].error is result.error
        assert result.error is not None
        assert result.error.statement_index == 502
        assert (result.columns, result.rows) == (("6", "7"), [(6, 7)]), "the last result, though it is not in the list"
        assert (result.rowcount, result.rows_changed) == (2, 1_000)

    def test_the_list_is_whole_up_to_its_length(self, replica: Replica) -> None:
        for count in (0, 1, 99, 100, 101, 102):
            result = replica.execute("SELECT 1;" * count)
            assert result.statements_seen == count
            assert len(result.statements) == min(count, TOLD_STATEMENTS + 1)
            assert sum(bool(each.rows) for each in result.statements) == min(count, 1)

    @pytest.mark.parametrize(
        ("text", "sets"),
        [
            ("SELECT 1", False),
            ("PRAGMA foreign_keys = ON", True),
            ("SELECT 1;" * 200 + "pragma /* x */ foreign_keys = ON; SELECT 2", True),
            ("PRAGMA foreign_keys", False),
            ("PRAGMA table_info(t)", False),
            ("PRAGMA user_version = 7", False),
            ("PRAGMA synchronous = FULL", False),
            ("PRAGMA foreign_keys = ON; SELECT nope", True),
        ],
    )
    def test_pragmas_that_last_are_told(self, replica: Replica, text: str, sets: bool) -> None:
        assert replica.execute(text).pragma_set is sets

    @pytest.mark.parametrize("size", [4_080, 4_090, 4_095, 4_096, 4_097, 4_100, 40_000, 300_000])
    def test_statements_around_the_size_of_a_window(self, replica: Replica, size: int) -> None:
        text = "SELECT '" + "x" * (size - 9) + "'"
        result = replica.execute(f"{text}; SELECT 5; {text}")
        assert [len(each.sql) for each in result.statements] == [size + 1, 9, size]
        assert result.rows == [("x" * (size - 9),)]

    def test_a_statement_cut_by_a_window_is_not_taken_for_a_shorter_one(self, replica: Replica) -> None:
        text = "SELECT 1" + " " * 4_088 + "+ 1"  # the first 4,096 characters are a statement of their own
        assert replica.execute(text).rows == [(2,)]
        assert replica.execute(text + ";").rows == [(2,)]
        comment = "SELECT 1 --" + "c" * 5_000 + "\n+ 2; SELECT 7"
        assert [each.rows_seen for each in replica.execute(comment).statements] == [1, 1]

    def test_the_index_and_place_of_an_error(self, replica: Replica) -> None:
        result = replica.execute("SELECT 'é'; SELECT 'ü', nope FROM t; SELECT 3")
        assert message(result) == "no such column: nope"
        assert result.error is not None
        assert (result.error.statement_index, result.error.sqlite_code) == (1, "SQLITE_ERROR")
        assert result.error.offset == "SELECT 'é'; SELECT 'ü', nope".index("nope")
        assert result.rows == [("é",)], "the last result before the error is still shown"
        assert len(result.statements) == 2

    def test_a_fence_is_named_by_the_hint(self, replica: Replica) -> None:
        result = replica.execute("```sql\nSELECT 1\n```")
        assert message(result).startswith("near ")
        assert result.error is not None
        assert result.error.hint is not None
        assert "fence" in result.error.hint


class TestTextsThatAreNone:
    @pytest.mark.parametrize("text", ["SELECT 1\0", "\0", "SELECT '\ud800'", "SELECT 1; SELECT '\udfff'"])
    def test_nothing_of_them_runs(self, replica: Replica, text: str) -> None:
        result = replica.execute("INSERT INTO t(a) VALUES ('x'); " + text)
        assert result.outcome is Outcome.SQL_ERROR
        assert [each.outcome for each in result.statements] == [Outcome.SQL_ERROR]
        assert result.error is not None
        assert result.error.offset is not None
        assert ("INSERT INTO t(a) VALUES ('x'); " + text)[result.error.offset] in "\0\ud800\udfff"
        assert len(result.digest) == 64
        assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("SELECT * FROM t WHERE id = ?", "?"),
            ("SELECT :name, $d, @at", ":name"),
            ("SELECT ?7", "?7"),
            ("SELECT 1; SELECT :a; SELECT 2", ":a"),
        ],
    )
    def test_parameters_are_named(self, replica: Replica, text: str, named: str) -> None:
        result = replica.execute(text)
        assert result.outcome is Outcome.SQL_ERROR
        assert named in message(result)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (" UNION ALL ".join(["SELECT 1"] * 501), "too many terms in compound SELECT"),
            ("SELECT 1 WHERE " + " OR ".join(["1=2"] * 1_100), "Expression tree is too large"),
            ("SELECT " + ",".join(["1"] * 2_001), "too many columns in result set"),
            ("SELECT ?40000", "variable number must be between"),
            ("SELECT max(" + ",".join(["1"] * 200) + ")", "too many arguments on function max"),
            ("SELECT " + "(" * 3_000 + "1" + ")" * 3_000, "recursion limit"),
            ("SELECT sum(x) FROM (SELECT 9223372036854775807 x UNION ALL SELECT 1)", "integer overflow"),
            ("SELECT abs(-9223372036854775808)", "integer overflow"),
            ("SELECT 'test' LIKE replace(hex(zeroblob(67500)), '0', 'a')", "LIKE or GLOB pattern too complex"),
            ("INSERT INTO t(id) VALUES ('x')", "datatype mismatch"),
            ("COMMIT", "cannot commit - no transaction is active"),
        ],
    )
    def test_what_is_too_much_for_sqlite_is_an_error_in_its_words(
        self, replica: Replica, text: str, words: str
    ) -> None:
        result = replica.execute(text)
        assert result.outcome is Outcome.SQL_ERROR
        assert words.lower() in message(result).lower()

    def test_two_thousand_columns_are_fine(self, replica: Replica) -> None:
        result = replica.execute("SELECT " + ",".join(str(index) for index in range(2_000)))
        assert result.rows == [tuple(range(2_000))]


class TestResults:
    def test_columns_of_a_result_without_rows(self, replica: Replica) -> None:
        result = replica.execute("SELECT a, b AS c FROM t WHERE 0")
        assert (result.columns, result.rows, result.rows_seen, result.truncated) == (("a", "c"), [], 0, False)

    def test_rows_beyond_the_cap_are_counted_and_hashed(self, replica: Replica) -> None:
        capped = replica.execute("SELECT id FROM t", Limits(rows=3))
        assert (capped.rows, capped.rows_seen, capped.truncated) == ([(1,), (2,), (3,)], 100, True)
        assert capped.digest == replica.execute("SELECT id FROM t").digest
        assert capped.digest != replica.execute("SELECT id FROM t WHERE id < 100", Limits(rows=3)).digest

    def test_bytes_cap_a_result_at_a_whole_row(self, replica: Replica) -> None:
        result = replica.execute("SELECT 1, 'xxxxx' FROM t", Limits(result_bytes=40))
        assert (len(result.rows), result.rows_seen, result.truncated) == (2, 100, True)
        assert replica.execute("SELECT zeroblob(100)", Limits(result_bytes=99)).rows == []

    def test_long_names_of_columns_are_cut_and_say_so(self, replica: Replica) -> None:
        name = "n" * 100_000
        replica.execute(f'CREATE VIEW v AS SELECT a AS "{name}" FROM t')
        result = replica.execute("SELECT * FROM v;" * 50)
        assert result.columns == ("n" * NAME_CHARACTERS + "… [99000 more characters]",)
        assert {each.columns for each in result.statements} == {result.columns}
        other = replica.execute(f'SELECT a AS "{name}x" FROM t')
        assert other.digest != result.digest, "the whole name is hashed"

    def test_names_that_are_too_long_together_are_a_limit(self, replica: Replica) -> None:
        def named(count: int, length: int, letter: str = "n") -> Execution:
            columns = ", ".join(f'a AS "{index:04}{letter * (length - 4)}"' for index in range(count))
            return replica.execute(f"DELETE FROM t WHERE id = 1; SELECT {columns} FROM t")

        assert named(200, 1_000).outcome is Outcome.OK
        for result in (named(201, 1_000), named(150, 1_000, "é"), named(2_000, 150)):
            assert result.outcome is Outcome.LIMIT
            assert "names" in message(result)
            assert result.error is not None
            assert result.error.hint is not None
            assert result.error.statement_index == 1
            assert (result.columns, result.rows_seen) == ((), 0)

    def test_zero_rows_kept_is_a_cap_too(self, replica: Replica) -> None:
        result = replica.execute("SELECT 1", Limits(rows=0))
        assert (result.rows, result.rows_seen, result.truncated) == ([], 1, True)

    def test_only_the_last_result_keeps_its_rows(self, replica: Replica) -> None:
        result = replica.execute("SELECT 1; SELECT 2; UPDATE t SET b = 0 WHERE id < 3")
        assert [each.rows for each in result.statements] == [[], [(2,)], []]
        assert [each.rows_seen for each in result.statements] == [1, 1, 0]
        assert (result.columns, result.rows, result.rowcount) == (("2",), [(2,)], 2)

    def test_the_row_count_is_the_statements_own(self, replica: Replica) -> None:
        texts = {
            "UPDATE t SET b = b WHERE id <= 7": 7,
            "DELETE FROM t WHERE id > 1000": 0,
            "CREATE TABLE made AS SELECT * FROM t": None,
            "SELECT 1": None,
            "WITH x AS (SELECT 1 AS i) DELETE FROM t WHERE id IN (SELECT i FROM x)": 1,
            "INSERT INTO t(a) SELECT a FROM t LIMIT 5": 5,
            "REPLACE INTO t(id, a) VALUES (2, 'r')": 1,
            "INSERT INTO t(id) VALUES (2) ON CONFLICT DO UPDATE SET a = 'u'": 1,
            "ALTER TABLE made ADD COLUMN z": None,
            "DROP TABLE made": None,
            "BEGIN": None,
            "ROLLBACK": None,
            "PRAGMA user_version = 3": None,
            "VACUUM": None,
            "ANALYZE": None,
        }
        for text, expected in texts.items():
            result = replica.execute(text)
            assert (result.outcome, result.rowcount) == (Outcome.OK, expected), text

    def test_changes_of_triggers_are_not_counted(self, replica: Replica) -> None:
        replica.execute("CREATE TRIGGER x AFTER UPDATE ON t BEGIN INSERT INTO parent(name) VALUES ('new'); END")
        assert replica.execute("UPDATE t SET a = 'z' WHERE id < 4").rowcount == 3
        assert replica.execute("SELECT count(*) FROM parent").rows == [(5,)]

    def test_a_failed_change_counts_what_it_kept(self, replica: Replica) -> None:
        failed = replica.execute("INSERT OR FAIL INTO parent VALUES (8, 'eight'), (1, 'again'), (9, 'nine')")
        assert (failed.outcome, failed.rowcount) == (Outcome.SQL_ERROR, 1)
        assert replica.execute("INSERT INTO parent VALUES (7, 'seven'), (1, 'again')").rowcount == 0

    def test_returning_happens_once_and_is_read_to_its_end(self, replica: Replica) -> None:
        result = replica.execute("UPDATE t SET b = b + 1 RETURNING id, b", Limits(rows=1))
        assert (result.rows, result.rows_seen, result.rowcount) == ([(1, 11)], 100, 100)
        assert replica.execute("SELECT sum(b) FROM t").rows == [(50_600,)]
        assert not result.in_transaction

    def test_a_capped_read_leaves_no_lock(self, replica: Replica) -> None:
        replica.execute("SELECT * FROM t", Limits(rows=1))
        assert replica.execute("BEGIN; DROP TABLE t; COMMIT").outcome is Outcome.OK

    def test_readonly_is_sqlites_own_word(self, replica: Replica) -> None:
        result = replica.execute(
            "WITH x AS (SELECT 1) DELETE FROM t; WITH x AS (SELECT 1) SELECT * FROM x; PRAGMA user_version"
        )
        assert [each.readonly for each in result.statements] == [False, True, True]

    def test_explain_and_double_quoted_strings_work_as_in_the_shell(self, replica: Replica) -> None:
        assert replica.execute("EXPLAIN QUERY PLAN SELECT * FROM t WHERE id = 1").rows_seen == 1
        assert replica.execute('SELECT "no such column"').rows == [("no such column",)]

    def test_a_failing_statement_shows_no_rows(self, replica: Replica) -> None:
        text = "SELECT abs(CASE WHEN id < 50 THEN id ELSE -9223372036854775808 END) FROM t"
        first, second = replica.execute(text), replica.execute(text, Limits(rows=2))
        assert (first.outcome, first.rows, first.rows_seen, first.columns) == (Outcome.SQL_ERROR, [], 0, ())
        assert first.digest == second.digest


class TestTransactions:
    def test_autocommit_as_in_the_shell(self, replica: Replica) -> None:
        for text in ("INSERT INTO t(a) VALUES ('z')", "BEGIN", "UPDATE t SET a = 'q'", "ROLLBACK", "VACUUM"):
            assert replica.execute(text).outcome is Outcome.OK, text
        assert replica.execute("PRAGMA foreign_keys = ON; PRAGMA foreign_keys").rows == [(1,)]
        assert replica.execute("SELECT count(*), sum(a = 'q') FROM t").rows == [(101, 0)]

    def test_a_text_stops_at_its_first_error_and_keeps_what_was_committed(self, replica: Replica) -> None:
        result = replica.execute("INSERT INTO t(a) VALUES ('kept'); INSERT INTO t(id) VALUES (1); DELETE FROM t")
        assert [each.outcome for each in result.statements] == [Outcome.OK, Outcome.SQL_ERROR]
        assert not result.transaction_rolled_back
        assert replica.execute("SELECT count(*) FROM t").rows == [(101,)]

    def test_an_error_in_a_transaction_leaves_it_open(self, replica: Replica) -> None:
        result = replica.execute("BEGIN; UPDATE t SET a = 'w'; INSERT INTO t(id) VALUES (1)")
        assert (result.in_transaction, result.transaction_rolled_back) == (True, False)
        assert replica.execute("COMMIT; SELECT sum(a = 'w') FROM t").rows == [(100,)]

    def test_or_rollback_ends_the_transaction_and_says_so(self, replica: Replica) -> None:
        result = replica.execute("BEGIN; UPDATE t SET a = 'work'; INSERT OR ROLLBACK INTO t(id) VALUES (1); COMMIT")
        assert (result.in_transaction, result.transaction_rolled_back) == (False, True)
        assert replica.execute("SELECT sum(a = 'work') FROM t").rows == [(0,)]
        replica.execute("BEGIN")
        later = replica.execute("INSERT OR ROLLBACK INTO t(id) VALUES (1)")
        assert (later.in_transaction, later.transaction_rolled_back) == (False, True)

    def test_a_commit_that_fails_stays_open(self, replica: Replica) -> None:
        replica.execute("PRAGMA foreign_keys = ON")
        result = replica.execute("BEGIN; INSERT INTO child VALUES (9, 99); COMMIT")
        assert (result.in_transaction, result.transaction_rolled_back) == (True, False)
        assert result.error is not None
        assert result.error.sqlite_code == "SQLITE_CONSTRAINT_FOREIGNKEY"
        assert replica.execute("DELETE FROM child WHERE id = 9; COMMIT").in_transaction is False

    def test_a_savepoint_opens_a_transaction(self, replica: Replica) -> None:
        assert replica.execute("SAVEPOINT s; UPDATE t SET b = 5").in_transaction
        assert not replica.execute("RELEASE s").in_transaction

    def test_a_timeout_in_a_transaction_takes_it_away(self, replica: Replica) -> None:
        endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"
        runaway = f"INSERT INTO t(a) {endless} SELECT n FROM c WHERE n < 0"
        result = replica.execute(f"BEGIN; UPDATE t SET a = 'w'; {runaway}; SELECT 1", Limits(cpu_s=0.05))
        assert (result.outcome, result.in_transaction, result.transaction_rolled_back) == (Outcome.TIMEOUT, False, True)
        assert len(result.statements) == 3
        assert replica.execute("SELECT sum(a = 'w') FROM t").rows == [(0,)]

    def test_temp_objects_pragmas_and_counters_persist_between_calls(self, replica: Replica) -> None:
        replica.execute(
            "CREATE TEMP TABLE scratch AS SELECT 1 AS x; CREATE TEMP VIEW v AS SELECT x + 1 AS y FROM scratch"
        )
        replica.execute("PRAGMA recursive_triggers = ON; INSERT INTO t(id) VALUES (500)")
        assert replica.execute("SELECT x, y, last_insert_rowid() FROM scratch, v").rows == [(1, 2, 500)]
        assert replica.execute("PRAGMA recursive_triggers").rows == [(1,)]


class TestValues:
    def test_types_come_as_they_are(self, replica: Replica) -> None:
        result = replica.execute(
            "SELECT NULL, 9007199254740993, -9223372036854775808, 1.5, 9e999, -9e999,"
            " 'ü', '', x'00ff', x'', 'a' || char(0) || 'b'"
        )
        assert result.rows == [
            (None, 9007199254740993, -(2**63), 1.5, float("inf"), float("-inf"), "ü", "", b"\0\xff", b"", "a\0b")
        ]
        assert [type(value) for value in replica.execute("SELECT 1, 1.0, '1', x'31'").rows[0]] == [
            int,
            float,
            str,
            bytes,
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT CAST(x'5472E96E' AS TEXT), 1",
            "WITH w AS (SELECT CAST(x'5472E96E' AS TEXT)) SELECT *, 1 FROM w",
            "VALUES (CAST(x'5472E96E' AS TEXT), 1)",
            "INSERT INTO t(a, b) VALUES (CAST(x'5472E96E' AS TEXT), 1) RETURNING a, b",
            "UPDATE t SET a = CAST(x'5472E96E' AS TEXT), b = 1 WHERE id = 3 RETURNING a, b",
            "SELECT 2; SELECT CAST(x'5472E96E' AS TEXT), 1; -- and a tail",
        ],
    )
    def test_text_that_is_no_utf8_has_surrogate_escapes(self, replica: Replica, text: str) -> None:
        assert replica.execute(text).rows == [("Tr\udce9n", 1)]

    def test_it_may_stand_anywhere_in_a_result(self, replica: Replica) -> None:
        replica.execute("UPDATE t SET a = CAST(x'ff' || CAST(id AS TEXT) AS TEXT) WHERE id % 3 = 0")
        result = replica.execute("SELECT a FROM t ORDER BY id")
        assert result.rows_seen == 100
        assert result.rows[:4] == [("row 1",), ("row 2",), ("\udcff3",), ("row 4",)]
        assert replica.execute("SELECT sum(length(CAST(a AS BLOB))) FROM t WHERE id IN (3, 6)").rows == [(4,)]
        assert replica.execute("SELECT a FROM t ORDER BY id", Limits(rows=0)).digest == result.digest

    def test_returning_it_writes_once(self, replica: Replica) -> None:
        result = replica.execute("INSERT INTO t(a) SELECT CAST(x'ff' AS TEXT) FROM t LIMIT 3 RETURNING a")
        assert (result.rows, result.rowcount) == ([("\udcff",)] * 3, 3)
        assert replica.execute("SELECT count(*) FROM t").rows == [(103,)]

    def test_pragma_and_explain_too(self, replica: Replica) -> None:
        replica.execute("CREATE TABLE odd(x DEFAULT 'y')")
        assert replica.execute("PRAGMA table_info(odd)").rows == [(0, "x", "", 0, "'y'", 0)]
        assert replica.execute("EXPLAIN SELECT CAST(x'ff' AS TEXT)").outcome is Outcome.OK

    def test_errors_raised_with_it_are_text(self, replica: Replica) -> None:
        replica.execute("CREATE TRIGGER r BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, CAST(x'ff41' AS TEXT)); END")
        result = replica.execute("INSERT INTO t(a) VALUES (1)")
        assert message(result).endswith("A")
        message(result).encode()


class TestHashes:
    def test_same_result_same_hash(self, replica: Replica) -> None:
        assert replica.execute("SELECT 1 AS x").digest == replica.execute("SELECT 2; SELECT 1 AS x").digest
        others = {
            replica.execute(text).digest
            for text in (
                "SELECT 1 AS y",
                "SELECT 2 AS x",
                "SELECT '1' AS x",
                "SELECT 1.0 AS x",
                "SELECT 1 AS x, 1 AS x",
                "SELECT x'31' AS x",
                "SELECT NULL AS x",
                "SELECT 1 AS x WHERE 0",
                "SELECT 1 AS x UNION ALL SELECT 1",
                "",
            )
        }
        assert len(others) == 10

    def test_the_hash_of_a_failure_is_its_message(self, replica: Replica) -> None:
        assert replica.execute("SELEC").digest == replica.execute("SELEC").digest
        assert replica.execute("SELEC").digest != replica.execute("SELET").digest
