"""An analysed expression -> its direct parts, a copy with other parts, its columns, type, collation, position. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from applier.sql.pg_tree.tree import (
    ARGUMENT,
    Aggref,
    AnyOfList,
    ArrayCoerceExpr,
    ArrayExpr,
    BooleanTest,
    BoolExpr,
    CaseExpr,
    CaseTestExpr,
    CoalesceExpr,
    CoerceViaIO,
    CollateExpr,
    Constant,
    DistinctExpr,
    Expression,
    FuncExpr,
    GroupingFunc,
    JsonConstructorExpr,
    JsonExpr,
    JsonIsPredicate,
    MinMaxExpr,
    NullIfExpr,
    NullTest,
    RelabelType,
    RowCompareExpr,
    RowExpr,
    RowIn,
    ScalarArrayOpExpr,
    SetReturningExpr,
    SubLink,
    SubLinkType,
    SubscriptingRef,
    Var,
    WindowFunc,
)

_BOOL, _INT4 = 16, 23
DEFAULT_COLLATION = 100
"""The object id of the default collation of the database."""


def arguments(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct sub-expressions."""
    match expression:
        case Var() | Constant() | CaseTestExpr() | GroupingFunc():
            return ()
        case (
            FuncExpr(args=args)
            | BoolExpr(args=args)
            | CoalesceExpr(args=args)
            | MinMaxExpr(args=args)
            | SetReturningExpr(args=args)
        ):
            return args
        case JsonConstructorExpr(args=args):
            return args
        case JsonExpr(json=json, path=path, passing=passing, on_empty=on_empty, on_error=on_error):
            return (json, path, *passing, *(e for e in (on_empty, on_error) if e is not None))
        case SubLink(outer=outer):
            return outer
        case Aggref(args=args, direct=direct, order=order, filter=condition):
            keys = tuple(key.expression for key in order)
            return (*args, *direct, *keys, *(() if condition is None else (condition,)))
        case DistinctExpr(equality=equality) | NullIfExpr(equality=equality):
            return equality.args
        case (
            RelabelType(arg=arg)
            | CoerceViaIO(arg=arg)
            | ArrayCoerceExpr(arg=arg)
            | NullTest(arg=arg)
            | BooleanTest(arg=arg)
        ):
            return (arg,)
        case JsonIsPredicate(arg=arg):
            return (arg,)
        case CaseExpr(subject=subject, branches=branches, default=default):
            whens = tuple(part for branch in branches for part in branch)
            return (() if subject is None else (subject,)) + whens + (default,)
        case AnyOfList(subject=subject, elements=elements):
            return (subject, *elements)
        case ScalarArrayOpExpr(subject=subject, array=array):
            return (subject, array)
        case ArrayExpr(elements=elements):
            return elements
        case RowExpr(fields=fields):
            return fields
        case RowIn(row=row, rows=rows):
            return (*row.fields, rows)
        case SubscriptingRef(array=array, lower=lower, index=index):
            return (array, index) if lower is None else (array, lower, index)
        case RowCompareExpr(pairs=pairs):
            return pairs
        case CollateExpr(arg=arg):
            return (arg,)
        case WindowFunc(args=args, filter=condition):
            return args if condition is None else (*args, condition)
        case _:
            assert_never(expression)


