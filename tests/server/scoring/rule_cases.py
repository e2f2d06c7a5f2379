"""Cases of our own for the official rules, each a consequence of the specification that some line of code decides.

`rule` is a case judged by the default test, `checked` one with a test function of this body. `SUCCESS`, `WRONG` (a
failed test), `ERROR` and `TIMEOUT` name the usual verdicts. What tests may do is in `rule_cases_tests`.
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

SCRIPT = """
CREATE TABLE book(id INTEGER PRIMARY KEY, title TEXT NOT NULL, price REAL, year TEXT);
INSERT INTO book VALUES (1,'Ash',2.675,'2001'),(2,'Birch',10.125,'2002'),(3,'Cedar',NULL,'2002'),(4,'Ash',7.0,NULL);
CREATE TABLE loan(book_id INTEGER REFERENCES book(id) ON DELETE CASCADE, who TEXT, CHECK(who <> ''));
INSERT INTO loan VALUES (1,'p'),(1,'p'),(2,'q');
CREATE TABLE nobody(a INTEGER);
CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT);
INSERT INTO note VALUES (1,'a--b'),(2,'x/*y*/z'),(3,'so distinct a word'),(4,'ROUND(1.5)');
"""

#: Numbers from 1 to 10,500, more than the official cap of 10,000 rows.
COUNT = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<10500)"

NO_ERRORS: dict[str, Any] = {
    "failed_tests": [],
    "execution_error": False,
    "timeout_error": False,
    "assertion_error": False,
    "issue_sql_passed_unexpectedly": False,
}
SUCCESS: dict[str, Any] = {"status": "success", "passed": 1, "total": 0, **NO_ERRORS}
WRONG: dict[str, Any] = {
    **SUCCESS,
    "status": "failed",
    "passed": 0,
    "failed_tests": ["test_1"],
    "assertion_error": True,
}
ERROR: dict[str, Any] = {**SUCCESS, "status": "failed", "passed": 0, "execution_error": True}
TIMEOUT: dict[str, Any] = {**SUCCESS, "status": "failed", "passed": 0, "timeout_error": True}
#: The record of an evaluation that brought no verdict of its own.
NO_VERDICT: dict[str, Any] = {**ERROR, "issue_sql_passed_unexpectedly": None}


class RuleCase(NamedTuple):
    name: str
    record: dict[str, Any]
    pred_sqls: Any
    expected: dict[str, Any]
    mode: str = "pred"


def T(body: str, signature: str = "pred_sqls, sol_sqls, db_path, conn, conditions") -> str:
    return f"def test_case({signature}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"


def of_tests(expected: dict[str, Any], total: int) -> dict[str, Any]:
    """As for a task with tests of its own, where `total` counts them."""
    return {**expected, "total": total}


def rule(name: str, pred: Any, expected: dict[str, Any], sol: Any = ("SELECT 1",), **record: Any) -> RuleCase:
    mode = record.pop("mode", "pred")
    sol = list(sol) if isinstance(sol, tuple) else sol
    return RuleCase(name, {"db_id": "lib", "preprocess_sql": [], "sol_sql": sol, **record}, pred, expected, mode)


def checked(
    name: str, body: str, expected: dict[str, Any] = SUCCESS, pred: Any = ("SELECT 1",), **more: Any
) -> RuleCase:
    pred = list(pred) if isinstance(pred, tuple) else pred
    return rule(name, pred, of_tests(expected, 1), test_cases=[T(body)], **more)


COMPARISON = [
    rule("equal", ["SELECT title FROM book"], SUCCESS, ("SELECT title FROM book ORDER BY 1 DESC",)),
    rule(
        "multiplicity ignored",
        ["SELECT DISTINCT(who) FROM loan WHERE book_id=1"],
        SUCCESS,
        ("SELECT who FROM loan WHERE book_id=1",),
    ),
    rule("integer equals real", ["SELECT 7"], SUCCESS, ("SELECT price FROM book WHERE id=4",)),
    rule("text is no number", ["SELECT '7'"], WRONG, ("SELECT 7",)),
    rule("minus zero", ["SELECT -0.0"], SUCCESS, ("SELECT 0",)),
    rule("infinity", ["SELECT 9e999"], SUCCESS, ("SELECT 1e999",)),
    rule("small negatives round to zero", ["SELECT -0.004"], SUCCESS, ("SELECT 0.0",)),
    rule("beyond 64 bits is a real", ["SELECT 9223372036854775808"], SUCCESS, ("SELECT 9223372036854775807 + 1.0",)),
    rule("empty gold", ["SELECT 1"], WRONG, ("SELECT a FROM nobody",)),
    rule("ddl has no rows", ["CREATE TABLE z(a)"], WRONG, ("CREATE TABLE y(a)",)),
    rule(
        "order counts",
        ["SELECT id FROM book ORDER BY id DESC"],
        WRONG,
        ("SELECT id FROM book ORDER BY id",),
        conditions={"order": True},
    ),
    rule(
        "order given as one",
        ["SELECT id FROM book ORDER BY id DESC"],
        WRONG,
        ("SELECT id FROM book ORDER BY id",),
        conditions={"order": 1},
    ),
    rule(
        "order given as nothing",
        ["SELECT id FROM book ORDER BY id DESC"],
        SUCCESS,
        ("SELECT id FROM book",),
        conditions={"order": 0},
    ),
    rule(
        "order: multiplicity counts", ["SELECT 1 UNION ALL SELECT 1"], WRONG, ("SELECT 1",), conditions={"order": True}
    ),
    rule("conditions as a number", ["SELECT 1"], WRONG, conditions=5),
]

TEXTS = [
    rule("comment in a literal, then a line end", ["SELECT id FROM note WHERE body='a--b'\n"], WRONG),
    rule("the submitted text is not trimmed first", ["SELECT id FROM note WHERE body='a--b'"], SUCCESS),
    rule("CR ends a line comment", ["SELECT 1 -- one\r+ 1"], SUCCESS, ("SELECT 1 + 1",)),
    rule("CRLF ends a line comment", ["SELECT 1 -- one\r\n+ 1"], SUCCESS, ("SELECT 2",)),
    rule("nested block comment", ["SELECT /* a /* b */ 1"], SUCCESS),
    rule("dashes in a block comment", ["SELECT /* -- */ 1"], SUCCESS),
    rule("block comment over lines", ["SELECT /* a\nb */ 1"], SUCCESS),
    rule("blank lines with blanks in them", ["SELECT 'a\n \t\nb'"], SUCCESS, ("SELECT 'a' || char(10) || 'b'",)),
    rule("tokens glued by a comment's removal", ["SELECT/**/1"], WRONG),
    rule("DISTINCT in any case", ["SELECT DiStInCt x FROM (SELECT 1 x UNION ALL SELECT 1) LIMIT 2"], SUCCESS),
    rule("COUNT( DISTINCT loses the word", ["SELECT COUNT( DISTINCT book_id) FROM loan"], SUCCESS, ("SELECT 3",)),
    rule("COUNT(DISTINCT keeps it", ["SELECT COUNT(DISTINCT book_id) FROM loan"], SUCCESS, ("SELECT 2",)),
    rule("IS NOT DISTINCT FROM breaks", ["SELECT 1 WHERE 1 IS NOT DISTINCT FROM 1"], WRONG),
    rule("ROUND of a sum loses its brackets", ["SELECT ROUND(1+1, 2)*10"], SUCCESS, ("SELECT 11",)),
    rule("ROUND without a closing bracket", ["SELECT 'ROUND(' || 1"], SUCCESS, ("SELECT 'RO' || 'UND(1'",)),
    rule("a name that ends in round", ["WITH ground(c) AS (SELECT 1) SELECT c FROM ground"], WRONG),
    rule("nested calls and commas", ["SELECT ROUND(MAX(1.239, 1), 2)"], SUCCESS, ("SELECT 1.24",)),
    rule("ROUND of a negative stays negative", ["SELECT ROUND(-2.5)"], SUCCESS, ("SELECT -2.5",)),
    rule("round half even", ["SELECT price FROM book WHERE id=2"], SUCCESS, ("SELECT 10.12",)),
    rule("round in binary", ["SELECT price FROM book WHERE id=1"], SUCCESS, ("SELECT 2.67",)),
]

STATEMENTS = [
    rule("two in one text", ["SELECT 1; SELECT 1"], ERROR),
    rule("comment first, then two", ["-- c\nSELECT 1; SELECT 1;"], ERROR),
    rule("the last result counts", ["SELECT 5", "SELECT 1"], SUCCESS),
    rule("a comment last empties it", ["SELECT 1", "-- done"], WRONG),
    rule("a text is one statement", "SELECT 1", SUCCESS),
    rule("split marks are not split", "SELECT 1[split]SELECT 1", ERROR),
    rule("an empty list", [], WRONG),
    rule("a number is empty", 5, WRONG),
    rule("an element that is null", [None], ERROR),
    rule("an element that is a number", [1], ERROR),
    rule("blanks", ["  \n"], WRONG),
    rule("gold that errors", ["SELECT 1"], WRONG, ("SELECT nope",)),
    rule("gold as a text", ["SELECT 1"], SUCCESS, "SELECT 1"),
    rule("gold null", ["SELECT 1"], WRONG, None),
    rule("a view is made twice", ["CREATE VIEW w AS SELECT 1", "SELECT * FROM w"], WRONG),
    rule("a view if not exists", ["CREATE VIEW IF NOT EXISTS w AS SELECT 1 AS a", "SELECT a FROM w"], SUCCESS),
    rule("insert twice by the default test", ["INSERT INTO note VALUES (9,'k')", "SELECT 1"], WRONG),
    rule("delete and answer zero", ["DELETE FROM loan", "SELECT 0"], SUCCESS, ("SELECT COUNT(*) FROM loan",)),
    rule(
        "temp shadow",
        ["CREATE TEMP TABLE IF NOT EXISTS loan AS SELECT 1 x", "SELECT 1"],
        SUCCESS,
        ("SELECT COUNT(*) FROM loan",),
    ),
    rule("returning with a row", ["DELETE FROM loan WHERE book_id=2 RETURNING who"], ERROR),
    checked(
        "returning without a row", "assert pred_query_result == []", pred=("DELETE FROM loan WHERE 0 RETURNING who",)
    ),
    checked(
        "with insert returning",
        "assert pred_query_result == [(9,)]",
        pred=("WITH n AS (SELECT 9 i, 'k' b) INSERT INTO note SELECT i, b FROM n RETURNING id",),
    ),
    checked(
        "with insert is not undone by the next error",
        "assert conn.execute('SELECT count(*) FROM note WHERE id=9').fetchone() == (1,)",
        pred=("WITH n AS (SELECT 9 i) INSERT INTO note SELECT i, 'k' FROM n", "SELECT 1"),
    ),
    rule("commit without begin", ["COMMIT"], ERROR),
    rule("begin and commit", ["BEGIN", "DELETE FROM loan", "COMMIT"], ERROR),
    rule("end of nothing", ["END"], ERROR),
    checked("begin alone", "assert not conn.in_transaction", pred=("BEGIN",)),
    checked(
        "begin immediate, insert",
        "assert conn.execute('SELECT count(*) FROM nobody').fetchone() == (1,)",
        pred=("BEGIN IMMEDIATE", "INSERT INTO nobody VALUES (1)"),
    ),
    rule("savepoint, rollback to", ["SAVEPOINT s", "ROLLBACK TO s"], ERROR),
    checked("vacuum after dml", "assert True", pred=("DELETE FROM loan", "VACUUM")),
    checked("explain returns rows", "assert len(pred_query_result) > 3", pred=("EXPLAIN SELECT 1",)),
    checked("pragma returns rows", "assert pred_query_result == [('wal',)]", pred=("PRAGMA journal_mode",)),
    checked(
        "replace",
        "assert conn.execute('SELECT body FROM note WHERE id=1').fetchone() == ('r',)",
        pred=("REPLACE INTO note VALUES (1,'r')",),
    ),
    checked(
        "an error keeps what went before",
        """
        r, e, t = execute_queries(['DELETE FROM loan', 'SELECT nope'], db_path, conn)
        assert r == [] and e and not t
        assert conn.execute('SELECT count(*) FROM loan').fetchone() == (0,)
        """,
    ),
    checked(
        "attach memory",
        "assert pred_query_result == [(3,)]",
        pred=("ATTACH ':memory:' AS m", "CREATE TABLE m.t AS SELECT 3 a", "SELECT a FROM t"),
    ),
    checked(
        "attach a file of its own",
        "assert pred_query_result == [(3,)]",
        pred=("ATTACH 'side.db' AS s", "CREATE TABLE s.t AS SELECT 3 a", "SELECT a FROM s.t"),
    ),
    checked(
        "vacuum into a file beside", "import os\nassert os.path.exists('copy.db')", pred=("VACUUM INTO 'copy.db'",)
    ),
    checked(
        "foreign keys stay on",
        "assert conn.execute('SELECT count(*) FROM loan').fetchone() == (1,)",
        pred=("PRAGMA foreign_keys=ON", "DELETE FROM book WHERE id=1"),
    ),
    checked(
        "more than 10,000 rows",
        "assert len(pred_query_result) == 10000",
        pred=(f"{COUNT} SELECT n FROM c",),
    ),
    checked(
        "more behind a comment",
        "assert len(pred_query_result) == 10500",
        pred=(f"-- c\n{COUNT} SELECT n FROM c",),
    ),
    checked(
        "more from values", "assert len(pred_query_result) == 10500", pred=("VALUES " + ",".join(["(1)"] * 10500),)
    ),
    rule(
        "an error beyond the cap",
        [f"{COUNT} SELECT abs(CASE n WHEN 10400 THEN -9223372036854775808 ELSE n END) FROM c"],
        ERROR,
    ),
]

ERRORS = [
    rule("a name with timeout in it", ["SELECT timeout_s FROM book"], TIMEOUT),
    rule("timeout in any case", ["SELECT * FROM TimeOuts"], TIMEOUT),
    rule("complex query skipped", ['SELECT "complex query skipped".x'], TIMEOUT),
    rule("locked by name", ["SELECT [database is locked].x"], TIMEOUT),
    rule(
        "timeout in an integrity error", ["CREATE TABLE timeout(a UNIQUE)", "INSERT INTO timeout VALUES (1),(1)"], ERROR
    ),
    rule("a timeout in gold is a wrong answer", ["SELECT 1"], WRONG, ("SELECT timeout_s FROM book",)),
    rule("no such function", ["SELECT nofunction(1)"], ERROR),
    rule("check constraint", ["INSERT INTO loan VALUES (1,'')"], ERROR),
    rule("lone surrogate", ["SELECT '\ud800'"], ERROR),
    rule("NUL", ["SELECT 1\0"], ERROR),
    rule("unbound parameter", ["SELECT :a"], ERROR),
    rule("invalid UTF-8 in a result", ["SELECT CAST(x'fffe' AS TEXT)"], ERROR),
    rule("deep expression", ["SELECT " + "(" * 1200 + "1" + ")" * 1200], ERROR),
]

RECORDS = [
    RuleCase("no sol_sql", {"db_id": "lib", "preprocess_sql": []}, ["SELECT 1"], NO_VERDICT),
    RuleCase(
        "no preprocess_sql",
        {"db_id": "lib", "sol_sql": [], "test_cases": ["a", "b"]},
        ["SELECT 1"],
        of_tests(NO_VERDICT, 2),
    ),
    rule("no pred_sqls", None, of_tests(NO_VERDICT, 1), test_cases=[T("pass")]),
    RuleCase(
        "gold needs no pred_sqls",
        {"db_id": "lib", "preprocess_sql": None, "sol_sql": "SELECT 1"},
        None,
        SUCCESS,
        "gold",
    ),
    rule("test_cases null", ["SELECT 1"], NO_VERDICT, test_cases=None),
    rule("test_cases a number", ["SELECT 1"], NO_VERDICT, test_cases=3),
    rule("test_cases an empty text", ["SELECT 1"], SUCCESS, test_cases=""),
    rule("test_cases an object: its keys are sources", ["SELECT 1"], of_tests(SUCCESS, 1), test_cases={T("pass"): 1}),
    rule(
        "test_cases a text", ["SELECT 1"], {**of_tests(WRONG, 2), "failed_tests": ["test_1", "test_2"]}, test_cases="ab"
    ),
    rule("a test that is a number", ["SELECT 1"], of_tests(WRONG, 1), test_cases=[1]),
    rule("preprocess as an object is nothing", ["SELECT 1"], SUCCESS, preprocess_sql={"a": "DROP TABLE book"}),
    rule("issue null", ["SELECT 1"], SUCCESS, issue_sql=None),
    rule("clean_up as a text", ["SELECT 1"], SUCCESS, clean_up_sql="DROP TABLE loan"),
    rule("no database is named", ["SELECT 1"], SUCCESS, db_id=None),
    rule("a database with an odd name", ["SELECT 1"], SUCCESS, db_id="../../x?y"),
    rule("tuples as Parquet brings them", ("SELECT 1",), SUCCESS, preprocess_sql=("SELECT 2",), test_cases=()),
]

PHASES = [
    rule(
        "issue passes",
        ["SELECT 1"],
        {**SUCCESS, "status": "failed", "issue_sql_passed_unexpectedly": True},
        issue_sql=["SELECT 1.0"],
    ),
    rule("issue errs", ["SELECT 1"], SUCCESS, issue_sql=["SELECT nope"]),
    rule("issue times out by name", ["SELECT 1"], SUCCESS, issue_sql=["SELECT timeout_x"]),
    rule(
        "issue passes and the prediction fails",
        ["SELECT 2"],
        {**WRONG, "issue_sql_passed_unexpectedly": True},
        issue_sql=["SELECT 1"],
    ),
    rule(
        "issue's changes are gone",
        ["SELECT count(*) FROM loan"],
        SUCCESS,
        ("SELECT 3",),
        issue_sql=["DELETE FROM loan"],
    ),
    rule(
        "preprocess in both phases",
        ["SELECT count(*) FROM k"],
        SUCCESS,
        preprocess_sql=["CREATE TABLE k(a)", "INSERT INTO k VALUES (1)"],
        issue_sql=["SELECT count(*) + 1 FROM k"],
    ),
    rule(
        "preprocess stops at its error",
        ["SELECT count(*) FROM k"],
        SUCCESS,
        ("SELECT 0",),
        preprocess_sql=["CREATE TABLE k(a)", "nonsense", "INSERT INTO k VALUES (1)"],
    ),
    rule(
        "preprocess attaches",
        ["SELECT a FROM m.t"],
        SUCCESS,
        preprocess_sql=["ATTACH ':memory:' AS m", "CREATE TABLE m.t AS SELECT 1 a"],
        issue_sql=["SELECT 2"],
    ),
    rule(
        "preprocess in one text",
        ["SELECT count(*) FROM k"],
        ERROR,
        preprocess_sql="CREATE TABLE k(a); INSERT INTO k VALUES (1)",
    ),
    checked(
        "temp stays for tests",
        "assert conn.execute('SELECT a FROM temp.s').fetchone() == (4,)",
        pred=("CREATE TEMP TABLE s AS SELECT 4 a",),
    ),
    checked(
        "sol_sqls is shared by the phases", "sol_sqls.append('x')\nassert len(sol_sqls) == 3", issue_sql=["SELECT 2"]
    ),
    checked(
        "conditions are shared by the phases",
        "conditions['n'] = conditions.get('n', 0) + 1\nassert conditions['n'] == 2",
        issue_sql=["SELECT 2"],
        conditions={},
    ),
    checked(
        "a module's state is shared by the phases",
        "import json\njson.seen = getattr(json, 'seen', 0) + 1\nassert json.seen == 2",
        issue_sql=["SELECT 2"],
    ),
    checked(
        "the issue's statements are another list",
        "pred_sqls.append('x')\nassert len(pred_sqls) == 2 and pred_sqls[0] != 'SELECT 7'",
        issue_sql=["SELECT 7"],
    ),
    checked("gold mode shares one list", "assert pred_sqls is sol_sqls", mode="gold"),
    checked(
        "phase 1 is on a deleted file",
        """
        import os
        names = os.listdir('/proc/self/fd')
        links = [os.readlink('/proc/self/fd/' + n) for n in names if os.path.islink('/proc/self/fd/' + n)]
        assert sum(x.endswith('.sqlite') for x in links) == 1, links
        """,
        issue_sql=["SELECT 5"],
    ),
    checked(
        "phase 1 can write there",
        "assert conn.execute('SELECT count(*) FROM nobody').fetchone() == (1,)",
        {**SUCCESS, "status": "failed", "issue_sql_passed_unexpectedly": True},
        pred=("INSERT INTO nobody VALUES (1)",),
        issue_sql=["INSERT INTO nobody VALUES (2)"],
    ),
    checked(
        "a second connection sees phase 2, after a phase 1",
        """
        import sqlite3
        other = sqlite3.connect(db_path)
        n = other.execute('SELECT count(*) FROM nobody').fetchone()[0]
        other.close()
        assert n == 1
        """,
        pred=("INSERT INTO nobody VALUES (1)",),
        issue_sql=["INSERT INTO nobody VALUES (2), (3)"],
    ),
]

ALL = [*COMPARISON, *TEXTS, *STATEMENTS, *ERRORS, *RECORDS, *PHASES]
