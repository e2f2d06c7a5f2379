"""The demonstration's database: a bicycle-repair cooperative, with some six thousand rows made by arithmetic.

Every build gives the same rows: numbers come from a linear congruential generator with a fixed seed, dates are counted
from a fixed day, and nothing is read from outside. Written for this project.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FIRST_DAY = date(2021, 1, 4)
DAYS = 1_200

SCHEMA = """
CREATE TABLE member (
  member_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  email TEXT NOT NULL UNIQUE,
  phone TEXT,
  tier TEXT NOT NULL CHECK (tier IN ('basic', 'supporter', 'volunteer')),
  joined_on TEXT NOT NULL,
  preferences TEXT NOT NULL CHECK (json_valid(preferences))
);
CREATE TABLE bike (
  bike_id INTEGER PRIMARY KEY,
  member_id INTEGER NOT NULL REFERENCES member (member_id),
  brand TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('city', 'touring', 'cargo', 'child', 'race')),
  frame_no TEXT NOT NULL UNIQUE,
  bought_on TEXT
);
CREATE TABLE mechanic (
  mechanic_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  mentor_id INTEGER REFERENCES mechanic (mechanic_id),
  hourly_rate REAL NOT NULL
);
CREATE TABLE part (
  part_id INTEGER PRIMARY KEY,
  sku TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  category TEXT NOT NULL,
  unit_price REAL NOT NULL CHECK (unit_price > 0),
  stock INTEGER NOT NULL DEFAULT 0 CHECK (stock >= 0),
  reorder_level INTEGER NOT NULL DEFAULT 5
);
CREATE TABLE supplier (supplier_id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE supplier_part (
  supplier_id INTEGER NOT NULL REFERENCES supplier (supplier_id),
  part_id INTEGER NOT NULL REFERENCES part (part_id),
  price REAL NOT NULL,
  lead_days INTEGER NOT NULL,
  PRIMARY KEY (supplier_id, part_id)
) WITHOUT ROWID;
CREATE TABLE repair (
  repair_id INTEGER PRIMARY KEY,
  bike_id INTEGER NOT NULL REFERENCES bike (bike_id),
  mechanic_id INTEGER REFERENCES mechanic (mechanic_id),
  opened_on TEXT NOT NULL,
  closed_on TEXT,
  status TEXT NOT NULL CHECK (status IN ('open', 'waiting', 'done', 'cancelled')),
  minutes INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE repair_part (
  repair_id INTEGER NOT NULL REFERENCES repair (repair_id),
  part_id INTEGER NOT NULL REFERENCES part (part_id),
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  unit_price REAL NOT NULL,
  PRIMARY KEY (repair_id, part_id)
);
CREATE TABLE payment (
  payment_id INTEGER PRIMARY KEY,
  repair_id INTEGER NOT NULL REFERENCES repair (repair_id),
  paid_on TEXT NOT NULL,
  amount REAL NOT NULL,
  method TEXT NOT NULL CHECK (method IN ('cash', 'card', 'transfer'))
);
CREATE TABLE workshop (
  workshop_id INTEGER PRIMARY KEY,
  title TEXT NOT NULL,
  held_on TEXT NOT NULL,
  capacity INTEGER NOT NULL
);
CREATE TABLE attendance (
  workshop_id INTEGER NOT NULL REFERENCES workshop (workshop_id),
  member_id INTEGER NOT NULL REFERENCES member (member_id),
  PRIMARY KEY (workshop_id, member_id)
);
CREATE TABLE stock_move (
  move_id INTEGER PRIMARY KEY,
  part_id INTEGER NOT NULL REFERENCES part (part_id),
  delta INTEGER NOT NULL,
  reason TEXT NOT NULL
);
CREATE INDEX repair_opened_on ON repair (opened_on);
CREATE INDEX payment_repair ON payment (repair_id);
"""

#: Made after the rows, so that the history begins with the first change that somebody makes.
LIVING_SCHEMA = """
CREATE VIEW repair_total AS
SELECT r.repair_id, r.bike_id, r.status,
       COALESCE((SELECT SUM(p.quantity * p.unit_price) FROM repair_part p WHERE p.repair_id = r.repair_id), 0)
         + r.minutes * COALESCE((SELECT m.hourly_rate FROM mechanic m WHERE m.mechanic_id = r.mechanic_id), 0) / 60.0
         AS total
FROM repair r;
CREATE VIEW open_repair AS
SELECT r.repair_id, b.frame_no, m.name AS member, r.opened_on, r.status
FROM repair r JOIN bike b ON b.bike_id = r.bike_id JOIN member m ON m.member_id = b.member_id
WHERE r.status IN ('open', 'waiting');
CREATE TRIGGER part_stock_moved AFTER UPDATE OF stock ON part WHEN NEW.stock <> OLD.stock
BEGIN
  INSERT INTO stock_move (part_id, delta, reason) VALUES (NEW.part_id, NEW.stock - OLD.stock, 'stock changed');
END;
"""

# fmt: off
_FIRST = (
    "Ada", "Bruno", "Chiara", "Dimitri", "Elif", "Farid", "Greta", "Hana", "Ivo", "Jun", "Kaja", "Luis", "Mira",
    "Noor", "Olu", "Petra", "Quim", "Rosa", "Sven", "Tala",
)
_LAST = (
    "Abara", "Brandt", "Costa", "Dahl", "Eriksen", "Fuchs", "Garcia", "Haddad", "Ito", "Jensen", "Kowal", "Lund",
    "Marino", "Novak", "Okoye",
)
# fmt: on
_BRANDS = ("Aurora", "Beacon", "Cascade", "Drift", "Ember", "Fjord")
_KINDS = ("city", "touring", "cargo", "child", "race")
_CATEGORIES = {
    "brake": ("pad", "cable", "lever", "disc"),
    "drive": ("chain", "cassette", "chainring", "bottom bracket"),
    "wheel": ("inner tube", "tyre", "spoke", "rim"),
    "light": ("front lamp", "rear lamp", "dynamo", "reflector"),
}
_CITIES = ("Aarhus", "Bremen", "Cadiz", "Delft", "Espoo", "Faro")


class _Numbers:
    """A linear congruential generator (Knuth's MMIX constants): the same numbers on every machine and version."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


def build_database(path: Path) -> None:
    """Write the database to a new file.

    Raises:
        FileExistsError: There is a file.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists")
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        _fill(connection, _Numbers(20_210_104))
        connection.execute("COMMIT")
        connection.executescript(LIVING_SCHEMA)
    finally:
        connection.close()


def _fill(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    _people(connection, numbers)
    _shelf(connection, numbers)
    _work(connection, numbers)
    _evenings(connection, numbers)


def _people(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    members: list[tuple[object, ...]] = []
    for number in range(1, 301):
        name = f"{_FIRST[number % 20]} {_LAST[number // 20 % 15]}"
        preferences: dict[str, object] = {
            "newsletter": numbers.below(3) > 0,
            "language": numbers.one_of(("en", "de", "es")),
        }
        if numbers.below(4) == 0:
            preferences["reminder"] = {"channel": numbers.one_of(("sms", "email")), "days": 7 * (1 + numbers.below(4))}
        members.append(
            (
                number,
                name,
                f"{name.lower().replace(' ', '.')}.{number}@example.org",
                None if numbers.below(3) == 0 else f"+45 {20_000_000 + numbers.below(9_999_999)}",
                ("basic", "basic", "supporter", "volunteer")[numbers.below(4)],
                _day(numbers.below(DAYS)),
                json.dumps(preferences),
            )
        )
    _insert(connection, "member", members)
    bikes = [
        (
            number,
            1 + numbers.below(280),  # the last twenty have none
            numbers.one_of(_BRANDS),
            numbers.one_of(_KINDS),
            f"FR{number:05}",
            None if numbers.below(5) == 0 else _day(numbers.below(DAYS)),
        )
        for number in range(1, 421)
    ]
    _insert(connection, "bike", bikes)
    mentors = (None, None, 1, 1, 2, 3, 3, 5, 6, 8, None, 9)
    mechanics = [
        (number, f"{_FIRST[-number]} {_LAST[number]}", mentor, 28.0 + 1.5 * numbers.below(10))
        for number, mentor in enumerate(mentors, 1)
    ]
    _insert(connection, "mechanic", mechanics)


def _shelf(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    parts: list[tuple[object, ...]] = []
    for category, names in _CATEGORIES.items():
        for name in names:
            for size in range(1, 6):
                number = len(parts) + 1
                price = (150 + numbers.below(6_000)) / 100
                sku = f"{category[:2].upper()}-{number:03}"
                parts.append((number, sku, f"{name} {size}", category, price, numbers.below(40), 5 + numbers.below(10)))
    _insert(connection, "part", parts)
    _insert(connection, "supplier", [(number, f"{city} Cycle Supply", city) for number, city in enumerate(_CITIES, 1)])
    offers = {(1 + numbers.below(6), 1 + numbers.below(78)) for _ in range(220)}  # two parts nobody offers
    prices = {int(str(part[0])): float(str(part[4])) for part in parts}
    _insert(
        connection,
        "supplier_part",
        [
            (supplier, part, round(prices[part] * (50 + numbers.below(30)) / 100, 2), 1 + numbers.below(21))
            for supplier, part in sorted(offers)
        ],
    )


def _work(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    repairs: list[tuple[object, ...]] = []
    used: list[tuple[object, ...]] = []
    payments: list[tuple[object, ...]] = []
    for number in range(1, 1_201):
        opened = numbers.below(DAYS - 60)
        status = ("done", "done", "done", "done", "done", "done", "open", "waiting", "cancelled")[numbers.below(9)]
        closed = _day(opened + 1 + numbers.below(30)) if status in ("done", "cancelled") else None
        mechanic = None if status in ("open", "cancelled") and numbers.below(2) else 1 + numbers.below(10)
        minutes = 15 * (1 + numbers.below(12)) if status == "done" else 0
        repairs.append((number, 1 + numbers.below(400), mechanic, _day(opened), closed, status, minutes))
        for part in sorted({1 + numbers.below(80) for _ in range(numbers.below(4))}):
            used.append((number, part, 1 + numbers.below(3), (150 + numbers.below(6_000)) / 100))
        for _ in range(1 + numbers.below(2) if status == "done" and numbers.below(8) else 0):
            method = numbers.one_of(("cash", "card", "transfer"))
            amount = (1_000 + numbers.below(9_000)) / 100
            payments.append((len(payments) + 1, number, _day(opened + 30 + numbers.below(30)), amount, method))
    _insert(connection, "repair", repairs)
    _insert(connection, "repair_part", used)
    _insert(connection, "payment", payments)


def _evenings(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    titles = ("Flat tyres", "Gears from scratch", "Winter lights", "True a wheel")
    workshops = [(number, titles[number % 4], _day(40 * number), 12 + 2 * numbers.below(5)) for number in range(1, 25)]
    _insert(connection, "workshop", workshops)
    seats = {(1 + numbers.below(24), 1 + numbers.below(300)) for _ in range(500)}
    _insert(connection, "attendance", sorted(seats))


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    places = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _day(number: int) -> str:
    return (FIRST_DAY + timedelta(days=number)).isoformat()
