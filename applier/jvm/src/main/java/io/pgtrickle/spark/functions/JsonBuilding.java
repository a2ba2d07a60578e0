package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.JsonAccess.parse;
import static io.pgtrickle.spark.functions.JsonAccess.text;

import io.pgtrickle.spark.values.JsonReader;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.JsonWriter;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions that make a jsonb from other values or from another jsonb. */
public final class JsonBuilding {
    private JsonBuilding() {}

    /** Returns the JSON value at a place, JSON's null for NULL. */
    private static JsonValue valueAt(ArrayData values, int i) {
        return values.isNullAt(i) ? JsonNull.NULL : parse(values.getUTF8String(i));
    }

    /** to_jsonb of the text of an output function; for the kinds see JsonTextFunctions. */
    @SqlFunction("pg_json_of")
    public static UTF8String ofText(UTF8String kind, UTF8String value) {
        String number = value.toString();
        // A number stays as it is, but without an exponent.
        return kind.toString().equals("n") && JsonReader.isNumber(number)
            ? UTF8String.fromString(PgNumeric.parse(number).toString())
            : text(parse(JsonTextFunctions.ofText(kind, value)));
    }

    /** jsonb_build_object: alternating keys and JSON values; later keys win. */
    @SqlFunction("pg_json_object")
    public static UTF8String object(ArrayData parts) {
        JsonObject object = JsonObject.create();
        for (int i = 0; i + 1 < parts.numElements(); i += 2) {
            if (parts.isNullAt(i)) throw new PgError("argument " + (i + 1) + ": key must not be null");
            object.members().put(parts.getUTF8String(i).toString(), valueAt(parts, i + 1));
        }
        return text(object);
    }

    /** jsonb_build_array and jsonb_agg. */
    @SqlFunction("pg_json_array")
    public static UTF8String array(ArrayData parts) {
        var elements = new ArrayList<JsonValue>();
        for (int i = 0; i < parts.numElements(); i++) elements.add(valueAt(parts, i));
        return text(new JsonArray(elements));
    }

    /** jsonb_object_agg: with `decided` the last value of a key wins, else all values of a key must be equal. */
    @SqlFunction("pg_json_object_agg")
    public static UTF8String objectAggregate(ArrayData keys, ArrayData values, boolean decided, UTF8String undecided) {
        JsonObject object = JsonObject.create();
        for (int i = 0; i < keys.numElements(); i++) {
            if (keys.isNullAt(i)) throw new PgError("field name must not be null");
            JsonValue value = valueAt(values, i);
            JsonValue before = object.members().put(keys.getUTF8String(i).toString(), value);
            if (before != null && !decided && !JsonWriter.print(before).equals(JsonWriter.print(value))) {
                throw new RuntimeException(undecided.toString());
            }
        }
        return text(object);
    }

    /** first || second: members of two objects, or elements, where anything but an array is one element. */
    @SqlFunction("pg_json_concat")
    public static UTF8String concatenate(UTF8String first, UTF8String second) {
        JsonValue a = parse(first);
        JsonValue b = parse(second);
        if (a instanceof JsonObject x && b instanceof JsonObject y) {
            x.members().putAll(y.members());
            return text(x);
        }
        var elements = new ArrayList<>(elementsOf(a));
        elements.addAll(elementsOf(b));
        return text(new JsonArray(elements));
    }

    private static List<JsonValue> elementsOf(JsonValue value) {
        return value instanceof JsonArray array ? array.elements() : List.of(value);
    }

    /** json - key: without the member, or without the elements that are this string. */
    @SqlFunction("pg_json_delete")
    public static UTF8String delete(UTF8String json, UTF8String key) {
        JsonValue value = parse(json);
        if (value instanceof JsonObject object) {
            object.members().remove(key.toString());
        } else if (value instanceof JsonArray array) {
            array.elements().removeIf(new JsonString(key.toString())::equals);
        } else {
            throw new PgError("cannot delete from scalar");
        }
        return text(value);
    }

    /** json - index. */
    @SqlFunction("pg_json_delete")
    public static UTF8String delete(UTF8String json, int index) {
        JsonValue value = parse(json);
        if (value instanceof JsonObject) throw new PgError("cannot delete from object using integer index");
        if (!(value instanceof JsonArray array)) throw new PgError("cannot delete from scalar");
        List<JsonValue> elements = array.elements();
        long place = index < 0 ? (long) elements.size() + index : index;
        if (place >= 0 && place < elements.size()) elements.remove((int) place);
        return text(array);
    }

    /** jsonb_strip_nulls: without members whose value is null. */
    @SqlFunction("pg_json_strip_nulls")
    public static UTF8String stripNulls(UTF8String json) {
        return text(withoutNulls(parse(json)));
    }

    private static JsonValue withoutNulls(JsonValue value) {
        if (value instanceof JsonArray array) {
            var elements = new ArrayList<JsonValue>();
            for (JsonValue element : array.elements()) elements.add(withoutNulls(element));
            return new JsonArray(elements);
        }
        if (!(value instanceof JsonObject object)) return value;
        JsonObject out = JsonObject.create();
        object.members().forEach((key, member) -> {
            if (member != JsonNull.NULL) out.members().put(key, withoutNulls(member));
        });
        return out;
    }
}