def rebuild(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the same expression with every direct sub-expression changed."""
    match expression:
        case Var() | Constant() | CaseTestExpr() | GroupingFunc():
            return expression
        case FuncExpr() | BoolExpr() | CoalesceExpr() | MinMaxExpr() | SetReturningExpr() | JsonConstructorExpr():
            return replace(expression, args=tuple(change(arg) for arg in expression.args))
        case JsonExpr():
            return replace(
                expression,
                json=change(expression.json),
                path=change(expression.path),
                passing=tuple(change(arg) for arg in expression.passing),
                on_empty=None if expression.on_empty is None else change(expression.on_empty),
                on_error=None if expression.on_error is None else change(expression.on_error),
            )
        case SubLink():
            return replace(expression, outer=tuple(change(part) for part in expression.outer))
        case Aggref():
            return replace(
                expression,
                args=tuple(change(arg) for arg in expression.args),
                direct=tuple(change(arg) for arg in expression.direct),
                order=tuple(replace(key, expression=change(key.expression)) for key in expression.order),
                filter=None if expression.filter is None else change(expression.filter),
            )
        case DistinctExpr() | NullIfExpr():
            args = tuple(change(arg) for arg in expression.equality.args)
            return replace(expression, equality=replace(expression.equality, args=args))
        case RelabelType() | CoerceViaIO() | ArrayCoerceExpr() | NullTest() | BooleanTest() | JsonIsPredicate():
            return replace(expression, arg=change(expression.arg))
        case CaseExpr():
            return replace(
                expression,
                subject=None if expression.subject is None else change(expression.subject),
                branches=tuple((change(condition), change(result)) for condition, result in expression.branches),
                default=change(expression.default),
            )
        case AnyOfList():
            elements = tuple(change(element) for element in expression.elements)
            return replace(expression, subject=change(expression.subject), elements=elements)
        case ScalarArrayOpExpr():
            return replace(expression, subject=change(expression.subject), array=change(expression.array))
        case ArrayExpr():
            return replace(expression, elements=tuple(change(element) for element in expression.elements))
        case RowExpr():
            return replace(expression, fields=tuple(change(part) for part in expression.fields))
        case RowIn():
            row = replace(expression.row, fields=tuple(change(part) for part in expression.row.fields))
            return RowIn(row, change(expression.rows))
        case SubscriptingRef():
            lower = None if expression.lower is None else change(expression.lower)
            return replace(expression, array=change(expression.array), lower=lower, index=change(expression.index))
        case RowCompareExpr():
            pairs = tuple(replace(p, args=tuple(change(arg) for arg in p.args)) for p in expression.pairs)
            return replace(expression, pairs=pairs)
        case CollateExpr():
            return replace(expression, arg=change(expression.arg))
        case WindowFunc():
            condition = None if expression.filter is None else change(expression.filter)
            return replace(expression, args=tuple(change(arg) for arg in expression.args), filter=condition)
        case _:
            assert_never(expression)


def substitute_vars(expression: Expression, arguments: tuple[Expression, ...]) -> Expression:
    """Return the body of a function with the arguments of a call substituted for its parameters."""
    if isinstance(expression, Var) and expression.entry == ARGUMENT:
        return arguments[expression.number - 1]
    return rebuild(expression, lambda inner: substitute_vars(inner, arguments))


def with_collation(expression: Expression, collation: int) -> Expression:
    """Return the body of a function with the collation of its call instead of the default collation."""
    inner = rebuild(expression, lambda part: with_collation(part, collation))
    names = ("collation", "input_collation")
    changed = {name: collation for name in names if getattr(inner, name, 0) == DEFAULT_COLLATION}
    return replace(inner, **changed) if changed else inner  # type: ignore[arg-type]


def collation(expression: Expression) -> int:
    """Return the collation of the value; 0 for types without one."""
    match expression:
        case (
            Var() | Constant() | FuncExpr() | RelabelType() | CoerceViaIO() | ArrayCoerceExpr() | CaseExpr()
            | CoalesceExpr() | MinMaxExpr()
            | Aggref() | SubscriptingRef() | CollateExpr() | SetReturningExpr() | SubLink() | JsonExpr()
        ):  # fmt: skip
            return expression.collation
        case WindowFunc():
            return expression.collation
        case NullIfExpr():
            return collation(expression.equality.args[0])
        case ArrayExpr(elements=elements):
            return next((found for found in map(collation, elements) if found), 0)
        case _:
            return 0


def type_of(expression: Expression) -> int:
    """Return the type of the value; 0 for ARRAY of a subquery, whose node has no type."""
    match expression:
        case (
            DistinctExpr()
            | BoolExpr()
            | NullTest()
            | BooleanTest()
            | AnyOfList()
            | ScalarArrayOpExpr()
            | RowIn()
            | RowCompareExpr()
            | JsonIsPredicate()
        ):
            return _BOOL
        case NullIfExpr():
            return type_of(expression.equality.args[0])
        case CollateExpr():
            return type_of(expression.arg)
        case GroupingFunc():
            return _INT4
        case SubLink(kind=SubLinkType.VALUE, query=query):
            return next(type_of(t.expression) for t in query.targets if not t.hidden)
        case SubLink(kind=kind):
            return 0 if kind is SubLinkType.ARRAY else _BOOL
        case _:
            return expression.type


def place_of(expression: Expression) -> int | None:
    """Return its position in the text, or else the first known position of its parts."""
    own: int | None = getattr(expression, "at", None)
    if own is not None:
        return own
    return next((found for found in map(place_of, arguments(expression)) if found is not None), None)


def variables(expression: Expression) -> Iterator[Var]:
    """Yield every column reference, with repetitions."""
    if isinstance(expression, Var):
        yield expression
    for argument in arguments(expression):
        yield from variables(argument)


def subqueries(expression: Expression) -> Iterator[SubLink]:
    """Yield every subquery in the expression, in the order of the text, but not those inside a subquery."""
    if isinstance(expression, SubLink):
        yield expression
        return
    for argument in arguments(expression):
        yield from subqueries(argument)


def set_functions(expression: Expression) -> Iterator[SetReturningExpr]:
    """Yield every outermost set-returning function in the expression."""
    if isinstance(expression, SetReturningExpr):
        yield expression
        return
    for argument in arguments(expression):
        yield from set_functions(argument)
