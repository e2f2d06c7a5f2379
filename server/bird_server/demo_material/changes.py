"""Tasks whose answer changes the database: rows, tables, views, indexes, triggers. Written for this project.

Their tests look at the state that a solution leaves, because the evaluator's default test would run it twice.
"""

from __future__ import annotations

from bird_server.demo_material.task import DemoTask, demo_task

_ALL_VOLUNTEERS_ENROLLED = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    missing = conn.execute(
        "SELECT COUNT(*) FROM member WHERE tier = 'volunteer' "
        "AND member_id NOT IN (SELECT member_id FROM attendance WHERE workshop_id = 24)"
    ).fetchone()[0]
    assert missing == 0, f"{missing} volunteers are not enrolled"
"""

_NOBODY_ELSE_ENROLLED = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    now = conn.execute("SELECT * FROM attendance ORDER BY 1, 2").fetchall()
    before = conn.execute("SELECT * FROM attendance_before").fetchall()
    volunteers = {row[0] for row in conn.execute("SELECT member_id FROM member WHERE tier = 'volunteer'").fetchall()}
    added = set(now) - set(before)
    assert set(before) <= set(now), "somebody lost a seat"
    assert all(workshop == 24 and member in volunteers for workshop, member in added), "others were enrolled"
"""

_LAMPS_COST_MORE = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    rows = conn.execute(
        "SELECT p.category, b.unit_price, p.unit_price FROM part p JOIN price_before b ON b.part_id = p.part_id"
    ).fetchall()
    assert len(rows) == 80, "parts are missing"
    for category, before, after in rows:
        expected = round(before * 1.1, 2) if category == "light" else before
        assert abs(after - expected) < 0.006, f"{category}: {before} became {after}"
"""

_PURGED = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    left = conn.execute(
        "SELECT COUNT(*) FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01'"
    ).fetchone()[0]
    assert left == 0, f"{left} are still there"
    kept = conn.execute(
        "SELECT COUNT(*) FROM repair WHERE NOT (status = 'cancelled' AND opened_on < '2022-01-01')"
    ).fetchone()[0]
    expected = conn.execute("SELECT kept FROM expected_counts").fetchone()[0]
    assert kept == expected, f"{kept} of {expected} others are left"
"""

_NO_ORPHANS = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    orphans = conn.execute(
        "SELECT COUNT(*) FROM repair_part WHERE repair_id NOT IN (SELECT repair_id FROM repair)"
    ).fetchone()[0]
    assert orphans == 0, f"{orphans} lines belong to no repair"
    parts = conn.execute("SELECT COUNT(*) FROM repair_part").fetchone()[0]
    assert parts == conn.execute("SELECT parts FROM expected_counts").fetchone()[0], "other lines are gone"
"""

_WARRANTY = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    columns = {row[1]: row for row in conn.execute("PRAGMA table_info(bike)").fetchall()}
    assert "warranty_months" in columns and columns["warranty_months"][3] == 1, "no such column, or it may be NULL"
    found = set(conn.execute("SELECT kind = 'cargo', warranty_months FROM bike").fetchall())
    assert found == {(0, 12), (1, 24)}, found
"""

_LOGS_REAL_CHANGES = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    old = conn.execute("SELECT unit_price FROM part WHERE part_id = 1").fetchone()[0]
    conn.execute("UPDATE part SET unit_price = unit_price + 1 WHERE part_id = 1")
    conn.execute("UPDATE part SET unit_price = unit_price WHERE part_id = 2")
    rows = conn.execute("SELECT part_id, old_price, new_price FROM price_log").fetchall()
    conn.rollback()
    assert rows == [(1, old, old + 1)], rows
"""

_LOGS_NOTHING_ELSE = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    conn.execute("UPDATE part SET stock = stock + 1, name = name || '!' WHERE part_id = 3")
    rows = conn.execute("SELECT * FROM price_log").fetchall()
    conn.rollback()
    assert rows == [], rows
"""

_ALL_DEBTS = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    paid = dict(conn.execute("SELECT repair_id, SUM(amount) FROM payment GROUP BY repair_id").fetchall())
    totals = conn.execute("SELECT repair_id, total FROM repair_total WHERE status = 'done'").fetchall()
    expected = {repair: round(total - paid.get(repair, 0), 2) for repair, total in totals}
    expected = {repair: due for repair, due in expected.items() if due > 0.005}
    rows = conn.execute("SELECT repair_id, due FROM unpaid_repair").fetchall()
    found = {repair: round(due, 2) for repair, due in rows}
    assert found == expected, f"{len(found)} debts, expected {len(expected)}"
