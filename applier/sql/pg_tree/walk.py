"""What an analysed expression is made of: its parts, the same with other parts, the columns it reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from applier.sql.pg_tree.tree import (
    ARGUMENT,
    AggregateOf,
    AnyOf,
    AnyOfArray,
    Apply,
    ArrayCast,
    ArrayOf,
    Asked,
    CaseOf,
    CaseSubject,
    Collated,
    Connected,
    Constant,
    DistinctFrom,
    Expression,
    Extreme,
    FirstNotNull,
    GroupingOf,
    IsJson,
    IsNull,
    IsTruth,
    JsonMade,
    JsonOf,
    NullIf,
    Relabel,
    RowIn,
    RowOf,
    RowOrder,
    SetOf,
    Subquery,
    Subscript,
    Var,
    ViaText,
    WindowOf,
)

_BOOL, _INT4 = 16, 23
DEFAULT_COLLATION = 100
"""Of the database."""


def arguments(expression: Expression) -> tuple[Expression, ...]:
    """The direct sub-expressions."""
    match expression:
        case Var() | Constant() | CaseSubject() | GroupingOf():
            return ()
        case Apply(args=args) | Connected(args=args) | FirstNotNull(args=args) | Extreme(args=args) | SetOf(args=args):
            return args
        case JsonMade(args=args):
            return args
        case JsonOf(json=json, path=path, passing=passing, on_empty=on_empty, on_error=on_error):
            return (json, path, *passing, *(e for e in (on_empty, on_error) if e is not None))
        case Subquery(outer=outer):
            return outer
        case AggregateOf(args=args, direct=direct, order=order, filter=condition):
            keys = tuple(key.expression for key in order)
            return (*args, *direct, *keys, *(() if condition is None else (condition,)))
        case DistinctFrom(equality=equality) | NullIf(equality=equality):
            return equality.args
        case Relabel(arg=arg) | ViaText(arg=arg) | ArrayCast(arg=arg) | IsNull(arg=arg) | IsTruth(arg=arg):
            return (arg,)
        case IsJson(arg=arg):
            return (arg,)
        case CaseOf(subject=subject, branches=branches, default=default):
            whens = tuple(part for branch in branches for part in branch)
            return (() if subject is None else (subject,)) + whens + (default,)
        case AnyOf(subject=subject, elements=elements):
            return (subject, *elements)
        case AnyOfArray(subject=subject, array=array):
            return (subject, array)
        case ArrayOf(elements=elements):
            return elements
        case RowOf(fields=fields):
            return fields
        case RowIn(row=row, rows=rows):
            return (*row.fields, rows)
        case Subscript(array=array, lower=lower, index=index):
            return (array, index) if lower is None else (array, lower, index)
        case RowOrder(pairs=pairs):
            return pairs
        case Collated(arg=arg):
            return (arg,)
        case WindowOf(args=args, filter=kept):
            return args if kept is None else (*args, kept)
        case _:
            assert_never(expression)


def rebuild(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The same expression with every direct sub-expression changed."""
    match expression:
        case Var() | Constant() | CaseSubject() | GroupingOf():
            return expression
        case Apply() | Connected() | FirstNotNull() | Extreme() | SetOf() | JsonMade():
            return replace(expression, args=tuple(change(arg) for arg in expression.args))
        case JsonOf():
            return replace(
                expression,
                json=change(expression.json),
                path=change(expression.path),
                passing=tuple(change(arg) for arg in expression.passing),
                on_empty=None if expression.on_empty is None else change(expression.on_empty),
                on_error=None if expression.on_error is None else change(expression.on_error),
            )
        case Subquery():
            return replace(expression, outer=tuple(change(part) for part in expression.outer))
        case AggregateOf():
            return replace(
                expression,
                args=tuple(change(arg) for arg in expression.args),
                direct=tuple(change(arg) for arg in expression.direct),
                order=tuple(replace(key, expression=change(key.expression)) for key in expression.order),
                filter=None if expression.filter is None else change(expression.filter),
            )
        case DistinctFrom() | NullIf():
            args = tuple(change(arg) for arg in expression.equality.args)
            return replace(expression, equality=replace(expression.equality, args=args))
        case Relabel() | ViaText() | ArrayCast() | IsNull() | IsTruth() | IsJson():
            return replace(expression, arg=change(expression.arg))
        case CaseOf():
            return replace(
                expression,
                subject=None if expression.subject is None else change(expression.subject),
                branches=tuple((change(condition), change(result)) for condition, result in expression.branches),
                default=change(expression.default),
            )
        case AnyOf():
            elements = tuple(change(element) for element in expression.elements)
            return replace(expression, subject=change(expression.subject), elements=elements)
        case AnyOfArray():
            return replace(expression, subject=change(expression.subject), array=change(expression.array))
        case ArrayOf():
            return replace(expression, elements=tuple(change(element) for element in expression.elements))
        case RowOf():
            return replace(expression, fields=tuple(change(part) for part in expression.fields))
        case RowIn():
            row = replace(expression.row, fields=tuple(change(part) for part in expression.row.fields))
            return RowIn(row, change(expression.rows))
        case Subscript():
            lower = None if expression.lower is None else change(expression.lower)
            return replace(expression, array=change(expression.array), lower=lower, index=change(expression.index))
        case RowOrder():
            pairs = tuple(replace(p, args=tuple(change(arg) for arg in p.args)) for p in expression.pairs)
            return replace(expression, pairs=pairs)
        case Collated():
            return replace(expression, arg=change(expression.arg))
        case WindowOf():
            kept = None if expression.filter is None else change(expression.filter)
            return replace(expression, args=tuple(change(arg) for arg in expression.args), filter=kept)
        case _:
            assert_never(expression)


