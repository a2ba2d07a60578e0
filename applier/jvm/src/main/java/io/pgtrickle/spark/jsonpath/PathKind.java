package io.pgtrickle.spark.jsonpath;

import java.util.HashMap;
import java.util.Map;

/** What an item of a jsonpath does; the name is that of the plan (applier.sql.typing.json_paths). */
enum PathKind {
    /** A literal. */
    VALUE("value"),
    /** $name. */
    VARIABLE("variable"),
    /** $. */
    ROOT("root"),
    /** @, inside a filter. */
    CURRENT("current"),
    /** .key. */
    KEY("key"),
    /** .*. */
    ANY_KEY("any_key"),
    /** [*]. */
    ANY_ELEMENT("any_element"),
    /** [1, 2 to last]. */
    ELEMENTS("elements"),
    /** .**, with levels. */
    ANY("any"),
    /** last, inside a subscript. */
    LAST("last"),
    /** .type(). */
    TYPE("type"),
    /** .size(). */
    SIZE("size"),
    /** ?(condition). */
    FILTER("filter"),
    /** .abs(). */
    ABS("abs"),
    /** .floor(). */
    FLOOR("floor"),
    /** .ceiling(). */
    CEILING("ceiling"),
    /** The sign +. */
    PLUS("plus"),
    /** The sign -. */
    MINUS("minus"),
    /** a + b. */
    ADD("+"),
    /** a - b. */
    SUBTRACT("-"),
    /** a * b. */
    MULTIPLY("*"),
    /** a / b. */
    DIVIDE("/"),
    /** a % b. */
    MODULO("%"),
    /** a && b. */
    AND("and"),
    /** a || b. */
    OR("or"),
    /** !a. */
    NOT("not"),
    /** (a) is unknown. */
    IS_UNKNOWN("is_unknown"),
    /** exists (path). */
    EXISTS("exists"),
    /** a starts with b. */
    STARTS_WITH("starts_with"),
    /** a like_regex pattern. */
    LIKE_REGEX("like_regex"),
    /** a == b. */
    EQUAL("=="),
    /** a <> b. */
    NOT_EQUAL("<>"),
    /** a < b. */
    LESS("<"),
    /** a > b. */
    GREATER(">"),
    /** a <= b. */
    LESS_OR_EQUAL("<="),
    /** a >= b. */
    GREATER_OR_EQUAL(">=");

    private static final Map<String, PathKind> BY_SYMBOL = new HashMap<>();

    static {
        for (PathKind kind : values()) BY_SYMBOL.put(kind.symbol, kind);
    }

    private final String symbol;

    PathKind(String symbol) {
        this.symbol = symbol;
    }

    /** Returns the name in the plan; for operators and methods also the one in error messages. */
    String symbol() {
        return symbol;
    }

    static PathKind of(String symbol) {
        PathKind kind = BY_SYMBOL.get(symbol);
        if (kind == null) throw new IllegalArgumentException("no such item of a jsonpath: " + symbol);
        return kind;
    }
}
