package io.pgtrickle.spark.values;

import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** Equality and containment of jsonb. Values are compared, not texts: 1 equals 1.0. */
public final class JsonComparison {
    private JsonComparison() {}

    /** a = b. */
    public static boolean areEqual(JsonValue a, JsonValue b) {
        if (a instanceof JsonNumber x && b instanceof JsonNumber y) return x.value().compare(y.value()) == 0;
        if (a instanceof JsonObject x && b instanceof JsonObject y) {
            if (x.members().size() != y.members().size()) return false;
            for (var member : x.members().entrySet()) {
                JsonValue other = y.get(member.getKey());
                if (other == null || !areEqual(member.getValue(), other)) return false;
            }
            return true;
        }
        if (a instanceof JsonArray x && b instanceof JsonArray y) {
            if (x.elements().size() != y.elements().size()) return false;
            for (int i = 0; i < x.elements().size(); i++) {
                if (!areEqual(x.elements().get(i), y.elements().get(i))) return false;
            }
            return true;
        }
        return a.equals(b);
    }

    /** Returns a value that has the same text for equal values: numbers without zeros at the end. */
    public static JsonValue normalize(JsonValue value) {
        if (value instanceof JsonNumber number) {
            return new JsonNumber(PgNumeric.of(number.value().value().stripTrailingZeros()));
        }
        if (value instanceof JsonArray array) {
            var elements = new ArrayList<JsonValue>();
            for (JsonValue element : array.elements()) elements.add(normalize(element));
            return new JsonArray(elements);
        }
        if (value instanceof JsonObject object) {
            JsonObject normal = JsonObject.create();
            object.members().forEach((key, member) -> normal.members().put(key, normalize(member)));
            return normal;
        }
        return value;
    }

    /** a @> b; at the root a scalar is an array of one element, and an array contains its own elements. */
    public static boolean contains(JsonValue a, JsonValue b) {
        if (a instanceof JsonObject || b instanceof JsonObject) {
            return a instanceof JsonObject x && b instanceof JsonObject y && containsMembers(x, y);
        }
        if (!(a instanceof JsonArray array)) return !b.isContainer() && areEqual(a, b);
        List<JsonValue> wanted = b instanceof JsonArray other ? other.elements() : List.of(b);
        for (JsonValue value : wanted) {
            if (!hasElement(array, value)) return false;
        }
        return true;
    }

    private static boolean containsMembers(JsonObject a, JsonObject b) {
        for (var member : b.members().entrySet()) {
            JsonValue own = a.get(member.getKey());
            if (own == null || !containsInside(own, member.getValue())) return false;
        }
        return true;
    }

    private static boolean hasElement(JsonArray array, JsonValue wanted) {
        for (JsonValue element : array.elements()) {
            if (containsInside(element, wanted)) return true;
        }
        return false;
    }

    /** Below the root a scalar is not an array. */
    private static boolean containsInside(JsonValue own, JsonValue wanted) {
        if (own.isContainer() && wanted.isContainer()) return own.getClass() == wanted.getClass() && contains(own, wanted);
        return !own.isContainer() && !wanted.isContainer() && areEqual(own, wanted);
    }
}
