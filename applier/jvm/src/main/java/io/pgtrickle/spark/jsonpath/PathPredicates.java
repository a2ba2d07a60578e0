package io.pgtrickle.spark.jsonpath;

import static io.pgtrickle.spark.jsonpath.JsonPath.Outcome.ERROR;
import static io.pgtrickle.spark.jsonpath.JsonPath.Outcome.FOUND;

import io.pgtrickle.spark.jsonpath.JsonPath.Outcome;
import io.pgtrickle.spark.values.JsonValue;
import java.util.ArrayList;
import java.util.List;

/** Evaluates the predicates of a jsonpath; errors of their operands are not raised but make them unknown. */
final class PathPredicates {
    private final PathEvaluator evaluator;
    private final boolean lax;

    PathPredicates(PathEvaluator evaluator, boolean lax) {
        this.evaluator = evaluator;
        this.lax = lax;
    }

    Truth evaluate(PathItem path, JsonValue json) {
        return switch (path.kind()) {
            case AND -> {
                Truth first = evaluate(path.left(), json);
                yield first == Truth.FALSE ? first : first.and(evaluate(path.right(), json));
            }
            case OR -> {
                Truth first = evaluate(path.left(), json);
                yield first == Truth.TRUE ? first : first.or(evaluate(path.right(), json));
            }
            case NOT -> evaluate(path.left(), json).not();
            case IS_UNKNOWN -> Truth.of(evaluate(path.left(), json) == Truth.UNKNOWN);
            case EXISTS -> {
                List<JsonValue> found = lax ? null : new ArrayList<>();
                Outcome outcome = evaluator.silentOperand(path.left(), json, false, found);
                if (outcome == ERROR) yield Truth.UNKNOWN;
                yield Truth.of(found == null ? outcome == FOUND : !found.isEmpty());
            }
            default -> predicate(path, json);
        };
    }

    /** Returns whether any pair of items satisfies the comparison. */
    private Truth predicate(PathItem path, JsonValue json) {
        var left = new ArrayList<JsonValue>();
        var right = new ArrayList<JsonValue>();
        if (evaluator.silentOperand(path.left(), json, true, left) == ERROR) return Truth.UNKNOWN;
        if (path.right() == null) {
            right.add(path.value());
        } else {
            boolean unwrap = path.kind() != PathKind.STARTS_WITH;
            if (evaluator.silentOperand(path.right(), json, unwrap, right) == ERROR) return Truth.UNKNOWN;
        }
        Truth result = Truth.FALSE;
        for (JsonValue a : left) {
            for (JsonValue b : right) {
                Truth own = PathComparison.compare(path.kind(), a, b);
                if (own == (lax ? Truth.TRUE : Truth.UNKNOWN)) return own;
                // In lax mode only UNKNOWN comes here, in strict mode only TRUE.
                if (own != Truth.FALSE) result = own;
            }
        }
        return result;
    }
}
