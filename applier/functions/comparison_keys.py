"""Takes a value that Spark does not group or sort as PostgreSQL does, and returns a key or a sort position for it.

Two values have the same *key* if and only if they are equal: 1 and 1.0 are equal numerics, '30 days' and '1 mon'
equal intervals, 0 and -0 equal floats. A *place* sorts as the values do. A query cannot call either function. The tests
compare them with PostgreSQL's `=` and `<` over all pairs of many values.
"""

from __future__ import annotations

from applier.functions.entry import Entry, fixed_physical_type, template
from applier.plan.expr import INT4, TEXT, Call, Const, Expr

_KEYS = {
    "numeric": ("string", "pg_numeric_sortable({0})"),
    "interval": ("string", "pg_intervals_sortable({0})"),
    "jsonb": ("string", "pg_json_key({0})"),
    "float8": ("double", "({0} + 0D)"),
    "float4": ("float", "({0} + CAST(0 AS float))"),
    # The text of an array is a key if the texts of its elements are.
    **{f"_{name}": ("string", "{0}") for name in ("int2", "int4", "int8", "text", "varchar", "uuid", "bool", "date")},
}
_PLACES = {name: _KEYS[name] for name in ("numeric", "interval")}
PLACE_OF = "place_of("
"""The prefix of the signatures of sort positions."""
_ENUM_PLACE = f"{PLACE_OF}anyenum)"


def comparison_key(value: Expr) -> Expr | None:
    """Return the key of a value; None if no key is known for its type and physical type."""
    physical_type, _ = _KEYS.get(value.type.pg.name, ("", ""))
    if value.type.spark != physical_type:
        return None
    key_type = TEXT if physical_type == "string" else value.type
    return Call(f"key_of({value.type.pg.name})", (value,), key_type)


def sort_position(value: Expr, labels: tuple[str, ...] | None) -> Expr | None:
    """Return an expression that sorts as the value does; None if none is known.

    `labels` are the labels of an enum, in order.
    """
    if labels is not None:
        return Call(_ENUM_PLACE, (value, joined_labels(labels)), INT4)
    physical_type, _ = _PLACES.get(value.type.pg.name, ("", ""))
    return Call(f"{PLACE_OF}{value.type.pg.name})", (value,), TEXT) if value.type.spark == physical_type else None


def joined_labels(labels: tuple[str, ...]) -> Const:
    """Return the labels of an enum as the single argument that its order functions accept."""
    return Const("\x00".join(labels), TEXT)


ENTRIES: tuple[Entry, ...] = (
    *(
        Entry(
            f"{function}({name})",
            fixed_physical_type([physical_type], physical_type),
            template(form),
            (),
            internal=True,
        )
        for function, forms in (("key_of", _KEYS), ("place_of", _PLACES))
        for name, (physical_type, form) in forms.items()
    ),
    Entry(
        _ENUM_PLACE,
        fixed_physical_type(["string", "string"], "int"),
        template("pg_casts_place({0}, {1})"),
        (),
        internal=True,
    ),
)
