package io.pgtrickle.spark.jsonpath;

import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.NumericArithmetic;
import io.pgtrickle.spark.values.PatternCache;
import io.pgtrickle.spark.values.PgNumeric;
import java.math.RoundingMode;
import org.apache.spark.unsafe.types.UTF8String;

/** Operators and methods of a jsonpath on single items. */
final class PathComparison {
    private PathComparison() {}

    /** Compares two items; values of different types are not comparable, but null differs from all others. */
    static Truth compare(PathKind operator, JsonValue a, JsonValue b) {
        if (operator == PathKind.STARTS_WITH || operator == PathKind.LIKE_REGEX) return match(operator, a, b);
        Integer order = order(a, b);
        if (order != null) return Truth.of(holds(operator, order));
        boolean oneIsNull = a == JsonNull.NULL || b == JsonNull.NULL;
        return oneIsNull ? Truth.of(operator == PathKind.NOT_EQUAL) : Truth.UNKNOWN;
    }

    private static Truth match(PathKind operator, JsonValue a, JsonValue b) {
        if (!(a instanceof JsonString x && b instanceof JsonString y)) return Truth.UNKNOWN;
        return Truth.of(operator == PathKind.STARTS_WITH ? x.text().startsWith(y.text())
            : PatternCache.matcher(y.text(), x.text()).find());
    }

    /** Returns the order of two scalars of the same type, null for anything else. */
    private static Integer order(JsonValue a, JsonValue b) {
        if (a instanceof JsonNumber x && b instanceof JsonNumber y) return x.value().compare(y.value());
        if (a instanceof JsonString x && b instanceof JsonString y) {
            return UTF8String.fromString(x.text()).compareTo(UTF8String.fromString(y.text()));
        }
        if (a instanceof JsonBoolean x && b instanceof JsonBoolean y) return x.compareTo(y);
        return a == JsonNull.NULL && b == JsonNull.NULL ? 0 : null;
    }

    private static boolean holds(PathKind operator, int order) {
        return switch (operator) {
            case EQUAL -> order == 0;
            case NOT_EQUAL -> order != 0;
            case LESS -> order < 0;
            case GREATER -> order > 0;
            case LESS_OR_EQUAL -> order <= 0;
            case GREATER_OR_EQUAL -> order >= 0;
            default -> throw new IllegalArgumentException("not a comparison: " + operator);
        };
    }

    /** Computes a + b and the like. */
    static JsonNumber calculate(PathKind operator, JsonNumber a, JsonNumber b) {
        PgNumeric x = a.value();
        PgNumeric y = b.value();
        return number(switch (operator) {
            case ADD -> NumericArithmetic.sum(x, y);
            case SUBTRACT -> NumericArithmetic.sum(x, y.negate());
            case MULTIPLY -> NumericArithmetic.product(x, y);
            case DIVIDE -> NumericArithmetic.quotient(x, y);
            case MODULO -> NumericArithmetic.remainder(x, y);
            default -> throw new IllegalArgumentException("not an operator: " + operator);
        });
    }

    /** Computes .abs(), .floor() and .ceiling(). */
    static JsonNumber applyMethod(PathKind method, JsonNumber a) {
        return number(switch (method) {
            case ABS -> NumericArithmetic.abs(a.value());
            case FLOOR -> NumericArithmetic.toScale(a.value(), 0, RoundingMode.FLOOR);
            case CEILING -> NumericArithmetic.toScale(a.value(), 0, RoundingMode.CEILING);
            default -> throw new IllegalArgumentException("not a method: " + method);
        });
    }

    /** Finite numbers give finite results. */
    private static JsonNumber number(PgNumeric value) {
        return new JsonNumber((PgNumeric.Finite) value);
    }
}
