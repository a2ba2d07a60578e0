"""Generates random rows for the corpus schema: few distinct values (so joins match), NULLs, duplicates, edge values.

A table is a list of rows in the form that COPY accepts. The same seed gives the same rows; `churn` changes some.
"""

from __future__ import annotations

import datetime
import json
import uuid
from random import Random
from typing import Any

Row = tuple[Any, ...]
Tables = dict[str, list[Row]]

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("FRANCE", 3), ("GERMANY", 3),
    ("INDIA", 2), ("CHINA", 2), ("SAUDI ARABIA", 4), ("UNITED STATES", 1), ("JAPAN", 2),
)  # fmt: skip
_WORDS = ("special", "requests", "Customer", "Complaints", "quick", "final", "regular", "sleep")
_CODES = ("13", "17", "18", "23", "29", "30", "31", "44")
_NAMES = ("Ann", "bob", "Bob", "Çelik", "dee", "Émile", "", "Zoë", "von_X", "a%b", "O'Neil", "x y", "ann ")


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def maybe(self, value: Any, missing: float = 0.15) -> Any:
        return None if self.random.random() < missing else value

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def cents(self, low: int, high: int) -> str:
        return f"{self.random.randint(low * 100, high * 100) / 100:.2f}"

    def day(self, first: str, days: int) -> datetime.date:
        return datetime.date.fromisoformat(first) + datetime.timedelta(self.number(0, days))

    def words(self, most: int) -> str:
        return " ".join(self.pick(*_WORDS) for _ in range(self.number(1, most)))

    def phone(self) -> str:
        return f"{self.pick(*_CODES)}-{self.number(100, 999)}-{self.number(100, 999)}"

    def supplier(self, key: int) -> Row:
        return (
            key, f"Supplier#{key:09}", self.words(2), self.number(0, len(_NATIONS) - 1), self.phone(),
            self.cents(-999, 9999), self.words(5),
        )  # fmt: skip

    def part(self, key: int) -> Row:
        finish = f"{self.pick('ANODIZED', 'POLISHED')} {self.pick('STEEL', 'BRASS')}"
        kind = f"{self.pick('ECONOMY', 'PROMO', 'MEDIUM')} {finish}"
        box = self.pick("MED BOX", "SM CASE", "SM BOX", "LG BOX", "LG CASE", "MED BAG")
        return (
            key, f"{self.pick('forest', 'green', 'ivory')} {self.pick('green', 'lemon')}",
            f"Manufacturer#{self.number(1, 2)}",
            self.pick("Brand#12", "Brand#23", "Brand#34", "Brand#45"), kind, self.pick(1, 3, 5, 9, 14, 15, 49), box,
            self.cents(900, 2000), self.words(2),
        )  # fmt: skip

    def customer(self, key: int) -> Row:
        return (
            key, f"Customer#{key:09}", self.words(2), self.number(0, len(_NATIONS) - 1), self.phone(),
            self.cents(-999, 9999), self.pick("BUILDING", "AUTOMOBILE", "MACHINERY"), self.words(4),
        )  # fmt: skip

    def order(self, key: int, customers: int) -> Row:
        urgency = self.pick("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW")
        return (
            key, self.number(1, customers), self.pick("F", "F", "O", "P"), self.cents(100, 90000),
            self.day(self.pick("1993-07-01", "1994-01-01", "1995-01-01"), 300), urgency,
            f"Clerk#{self.number(1, 5):09}", 0, self.words(5),
        )  # fmt: skip

    def line(self, order: Row, number: int, stock: list[Row]) -> Row:
        part, supplier = self.pick(*stock)[:2]
        many = order[0] % 9 == 0
        shipped = order[4] + datetime.timedelta(self.number(1, 121))
        received = shipped + datetime.timedelta(self.number(1, 30))
        return (
            order[0], part, supplier, number, f"{self.number(60, 90) if many else self.number(1, 50)}.00",
            self.cents(100, 9000), f"0.{self.number(0, 10):02}", f"0.0{self.number(0, 8)}", self.pick("R", "A", "N"),
            self.pick("F", "O"), shipped, order[4] + datetime.timedelta(self.number(30, 90)), received,
            self.pick("DELIVER IN PERSON", "NONE"), self.pick("AIR", "AIR REG", "MAIL", "SHIP"), self.words(3),
        )  # fmt: skip

    def employee(self, key: int, everybody: int) -> Row:
        parts = {
            "lvl": self.pick(1, 2, 2.5, "3", None),
            "skills": self.random.sample(["sql", "c", "py"], self.number(0, 3)),
            "addr": {"city": self.pick("Bonn", "Rome"), "zip": self.number(1, 5)},
        }
        attributes = self.maybe(json.dumps({k: v for k, v in parts.items() if self.random.random() < 0.8}))
        tags = self.maybe([self.maybe(self.pick("a", "b", "c")) for _ in range(self.number(0, 3))])
        return (
            key, self.maybe(self.pick(*_NAMES)), self.maybe(self.number(1, 12)), self.maybe(self.number(1, everybody)),
            self.maybe(self.cents(0, 9000)),
            self.maybe(self.pick("0", "1.5", "2.250", "-0.001", "12345678901234567890.123456789", "3")),
            self.maybe(self.day("2015-01-01", 3300)),
            self.maybe(self.pick("0.1", "0.2", "-1.5", "1e10", "NaN", "Infinity", "0", "-0", "3.3333333333333335")),
            self.maybe(self.pick(True, False)), _array(tags), attributes,
            self.maybe(self.pick("a", "ab", "abc", "ab c", "A")), self.maybe(self.pick("", "n", "note ", " note", "N")),
            self.maybe(self.pick("sad", "ok", "happy")),
        )  # fmt: skip

    def event(self, key: int) -> Row:
        moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(
            seconds=self.number(0, 90 * 86400), microseconds=self.pick(0, 0, 1, 500000, 999999)
        )
        payload = {
            "a": self.number(1, 3),
            "b": {"c": self.pick("x", "y", None)},
            "l": [self.number(1, 3) for _ in range(self.number(0, 3))],
        }
        numbers = self.maybe([self.maybe(self.number(1, 5)) for _ in range(self.number(0, 4))])
        return (
            key, self.maybe(self.number(1, 40)), self.maybe(self.pick("click", "view", "Buy", "buy")),
            self.maybe(moment), self.maybe(f"{moment.isoformat()}+00"), self.maybe(moment.date()),
            self.maybe(self.number(-20, 20)), self.maybe(self.number(-5, 5)), self.maybe(self.number(-(2**53), 2**53)),
            self.maybe(round(self.random.uniform(-5, 5), 3)), self.maybe(self.pick("0.1", "1.25", "-2.5", "3")),
            self.maybe(f"{self.number(-99999, 99999) / self.pick(1, 10, 100, 1000):.4f}"),
            self.maybe(json.dumps(payload)), self.maybe(str(uuid.UUID(int=self.random.getrandbits(128)))),
            _array(numbers),
        )  # fmt: skip

    def pair(self) -> Row:
        text = self.maybe(self.pick("x", "X", "y", "é", "", " "), 0.2)
        return self.maybe(self.number(1, 6), 0.2), self.maybe(self.number(-3, 3), 0.2), text


