package io.pgtrickle.spark.jsonpath;

import static io.pgtrickle.spark.jsonpath.JsonPath.Outcome.ERROR;
import static io.pgtrickle.spark.jsonpath.JsonPath.Outcome.FOUND;
import static io.pgtrickle.spark.jsonpath.JsonPath.Outcome.NOT_FOUND;

import io.pgtrickle.spark.jsonpath.JsonPath.Outcome;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Applies a jsonpath to one document, by PostgreSQL's rules and in the order of its jsonpath_exec.c.
 *
 * `found` collects the items. If it is null, the evaluation only tests whether there is an item and ends with the
 * first. An error is raised, or with `silent` ERROR is returned.
 */
final class PathEvaluator {
    /** PostgreSQL's "last" as a level of `.**`. */
    private static final long LAST_LEVEL = 4294967295L;

    private final JsonValue root;
    private final JsonObject variables;
    private final boolean lax;
    private final PathPredicates predicates;
    /** Whether a missing member is no error; also inside `.**` of a strict path. */
    private boolean ignoresStructure;
    private boolean silent;
    /** What @ stands for. */
    private JsonValue current;
    /** The size of the innermost array whose subscripts are evaluated. */
    private int arraySize = -1;

    PathEvaluator(JsonValue root, JsonObject variables, boolean lax, boolean silent) {
        this.root = root;
        this.current = root;
        this.variables = variables;
        this.lax = lax;
        this.ignoresStructure = lax;
        this.silent = silent;
        this.predicates = new PathPredicates(this, lax);
    }

    Outcome evaluate(PathItem path, List<JsonValue> found) {
        return item(path, root, found);
    }

    Outcome exists(PathItem path) {
        if (lax) return item(path, root, null);
        var found = new ArrayList<JsonValue>();
        Outcome outcome = item(path, root, found);
        return outcome == ERROR ? ERROR : found.isEmpty() ? NOT_FOUND : FOUND;
    }

    private Outcome error(String message) {
        if (silent) return ERROR;
        throw new PgError(message);
    }

    private Outcome structureError(String message) {
        return ignoresStructure ? NOT_FOUND : error(message);
    }

    /** Returns whether the evaluation of further values is not needed. */
    private static boolean isDecided(Outcome outcome, List<JsonValue> found) {
        return outcome == ERROR || (outcome == FOUND && found == null);
    }

    private Outcome item(PathItem path, JsonValue json, List<JsonValue> found) {
        return item(path, json, found, lax);
    }

    /** Applies the next item to a result of this one; the result of the last item is found. */
    private Outcome next(PathItem path, JsonValue value, List<JsonValue> found) {
        if (path.next() != null) return item(path.next(), value, found);
        if (found != null) found.add(value);
        return FOUND;
    }

    /** Evaluates one item; with `unwrap` an array is replaced by its elements. */
    private Outcome item(PathItem path, JsonValue json, List<JsonValue> found, boolean unwrap) {
        boolean isDecided = path.next() == null && found == null;
        return switch (path.kind()) {
            case VALUE -> isDecided ? FOUND : next(path, path.value(), found);
            case VARIABLE -> next(path, variable(path.text()), found);
            case ROOT -> next(path, root, found);
            case CURRENT -> next(path, current, found);
            case KEY -> key(path, json, found, unwrap);
            case ANY_KEY -> anyKey(path, json, found, unwrap);
            case ANY_ELEMENT -> anyElement(path, json, found);
            case ELEMENTS -> elements(path, json, found);
            case ANY -> anyLevel(path, json, found);
            case LAST -> isDecided ? FOUND : next(path, number(arraySize - 1), found);
            case TYPE -> next(path, new JsonString(json.typeName()), found);
            case SIZE -> size(path, json, found);
            case FILTER -> filter(path, json, found, unwrap);
            case ABS, FLOOR, CEILING -> method(path, json, found, unwrap);
            case PLUS, MINUS -> sign(path, json, found);
            case ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO -> arithmetic(path, json, found);
            case AND, OR, NOT, IS_UNKNOWN, EXISTS, STARTS_WITH, LIKE_REGEX, EQUAL, NOT_EQUAL, LESS, GREATER,
                LESS_OR_EQUAL, GREATER_OR_EQUAL -> {
                Truth truth = predicates.evaluate(path, json);
                JsonValue value = truth == Truth.UNKNOWN ? JsonNull.NULL : JsonBoolean.of(truth == Truth.TRUE);
                yield isDecided ? FOUND : next(path, value, found);
            }
        };
    }

