package io.pgtrickle.spark.functions;

import io.pgtrickle.spark.values.JsonComparison;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import org.apache.spark.unsafe.types.UTF8String;

/** Comparisons of jsonb, and tests for keys. */
public final class JsonKeys {
    private JsonKeys() {}

    /** a @> b. */
    @SqlFunction("pg_json_contains")
    public static boolean contains(UTF8String a, UTF8String b) {
        return JsonComparison.contains(JsonAccess.parse(a), JsonAccess.parse(b));
    }

    /** a = b. */
    @SqlFunction("pg_json_eq")
    public static boolean areEqual(UTF8String a, UTF8String b) {
        return a.equals(b) || JsonComparison.areEqual(JsonAccess.parse(a), JsonAccess.parse(b));
    }

    /** Returns the same text for equal values. */
    @SqlFunction("pg_json_key")
    public static UTF8String key(UTF8String json) {
        return JsonAccess.text(JsonComparison.normalize(JsonAccess.parse(json)));
    }

    private static boolean has(JsonValue value, String key) {
        if (value instanceof JsonObject object) return object.members().containsKey(key);
        var string = new JsonString(key);
        return value instanceof JsonArray array ? array.elements().contains(string) : value.equals(string);
    }

    /** json ? key. */
    @SqlFunction("pg_json_exists")
    public static boolean hasKey(UTF8String json, UTF8String key) {
        return has(JsonAccess.parse(json), key.toString());
    }

    /** json ?| keys. */
    @SqlFunction("pg_json_exists_any")
    public static boolean hasAnyKey(UTF8String json, UTF8String keys) {
        JsonValue value = JsonAccess.parse(json);
        for (String key : ArrayFunctions.parse(keys)) {
            if (key != null && has(value, key)) return true;
        }
        return false;
    }

    /** json ?& keys. */
    @SqlFunction("pg_json_exists_all")
    public static boolean hasAllKeys(UTF8String json, UTF8String keys) {
        JsonValue value = JsonAccess.parse(json);
        for (String key : ArrayFunctions.parse(keys)) {
            if (key != null && !has(value, key)) return false;
        }
        return true;
    }
}