def _array(values: list[Any] | None) -> str | None:
    if values is None:
        return None
    return "{" + ",".join("NULL" if v is None else str(v) for v in values) + "}"


def tables(seed: int) -> Tables:
    """Return the rows of all tables."""
    make = _Maker(seed)
    suppliers, parts, customers, staff = 12, 30, 25, 36
    stock = sorted({(p, make.number(1, suppliers)) for p in range(1, parts + 1) for _ in range(3)})
    stocked: list[Row] = [(p, s, make.number(1, 500), make.cents(1, 1000), make.words(4)) for p, s in stock]
    orders = [make.order(key, customers) for key in range(1, 91)]
    found: Tables = {
        "region": [(i, name, make.words(2)) for i, name in enumerate(_REGIONS)],
        "nation": [(i, name, region, make.words(2)) for i, (name, region) in enumerate(_NATIONS)],
        "supplier": [make.supplier(key) for key in range(1, suppliers + 1)],
        "part": [make.part(key) for key in range(1, parts + 1)],
        "partsupp": stocked,
        # Some customers never order anything.
        "customer": [make.customer(key) for key in range(1, customers + 8)],
        "orders": orders,
        "lineitem": [make.line(order, n, stocked) for order in orders for n in range(1, make.number(2, 6))],
        "dept": [_department(make, key) for key in range(1, 11)],
        "emp": [make.employee(key, staff) for key in range(1, staff + 1)],
        "ev": [make.event(key) for key in range(1, 61)],
        "a": [make.pair() for _ in range(30)],
        "b": [make.pair() for _ in range(30)],
        "edge": [(make.number(1, 15), make.number(1, 15), make.number(1, 9)) for _ in range(20)],
    }
    return found


def _department(make: _Maker, key: int) -> Row:
    parent = None if key < 3 else make.number(1, key - 1)
    return key, f"D{key}", make.maybe(make.number(-(10**11), 10**12)), make.maybe(make.pick("NY", "LA", "")), parent


def churn(before: Tables, seed: int) -> Tables:
    """Return the tables after changes: rows deleted, others inserted, some changed in all columns but the key."""
    make = _Maker(seed)
    fresh = tables(seed + 1000)
    after: Tables = {}
    for name, rows in before.items():
        kept = [row for row in rows if make.random.random() > 0.12]
        if name in ("a", "b", "edge"):
            after[name] = kept + [make.pick(*fresh[name]) for _ in range(4)]
            continue
        width = 2 if name == "partsupp" else 1
        keys = {_key(name, row, width) for row in kept}
        changed = {_key(name, row, width): row for row in fresh[name] if make.random.random() < 0.15}
        kept = [changed.pop(_key(name, row, width), row) for row in kept]
        after[name] = kept + [row for key, row in changed.items() if key not in keys]
    return after


def _key(table: str, row: Row, width: int) -> Row:
    return (row[0], row[3]) if table == "lineitem" else row[:width]