"""

_LOANS = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    import sqlite3
    conn.execute("INSERT INTO tool_loan (member_id, tool, lent_on) VALUES (1, 'torque wrench', '2024-03-01')")
    wrong = [
        "INSERT INTO tool_loan (member_id, tool, lent_on, returned_on) VALUES (1, 'pump', '2024-03-02', '2024-03-01')",
        "INSERT INTO tool_loan (member_id, tool) VALUES (1, 'pump')",
        "INSERT INTO tool_loan (tool, lent_on) VALUES ('pump', '2024-03-02')",
    ]
    for statement in wrong:
        try:
            conn.execute(statement)
        except sqlite3.IntegrityError:
            continue
        raise AssertionError("accepted: " + statement)
    rows = conn.execute("SELECT loan_id, tool FROM tool_loan").fetchall()
    conn.rollback()
    assert rows == [(1, "torque wrench")], rows
    tables = {row[2] for row in conn.execute("PRAGMA foreign_key_list(tool_loan)").fetchall()}
    assert tables == {"member"}, tables
"""

_RESTOCKED = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    rows = conn.execute(
        "SELECT p.part_id = b.part_id, p.reorder_level = b.reorder_level, p.stock - b.stock "
        "FROM part_before b JOIN part p ON p.sku = b.sku WHERE b.sku IN ('BR-001', 'BR-002') ORDER BY b.sku"
    ).fetchall()
    assert rows == [(1, 1, 30), (1, 1, 12)], rows
    new = conn.execute("SELECT name, stock, reorder_level FROM part WHERE sku = 'BE-900'").fetchall()
    assert new == [("brass bell", 8, 5)], new
    assert conn.execute("SELECT COUNT(*) FROM part").fetchone()[0] == 81
"""

_FOUND_BY_BIKE_AND_STATUS = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    query = "EXPLAIN QUERY PLAN SELECT opened_on FROM repair WHERE bike_id = 7 AND status = 'open'"
    plan = " ".join(str(row[3]) for row in conn.execute(query).fetchall())
    assert "SEARCH" in plan and "bike_id=?" in plan and "status=?" in plan, plan
"""

