package io.pgtrickle.spark.jsonpath;

import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import java.util.ArrayList;
import java.util.List;

/**
 * One item of a jsonpath and the item after it; what an item does not have is null.
 *
 * @param kind what it does
 * @param next the item after it, applied to each of its results
 * @param left the operand, the first operand, or the condition of a filter
 * @param right the second operand
 * @param value a literal, a key, the name of a variable, or a pattern in Java's dialect
 * @param subscripts the subscripts of an array
 * @param first the first level of `.**`
 * @param last the last level of `.**`
 */
record PathItem(
    PathKind kind, PathItem next, PathItem left, PathItem right, JsonValue value, List<Subscript> subscripts,
    long first, long last) {

    /** A subscript; `to` is null for a single element. */
    record Subscript(PathItem from, PathItem to) {}

    /** Reads the JSON form of the plan (applier.sql.typing.json_paths); a missing tree is a missing item. */
    static PathItem of(JsonValue tree) {
        if (tree == null || tree == JsonNull.NULL) return null;
        var object = (JsonObject) tree;
        return new PathItem(
            PathKind.of(((JsonString) object.get("kind")).text()), of(object.get("next")), of(object.get("left")),
            of(object.get("right")), object.get("value"), subscripts(object.get("places")), level(object.get("first")),
            level(object.get("last")));
    }

    /** The plan lists the subscripts as from, to, from, to and so on. */
    private static List<Subscript> subscripts(JsonValue places) {
        var subscripts = new ArrayList<Subscript>();
        if (places instanceof JsonArray array) {
            for (int i = 0; i < array.elements().size(); i += 2) {
                subscripts.add(new Subscript(of(array.get(i)), of(array.get(i + 1))));
            }
        }
        return subscripts;
    }

    private static long level(JsonValue number) {
        return number == null ? 0 : ((JsonNumber) number).value().value().longValueExact();
    }

    /** Returns the key, the name of a variable, or the pattern. */
    String text() {
        return ((JsonString) value).text();
    }
}
