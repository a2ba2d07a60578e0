"""Entries for to_char, to_date and to_timestamp with a literal pattern of unambiguous parts.

Dates: the usual fields, `FM` before and `TH` after them, punctuation, and texts in double quotes; other letters must
be quoted. Numbers: 9, 0, comma and point, `FM` before them. A text is parsed only if it matches the pattern exactly;
any other text raises, even if PostgreSQL would accept it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.datetime.intervals import instant, interval_micros
from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, literal_text, template
from applier.functions.output_text import output_text_sql
from applier.plan.expr import Call, Expr

_FIELD = (
    "YYYY|YY|IYYY|IW|MONTH|Month|month|MON|Mon|mon|MM|MI|MS|DDD|DD|DAY|Day|day|DY|Dy|dy|ID|D|HH24|HH12|HH|SSSS|SS|US|"
    "AM|PM|am|pm|WW|Q"
)
_QUOTED = r'"[^"\\]*"'
_DATE = re.compile(rf"(?:(?:FM)?(?:{_FIELD})(?:TH|th)?|{_QUOTED}|[^A-Za-z\"\\])*")
_READ = re.compile(r"(?:YYYY|MM|DD|HH24|MI|SS|Mon|[-/:. ])*")
_NUMBER = re.compile(r"(?:FM)?(?=[90,]*[90])[90][90,]*(?:\.[90]*)?")
_MONTH = re.compile("Month|MONTH|month")
_NAMED_ORDINAL = re.compile("(?:DAY|Day|day|DY|Dy|dy|AM|PM|am|pm|Mon|MON|mon)(?:TH|th)|@(?:TH|th)")


def _check_format(arg: Expr, allowed: re.Pattern[str]) -> str:
    written = literal_text(arg)
    if not allowed.fullmatch(written) or (allowed is _DATE and _NAMED_ORDINAL.search(_MONTH.sub("@", written))):
        raise UnsuitableArguments(
            f"the format {written!r}", hint="use plain fields such as YYYY-MM-DD HH24:MI:SS, or 999,990.00"
        )
    return written


def _physical_type(allowed: re.Pattern[str], physical_types: Sequence[str], result: str, args: tuple[Expr, ...]) -> str:
    _check_format(args[1], allowed)
    if args[0].type.spark not in physical_types:
        raise UnsuitableArguments(f"values held as {args[0].type.spark}")
    return result


def _dates() -> Iterator[Entry]:
    patterns = (
        "YYYY-MM-DD HH24:MI:SS", "HH:MI AM", "Day, DDth Mon YYYY", "IW", "IYYY-IW-ID", "FMDD FMMonth YY",
        "MONTH|dy|DAY",        'YYYY"T"MS US Q WW DDD D', "FMHH12:FMMI pm", "SSSS", "YYYYMMDD", "DDTH mon",
    )  # fmt: skip
    for name, spark in (("timestamp", "timestamp_ntz"), ("timestamptz", "timestamp")):
        yield Entry(
            f"to_char({name},text)",
            partial(_physical_type, _DATE, [spark], "string"),
            template(f"pg_format_timestamp({interval_micros(0)}, {{1}})"),
            tuple((name, Fixed(f"'{p}'")) for p in patterns),
            session=True,
        )
    fuzz: tuple[tuple[FuzzArg, ...], ...] = (("text:iso", Fixed("'YYYY-MM-DD'")),)
    yield Entry(
        "to_date(text,text)",
        partial(_physical_type, _READ, ["string"], "date"),
        template("date_from_unix_date(pg_format_to_date({0}, {1}))"),
        (*fuzz, ("text:iso2", Fixed("'DD Mon YYYY'"))),
        raises=True,
        session=True,
    )
    yield Entry(
        "to_timestamp(text,text)",
        partial(_physical_type, _READ, ["string"], "timestamp"),
        template(instant("pg_format_to_timestamp({0}, {1})")),
        (*fuzz, ("text:iso2", Fixed("'DD Mon YYYY'"))),
        raises=True,
        session=True,
    )


def _number_physical_type(args: tuple[Expr, ...]) -> str:
    _check_format(args[1], _NUMBER)
    output_text_sql(args[0], "")
    return "string"


def _write_number(call: Call, args: Sequence[str]) -> str:
    return f"pg_format_number({output_text_sql(call.args[0], args[0])}, {args[1]})"


def _numbers() -> Iterator[Entry]:
    patterns = ("9,999.99", "FM90.00", "000", "999", "0,000.9", "FM999,999.99", "99.99", "9", "FM9.99", "00099")
    for name, values in (("int4", ("int4",)), ("int8", ("int8",)), ("numeric", ("numeric(10,2)", "numeric:plain"))):
        yield Entry(
            f"to_char({name},text)", _number_physical_type, _write_number,
            tuple((v, Fixed(f"'{p}'")) for v in values for p in patterns),
            session=True,
        )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_dates(), *_numbers())