def substituted(expression: Expression, arguments: tuple[Expression, ...]) -> Expression:
    """A function's body with the call's arguments in the place of its own."""
    if isinstance(expression, Var) and expression.entry == ARGUMENT:
        return arguments[expression.number - 1]
    return rebuild(expression, lambda inner: substituted(inner, arguments))


def recollated(expression: Expression, collation: int) -> Expression:
    """A function's body under the collation of its call, which takes the place of the database's own."""
    inner = rebuild(expression, lambda part: recollated(part, collation))
    names = ("collation", "input_collation")
    changed = {name: collation for name in names if getattr(inner, name, 0) == DEFAULT_COLLATION}
    return replace(inner, **changed) if changed else inner  # type: ignore[arg-type]


def collation(expression: Expression) -> int:
    """The collation of the value, 0 for types without one."""
    match expression:
        case (
            Var() | Constant() | Apply() | Relabel() | ViaText() | ArrayCast() | CaseOf() | FirstNotNull() | Extreme()
            | AggregateOf() | Subscript() | Collated() | SetOf() | Subquery() | JsonOf()
        ):  # fmt: skip
            return expression.collation
        case WindowOf():
            return expression.collation
        case NullIf():
            return collation(expression.equality.args[0])
        case ArrayOf(elements=elements):
            return next((found for found in map(collation, elements) if found), 0)
        case _:
            return 0


def type_of(expression: Expression) -> int:
    """The type of the value; 0 for ARRAY of a subquery, which does not say."""
    match expression:
        case (
            DistinctFrom()
            | Connected()
            | IsNull()
            | IsTruth()
            | AnyOf()
            | AnyOfArray()
            | RowIn()
            | RowOrder()
            | IsJson()
        ):
            return _BOOL
        case NullIf():
            return type_of(expression.equality.args[0])
        case Collated():
            return type_of(expression.arg)
        case GroupingOf():
            return _INT4
        case Subquery(kind=Asked.VALUE, query=query):
            return next(type_of(t.expression) for t in query.targets if not t.hidden)
        case Subquery(kind=kind):
            return 0 if kind is Asked.ARRAY else _BOOL
        case _:
            return expression.type


def at(expression: Expression) -> int | None:
    """Where it stands in the text, or the first of its parts of which that is known."""
    own: int | None = getattr(expression, "at", None)
    if own is not None:
        return own
    return next((found for found in map(at, arguments(expression)) if found is not None), None)


def variables(expression: Expression) -> Iterator[Var]:
    """Every column reference, with repetitions."""
    if isinstance(expression, Var):
        yield expression
    for argument in arguments(expression):
        yield from variables(argument)


def subqueries(expression: Expression) -> Iterator[Subquery]:
    """Every subquery in the expression itself, in the order of the text; not those inside a subquery."""
    if isinstance(expression, Subquery):
        yield expression
        return
    for argument in arguments(expression):
        yield from subqueries(argument)


def sets(expression: Expression) -> Iterator[SetOf]:
    """Every function in the expression that makes rows, the outermost only."""
    if isinstance(expression, SetOf):
        yield expression
        return
    for argument in arguments(expression):
        yield from sets(argument)