    private static JsonNumber number(long value) {
        return new JsonNumber(PgNumeric.of(value));
    }

    private JsonValue variable(String name) {
        JsonValue value = variables.get(name);
        if (value == null) throw new PgError("could not find jsonpath variable \"" + name + "\"");
        return value;
    }

    private Outcome key(PathItem path, JsonValue json, List<JsonValue> found, boolean unwrap) {
        if (json instanceof JsonObject object) {
            JsonValue value = object.get(path.text());
            if (value != null) return next(path, value, found);
            return structureError("JSON object does not contain key \"" + path.text() + "\"");
        }
        if (unwrap && json instanceof JsonArray array) return unwrapped(path, array, found, false);
        return structureError("jsonpath member accessor can only be applied to an object");
    }

    private Outcome anyKey(PathItem path, JsonValue json, List<JsonValue> found, boolean unwrap) {
        if (json instanceof JsonObject) return members(path.next(), json, found, 1, 1, 1, false, lax);
        if (unwrap && json instanceof JsonArray array) return unwrapped(path, array, found, false);
        return structureError("jsonpath wildcard member accessor can only be applied to an object");
    }

    private Outcome anyElement(PathItem path, JsonValue json, List<JsonValue> found) {
        if (json instanceof JsonArray array) return unwrapped(path.next(), array, found, lax);
        if (lax) return next(path, json, found);
        return structureError("jsonpath wildcard array accessor can only be applied to an array");
    }

    private Outcome unwrapped(PathItem path, JsonArray array, List<JsonValue> found, boolean unwrap) {
        return members(path, array, found, 1, 1, 1, false, unwrap);
    }

    private Outcome elements(PathItem path, JsonValue json, List<JsonValue> found) {
        boolean isArray = json instanceof JsonArray;
        if (!isArray && !lax) return structureError("jsonpath array accessor can only be applied to an array");
        List<JsonValue> elements = json instanceof JsonArray array ? array.elements() : List.of(json);
        int outerSize = arraySize;
        arraySize = elements.size();
        Outcome outcome = NOT_FOUND;
        for (PathItem.Subscript subscript : path.subscripts()) {
            Long from = subscript(subscript.from(), json);
            Long to = from == null || subscript.to() == null ? from : subscript(subscript.to(), json);
            if (from == null || to == null) {
                outcome = ERROR;
                break;
            }
            // From here PostgreSQL returns without setting the size back, and so do we.
            if (!ignoresStructure && (from < 0 || from > to || to >= elements.size())) {
                return error("jsonpath array subscript is out of bounds");
            }
            outcome = NOT_FOUND;
            for (long at = Math.max(from, 0); at <= Math.min(to, elements.size() - 1); at++) {
                if (path.next() == null && found == null) return FOUND;
                outcome = next(path, elements.get((int) at), found);
                if (isDecided(outcome, found)) break;
            }
            if (isDecided(outcome, found)) break;
        }
        arraySize = outerSize;
        return outcome;
    }

    /** Returns a subscript, or null for an error. */
    private Long subscript(PathItem path, JsonValue json) {
        var found = new ArrayList<JsonValue>();
        if (item(path, json, found) == ERROR) return null;
        if (found.size() != 1 || !(found.get(0) instanceof JsonNumber number)) {
            error("jsonpath array subscript is not a single numeric value");
            return null;
        }
        BigDecimal whole = number.value().value().setScale(0, RoundingMode.DOWN);
        if (whole.precision() > 10 || whole.longValue() != whole.intValue()) {
            error("jsonpath array subscript is out of integer range");
            return null;
        }
        return whole.longValue();
    }

    private Outcome anyLevel(PathItem path, JsonValue json, List<JsonValue> found) {
        Outcome outcome = NOT_FOUND;
        if (path.first() == 0) {
            boolean before = ignoresStructure;
            ignoresStructure = true;
            outcome = next(path, json, found);
            ignoresStructure = before;
            if (outcome == FOUND && found == null) return FOUND;
        }
        if (!json.isContainer()) return outcome;
        return members(path.next(), json, found, 1, path.first(), path.last(), true, lax);
    }