CHANGES: list[DemoTask] = [
    demo_task(
        "coop_manage_enrol",
        "Management",
        "All our volunteers should have a seat in workshop 24. Some of them are enrolled already, and because of that "
        "my insert stops with a UNIQUE error and enrols nobody. Nobody else's seats may change.",
        issue="INSERT INTO attendance (workshop_id, member_id) SELECT 24, member_id FROM member WHERE tier = "
        "'volunteer'",
        gold="INSERT INTO attendance (workshop_id, member_id) SELECT 24, member_id FROM member WHERE tier = "
        "'volunteer' ON CONFLICT DO NOTHING",
        explore=[
            "SELECT COUNT(*) FROM attendance WHERE workshop_id = 24",
            "SELECT tier, COUNT(*) FROM member GROUP BY tier",
        ],
        wrong="INSERT OR IGNORE INTO attendance (workshop_id, member_id) SELECT 24, member_id FROM member",
        broken="INSERT INTO attendence (workshop_id, member_id) SELECT 24, member_id FROM member",
        preprocess=[
            "INSERT OR IGNORE INTO attendance SELECT 24, MIN(member_id) FROM member WHERE tier = 'volunteer'",
            "CREATE TABLE attendance_before AS SELECT * FROM attendance",
        ],
        clean_up=["DROP TABLE attendance_before"],
        tests=[_ALL_VOLUNTEERS_ENROLLED, _NOBODY_ELSE_ENROLLED],
    ),
    demo_task(
        "coop_manage_price_rise",
        "Management",
        "Everything in the category light becomes 10 percent dearer, rounded to the cent. My update runs without an "
        "error and changes no price at all. Other categories stay as they are.",
        issue="UPDATE part SET unit_price = unit_price * (1 + 10 / 100) WHERE category = 'light'",
        gold="UPDATE part SET unit_price = ROUND(unit_price * 1.1, 2) WHERE category = 'light'",
        explore=["SELECT category, COUNT(*), AVG(unit_price) FROM part GROUP BY category"],
        wrong="UPDATE part SET unit_price = ROUND(unit_price * 1.1, 2)",
        broken="UPDATE part unit_price = unit_price * 1.1 WHERE category = 'light'",
        preprocess=["CREATE TABLE price_before AS SELECT part_id, unit_price FROM part"],
        clean_up=["DROP TABLE price_before"],
        tests=[_LAMPS_COST_MORE],
    ),
    demo_task(
        "coop_manage_purge",
        "Management",
        "Please remove the cancelled repairs that were opened before 2022, with the lines in repair_part that belong "
        "to them. With my statement the repairs go, but their lines stay behind.",
        issue="DELETE FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01'",
        gold=[
            "DELETE FROM repair_part WHERE repair_id IN "
            "(SELECT repair_id FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01')",
            "DELETE FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01'",
        ],
        explore=["SELECT COUNT(*) FROM repair WHERE status = 'cancelled'", "PRAGMA foreign_keys"],
        wrong=[
            "DELETE FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01'",
            "DELETE FROM repair_part WHERE repair_id IN "
            "(SELECT repair_id FROM repair WHERE status = 'cancelled' AND opened_on < '2022-01-01')",
        ],
        broken="DELETE repair WHERE status = 'cancelled'",
        preprocess=[
            "CREATE TABLE expected_counts AS SELECT "
            "(SELECT COUNT(*) FROM repair WHERE NOT (status = 'cancelled' AND opened_on < '2022-01-01')) AS kept, "
            "(SELECT COUNT(*) FROM repair_part rp JOIN repair r ON r.repair_id = rp.repair_id "
            "WHERE NOT (r.status = 'cancelled' AND r.opened_on < '2022-01-01')) AS parts"
        ],
        clean_up=["DROP TABLE expected_counts"],
        tests=[_PURGED, _NO_ORPHANS],
    ),
    demo_task(
        "coop_manage_warranty",
        "Management",
        "The table bike needs a column warranty_months, an integer that is never NULL: 24 for cargo bikes, 12 for all "
        "others. SQLite refuses my ALTER TABLE.",
        issue="ALTER TABLE bike ADD COLUMN warranty_months INTEGER NOT NULL",
        gold=[
            "ALTER TABLE bike ADD COLUMN warranty_months INTEGER NOT NULL DEFAULT 12",
            "UPDATE bike SET warranty_months = 24 WHERE kind = 'cargo'",
        ],
        explore=["PRAGMA table_info(bike)", "SELECT kind, COUNT(*) FROM bike GROUP BY kind"],
        wrong="ALTER TABLE bike ADD COLUMN warranty_months INTEGER NOT NULL DEFAULT 12",
        broken="ALTER TABLE bikes ADD COLUMN warranty_months INTEGER DEFAULT 12",
        tests=[_WARRANTY],
    ),
    demo_task(
        "coop_manage_price_log",
        "Management",
        "Whenever the unit_price of a part really changes, a trigger should write part_id, the old and the new price "
        "into price_log. Mine writes a line whenever anything about a part is touched, with the new price twice.",
        issue="CREATE TRIGGER part_price_logged AFTER UPDATE ON part BEGIN "
        "INSERT INTO price_log VALUES (NEW.part_id, NEW.unit_price, NEW.unit_price); END",
        gold="CREATE TRIGGER part_price_logged AFTER UPDATE OF unit_price ON part WHEN NEW.unit_price <> "
        "OLD.unit_price BEGIN INSERT INTO price_log VALUES (NEW.part_id, OLD.unit_price, NEW.unit_price); END",
        explore=["SELECT name, sql FROM sqlite_master WHERE type = 'trigger'", "SELECT COUNT(*) FROM price_log"],
        wrong="CREATE TRIGGER part_price_logged AFTER UPDATE OF unit_price ON part BEGIN "
        "INSERT INTO price_log VALUES (NEW.part_id, OLD.unit_price, NEW.unit_price); END",
        broken="CREATE TRIGGER part_price_logged AFTER UPDATE OF unit_price ON part "
        "INSERT INTO price_log VALUES (NEW.part_id, OLD.unit_price, NEW.unit_price)",
        preprocess=["CREATE TABLE price_log (part_id INTEGER, old_price REAL, new_price REAL)"],
        clean_up=["DROP TRIGGER IF EXISTS part_price_logged", "DROP TABLE price_log"],
        tests=[_LOGS_REAL_CHANGES, _LOGS_NOTHING_ELSE],
    ),
    demo_task(
        "coop_manage_debts",
        "Management",
        "I need a view unpaid_repair (repair_id, due) with the repairs that are done and not fully paid: due is the "
        "total from repair_total less the payments. Repairs for which nothing was paid at all are missing from mine.",
        issue="CREATE VIEW unpaid_repair AS SELECT t.repair_id, t.total - SUM(p.amount) AS due FROM repair_total t "
        "JOIN payment p ON p.repair_id = t.repair_id WHERE t.status = 'done' GROUP BY t.repair_id HAVING due > 0.005",
        gold="CREATE VIEW unpaid_repair AS SELECT t.repair_id, t.total - COALESCE(SUM(p.amount), 0) AS due "
        "FROM repair_total t LEFT JOIN payment p ON p.repair_id = t.repair_id WHERE t.status = 'done' "
        "GROUP BY t.repair_id HAVING due > 0.005",
        explore=["SELECT * FROM repair_total LIMIT 5", "SELECT sql FROM sqlite_master WHERE name = 'repair_total'"],
        wrong="CREATE VIEW unpaid_repair AS SELECT t.repair_id, t.total AS due FROM repair_total t WHERE t.status = "
        "'done' AND t.repair_id NOT IN (SELECT repair_id FROM payment)",
        broken="CREATE VIEW unpaid_repair SELECT repair_id, total AS due FROM repair_total",
        tests=[_ALL_DEBTS],
    ),
    demo_task(
        "coop_manage_tool_loans",
        "Management",
        "We want to write down who borrows which tool. I need a table tool_loan with loan_id (counted by the "
        "database), member_id (a member, never empty), tool, lent_on (never empty) and returned_on, which may be "
        "empty but not before lent_on. SQLite complains about AUTOINCREMENT.",
        issue="CREATE TABLE tool_loan (loan_id INT PRIMARY KEY AUTOINCREMENT, member_id INT NOT NULL, tool TEXT NOT "
        "NULL, lent_on TEXT NOT NULL, returned_on TEXT)",
        gold="CREATE TABLE tool_loan (loan_id INTEGER PRIMARY KEY, member_id INTEGER NOT NULL REFERENCES member "
        "(member_id), tool TEXT NOT NULL, lent_on TEXT NOT NULL, returned_on TEXT CHECK (returned_on IS NULL OR "
        "returned_on >= lent_on))",
        explore=["SELECT sql FROM sqlite_master WHERE name = 'member'"],
        wrong="CREATE TABLE tool_loan (loan_id INTEGER PRIMARY KEY, member_id INTEGER NOT NULL REFERENCES member "
        "(member_id), tool TEXT NOT NULL, lent_on TEXT NOT NULL, returned_on TEXT)",
        broken="CREATE TABLE tool_loan (loan_id INTEGER PRIMARY KEY, member_id INTEGER NOT NULL,)",
        tests=[_LOANS],
    ),
    demo_task(
        "coop_manage_restock",
        "Management",
        "A delivery has come; it is in the table delivery. Known parts (by sku) get the delivered quantity added to "
        "their stock, new ones are added with it. With my statement the known parts get a new part_id, their reorder "
        "level is lost and the stock is only what was delivered.",
        issue="INSERT OR REPLACE INTO part (sku, name, category, unit_price, stock) "
        "SELECT sku, name, category, unit_price, quantity FROM delivery",
        gold="INSERT INTO part (sku, name, category, unit_price, stock) "
        "SELECT sku, name, category, unit_price, quantity FROM delivery WHERE true "
        "ON CONFLICT (sku) DO UPDATE SET stock = stock + excluded.stock",
        explore=["SELECT * FROM delivery", "SELECT part_id, sku, stock, reorder_level FROM part LIMIT 3"],
        wrong="INSERT INTO part (sku, name, category, unit_price, stock) "
        "SELECT sku, name, category, unit_price, quantity FROM delivery WHERE true "
        "ON CONFLICT (sku) DO UPDATE SET stock = excluded.stock",
        broken="INSERT INTO part (sku, stock) SELECT sku, quantity FROM delivery ON CONFLICT (sku) DO stock = "
        "excluded.stock",
        preprocess=[
            "CREATE TABLE delivery (sku TEXT, name TEXT, category TEXT, unit_price REAL, quantity INTEGER)",
            "INSERT INTO delivery VALUES ('BR-001', 'pad 1', 'brake', 9.5, 30), ('BR-002', 'pad 2', 'brake', 11.0, "
            "12), ('BE-900', 'brass bell', 'bell', 14.5, 8)",
            "CREATE TABLE part_before AS SELECT * FROM part",
        ],
        clean_up=["DROP TABLE delivery", "DROP TABLE part_before"],
        tests=[_RESTOCKED],
    ),
    demo_task(
        "coop_speed_bike_status",
        "Efficiency",
        "We keep asking for the repairs of one bike in one status (WHERE bike_id = ? AND status = ?). I added an "
        "index, but the plan still says SCAN. Which index would serve both conditions?",
        issue="CREATE INDEX repair_lookup ON repair (opened_on, bike_id, status)",
        gold="CREATE INDEX repair_lookup ON repair (bike_id, status)",
        explore=["EXPLAIN QUERY PLAN SELECT opened_on FROM repair WHERE bike_id = 7 AND status = 'open'"],
        wrong="CREATE INDEX repair_lookup ON repair (bike_id)",
        broken="CREATE INDEX ON repair (bike_id, status)",
        tests=[_FOUND_BY_BIKE_AND_STATUS],
    ),
]
