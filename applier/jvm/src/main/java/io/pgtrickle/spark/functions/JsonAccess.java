package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.JsonReader;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.JsonWriter;
import io.pgtrickle.spark.values.PgError;
import java.util.ArrayList;
import java.util.Collection;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions that take a jsonb apart. A jsonb is PostgreSQL's text of it. */
public final class JsonAccess {
    private static final Pattern INDEX = Pattern.compile("\\s*[+-]?\\d{1,10}");

    private JsonAccess() {}

    static JsonValue parse(UTF8String json) {
        return JsonReader.parse(json.toString());
    }

    /** Returns the text of a value, null for a missing one. */
    static UTF8String text(JsonValue value) {
        return value == null ? null : fromString(JsonWriter.print(value));
    }

    /** ->>: a string without its quotes, SQL's NULL for JSON's null. */
    private static UTF8String plainText(JsonValue value) {
        if (value == null || value == JsonNull.NULL) return null;
        return value instanceof JsonString string ? fromString(string.text()) : text(value);
    }

    /** Reads a jsonb and writes it as PostgreSQL does. */
    @SqlFunction("pg_json_in")
    public static UTF8String normalize(UTF8String input) {
        return text(parse(input));
    }

    private static JsonValue member(UTF8String json, UTF8String key) {
        return parse(json) instanceof JsonObject object ? object.get(key.toString()) : null;
    }

    /** json -> key. */
    @SqlFunction("pg_json_get")
    public static UTF8String get(UTF8String json, UTF8String key) {
        return text(member(json, key));
    }

    /** json ->> key. */
    @SqlFunction("pg_json_get_text")
    public static UTF8String getText(UTF8String json, UTF8String key) {
        return plainText(member(json, key));
    }

    /** jsonb stores a scalar at the root as an array of one element, and -> sees that array. */
    private static JsonValue element(UTF8String json, int index) {
        JsonValue value = parse(json);
        if (value instanceof JsonArray array) return array.get(index);
        return !value.isContainer() && (index == 0 || index == -1) ? value : null;
    }

    /** json -> index. */
    @SqlFunction("pg_json_get")
    public static UTF8String get(UTF8String json, int index) {
        return text(element(json, index));
    }

    /** json ->> index. */
    @SqlFunction("pg_json_get_text")
    public static UTF8String getText(UTF8String json, int index) {
        return plainText(element(json, index));
    }

    private static JsonValue follow(UTF8String json, UTF8String path) {
        JsonValue value = parse(json);
        for (String step : ArrayFunctions.parse(path)) {
            if (step == null || value == null) return null;
            if (value instanceof JsonObject object) {
                value = object.get(step);
            } else if (value instanceof JsonArray array && INDEX.matcher(step).matches()) {
                long index = Long.parseLong(step.trim());
                value = index == (int) index ? array.get(index) : null;
            } else {
                return null;
            }
        }
        return value;
    }

    /** json #> path. */
    @SqlFunction("pg_json_path_get")
    public static UTF8String getPath(UTF8String json, UTF8String path) {
        return text(follow(json, path));
    }

    /** json #>> path. */
    @SqlFunction("pg_json_path_text")
    public static UTF8String getPathText(UTF8String json, UTF8String path) {
        return plainText(follow(json, path));
    }

    /** jsonb_typeof. */
    @SqlFunction("pg_json_type")
    public static UTF8String type(UTF8String json) {
        return fromString(parse(json).typeName());
    }

    /** jsonb_array_length. */
    @SqlFunction("pg_json_array_length")
    public static int arrayLength(UTF8String json) {
        JsonValue value = parse(json);
        if (value instanceof JsonArray array) return array.elements().size();
        throw new PgError("cannot get array length of " + (value.isContainer() ? "a non-array" : "a scalar"));
    }

    private static JsonObject parseObject(UTF8String json) {
        JsonValue value = parse(json);
        if (value instanceof JsonObject object) return object;
        throw new PgError("cannot list the keys of " + (value.isContainer() ? "an array" : "a scalar"));
    }

    /** Returns an array of the keys of an object, in jsonb's order. */
    @SqlFunction("pg_json_keys")
    public static UTF8String keys(UTF8String json) {
        return ArrayFunctions.text(new ArrayList<>(parseObject(json).members().keySet()));
    }

    /** Returns an array of the values of an object. */
    @SqlFunction("pg_json_values")
    public static UTF8String values(UTF8String json) {
        var texts = new ArrayList<String>();
        for (JsonValue value : parseObject(json).members().values()) texts.add(JsonWriter.print(value));
        return ArrayFunctions.text(texts);
    }

    /** Returns an array of the values of an object, each as ->> returns it. */
    @SqlFunction("pg_json_value_texts")
    public static UTF8String valueTexts(UTF8String json) {
        return plainTexts(parseObject(json).members().values());
    }

    /** Returns an array of the elements of a JSON array, each as ->> returns it. */
    @SqlFunction("pg_json_element_texts")
    public static UTF8String elementTexts(UTF8String json) {
        JsonValue value = parse(json);
        if (value instanceof JsonArray array) return plainTexts(array.elements());
        throw new PgError("cannot extract elements from " + (value.isContainer() ? "an object" : "a scalar"));
    }

    private static UTF8String plainTexts(Collection<JsonValue> values) {
        var texts = new ArrayList<String>();
        for (JsonValue value : values) texts.add(ArrayFunctions.stringOf(plainText(value)));
        return ArrayFunctions.text(texts);
    }
}