    /** Applies a path to the members of an array or object, and recursively to their members, down to a level. */
    private Outcome members(
        PathItem path, JsonValue json, List<JsonValue> found, long level, long first, long last,
        boolean ignoreStructure, boolean unwrap) {
        Outcome outcome = NOT_FOUND;
        if (level > last) return outcome;
        Collection<JsonValue> values =
            json instanceof JsonObject object ? object.members().values() : ((JsonArray) json).elements();
        for (JsonValue value : values) {
            if (level >= first || (first == LAST_LEVEL && last == LAST_LEVEL && !value.isContainer())) {
                if (path != null) {
                    boolean before = ignoresStructure;
                    if (ignoreStructure) ignoresStructure = true;
                    outcome = item(path, value, found, unwrap);
                    ignoresStructure = before;
                    if (isDecided(outcome, found)) return outcome;
                } else if (found != null) {
                    found.add(value);
                } else {
                    return FOUND;
                }
            }
            if (level < last && value.isContainer()) {
                outcome = members(path, value, found, level + 1, first, last, ignoreStructure, unwrap);
                if (isDecided(outcome, found)) return outcome;
            }
        }
        return outcome;
    }

    private Outcome size(PathItem path, JsonValue json, List<JsonValue> found) {
        if (json instanceof JsonArray array) return next(path, number(array.elements().size()), found);
        if (lax) return next(path, number(1), found);
        return structureError("jsonpath item method .size() can only be applied to an array");
    }

    private Outcome filter(PathItem path, JsonValue json, List<JsonValue> found, boolean unwrap) {
        if (unwrap && json instanceof JsonArray array) return unwrapped(path, array, found, false);
        JsonValue before = current;
        current = json;
        Truth truth = predicates.evaluate(path.left(), json);
        current = before;
        return truth == Truth.TRUE ? next(path, json, found) : NOT_FOUND;
    }

    private Outcome method(PathItem path, JsonValue json, List<JsonValue> found, boolean unwrap) {
        if (unwrap && json instanceof JsonArray array) return unwrapped(path, array, found, false);
        if (!(json instanceof JsonNumber number)) {
            String name = path.kind().symbol();
            return error("jsonpath item method ." + name + "() can only be applied to a numeric value");
        }
        if (path.next() == null && found == null) return FOUND;
        return next(path, PathComparison.applyMethod(path.kind(), number), found);
    }

    /** Finds the items of an operand; with `unwrap`, in lax mode, arrays are replaced by their elements. */
    private Outcome operand(PathItem path, JsonValue json, boolean unwrap, List<JsonValue> found) {
        if (!unwrap || !lax) return item(path, json, found);
        var whole = new ArrayList<JsonValue>();
        if (item(path, json, whole) == ERROR) return ERROR;
        for (JsonValue value : whole) {
            if (value instanceof JsonArray array) found.addAll(array.elements());
            else found.add(value);
        }
        return FOUND;
    }

    /** As `operand`, but an error is an outcome. */
    Outcome silentOperand(PathItem path, JsonValue json, boolean unwrap, List<JsonValue> found) {
        boolean before = silent;
        silent = true;
        Outcome outcome = operand(path, json, unwrap, found);
        silent = before;
        return outcome;
    }

    private Outcome arithmetic(PathItem path, JsonValue json, List<JsonValue> found) {
        var left = new ArrayList<JsonValue>();
        var right = new ArrayList<JsonValue>();
        if (operand(path.left(), json, true, left) == ERROR) return ERROR;
        if (operand(path.right(), json, true, right) == ERROR) return ERROR;
        String operator = "operand of jsonpath operator " + path.kind().symbol() + " is not a single numeric value";
        if (left.size() != 1 || !(left.get(0) instanceof JsonNumber a)) return error("left " + operator);
        if (right.size() != 1 || !(right.get(0) instanceof JsonNumber b)) return error("right " + operator);
        JsonNumber result;
        try {
            result = PathComparison.calculate(path.kind(), a, b);
        } catch (PgError e) {
            if (silent) return ERROR;
            throw e;
        }
        return path.next() == null && found == null ? FOUND : next(path, result, found);
    }

    private Outcome sign(PathItem path, JsonValue json, List<JsonValue> found) {
        var operands = new ArrayList<JsonValue>();
        if (operand(path.left(), json, true, operands) == ERROR) return ERROR;
        boolean isDecided = path.next() == null && found == null;
        Outcome outcome = NOT_FOUND;
        for (JsonValue operand : operands) {
            if (!(operand instanceof JsonNumber number)) {
                if (isDecided) continue;
                return error("operand of unary jsonpath operator is not a numeric value");
            }
            if (isDecided) return FOUND;
            JsonNumber signed = path.kind() == PathKind.MINUS ? new JsonNumber(number.value().negate()) : number;
            Outcome own = next(path, signed, found);
            if (isDecided(own, found)) return own;
            if (own == FOUND) outcome = FOUND;
        }
        return outcome;
    }
}
