package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.JsonReader;
import io.pgtrickle.spark.values.JsonReader.WrittenMember;
import io.pgtrickle.spark.values.JsonSyntax;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.JsonWriter;
import io.pgtrickle.spark.values.PgArray;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgRow;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The type json, which keeps its original text, and JSON of any value from the text of its output function.
 *
 * Each value has a kind: n a number, b a boolean, j JSON, t anything that becomes a string, d a timestamp, z one
 * with time zone; an a before the kind means an array. `r`, the names and the kinds of fields: a composite value.
 */
public final class JsonTextFunctions {
    private JsonTextFunctions() {}

    /** ->>: a string without its quotes, SQL's NULL for JSON's null, anything else as it is written. */
    private static String plainText(String written) {
        if (written == null || written.equals("null")) return null;
        return written.charAt(0) == '"' ? ((JsonString) JsonReader.parse(written)).text() : written;
    }

    /** Returns the last member with this name, as PostgreSQL does. */
    private static String member(UTF8String json, UTF8String key) {
        List<WrittenMember> members = JsonReader.writtenMembers(json.toString());
        if (members == null) return null;
        String wanted = key.toString();
        String found = null;
        for (WrittenMember member : members) {
            if (member.key().equals(wanted)) found = member.value();
        }
        return found;
    }

    private static String element(UTF8String json, int index) {
        List<String> elements = JsonReader.writtenElements(json.toString());
        if (elements == null) return null;
        long place = index < 0 ? (long) elements.size() + index : index;
        return place < 0 || place >= elements.size() ? null : elements.get((int) place);
    }

    /** json -> key. */
    @SqlFunction("pg_jsontext_get")
    public static UTF8String get(UTF8String json, UTF8String key) {
        return fromString(member(json, key));
    }

    /** json ->> key. */
    @SqlFunction("pg_jsontext_get_text")
    public static UTF8String getText(UTF8String json, UTF8String key) {
        return fromString(plainText(member(json, key)));
    }

    /** json -> index. */
    @SqlFunction("pg_jsontext_get")
    public static UTF8String get(UTF8String json, int index) {
        return fromString(element(json, index));
    }

    /** json ->> index. */
    @SqlFunction("pg_jsontext_get_text")
    public static UTF8String getText(UTF8String json, int index) {
        return fromString(plainText(element(json, index)));
    }

    /** json_array_length. */
    @SqlFunction("pg_jsontext_array_length")
    public static int arrayLength(UTF8String json) {
        List<String> elements = JsonReader.writtenElements(json.toString());
        if (elements == null) throw new PgError("cannot get array length of what is no array");
        return elements.size();
    }

    /** IS JSON: of any shape or of one shape, and with `unique` without duplicate keys. */
    @SqlFunction("pg_jsontext_is_json")
    public static boolean isJson(UTF8String text, UTF8String shape, boolean unique) {
        return JsonSyntax.isValid(text.toString(), shape.toString(), unique);
    }

    /** to_json of the text of an output function. */
    @SqlFunction("pg_jsontext_of")
    public static UTF8String ofText(UTF8String kind, UTF8String text) {
        return fromString(toJson(kind.toString(), text.toString()));
    }

    private static String toJson(String kind, String text) {
        if (text == null) return "null";
        return switch (kind.charAt(0)) {
            case 'n' -> JsonReader.isNumber(text) ? text : JsonWriter.quote(text);
            case 'b' -> text.equals("t") ? "true" : "false";
            case 'j' -> text;
            case 'd' -> JsonWriter.quote(text.replace(' ', 'T'));
            case 'z' -> JsonWriter.quote(text.replace(' ', 'T') + ":00");
            case 'a' -> arrayToJson(kind.substring(1), text);
            case 'r' -> kind.equals("r") ? "{}" : rowToJson(kind.substring(2).split("\u0000", -1), text);
            default -> JsonWriter.quote(text);
        };
    }

    private static String arrayToJson(String kind, String text) {
        var elements = new ArrayList<String>();
        for (String element : PgArray.parse(text)) elements.add(toJson(kind, element));
        return "[" + String.join(",", elements) + "]";
    }

    /** `fields` alternates names and kinds. */
    private static String rowToJson(String[] fields, String text) {
        List<String> values = PgRow.parse(text);
        var members = new ArrayList<String>();
        for (int i = 0; i < values.size(); i++) {
            members.add(JsonWriter.quote(fields[2 * i]) + ":" + toJson(fields[2 * i + 1], values.get(i)));
        }
        return "{" + String.join(",", members) + "}";
    }

    /** json_agg, json_build_array: takes JSON values and the separator between them. */
    @SqlFunction("pg_jsontext_array")
    public static UTF8String array(ArrayData values, UTF8String between) {
        var out = new StringBuilder("[");
        for (int i = 0; i < values.numElements(); i++) {
            boolean isNull = values.isNullAt(i);
            if (i > 0) out.append(isNull ? ", " : between.toString());
            out.append(isNull ? "null" : values.getUTF8String(i).toString());
        }
        return fromString(out.append(']').toString());
    }

    /** json_object_agg, json_build_object: takes keys and JSON values; `edge` is the text just inside the braces. */
    @SqlFunction("pg_jsontext_object")
    public static UTF8String object(ArrayData keys, ArrayData values, UTF8String edge) {
        var out = new StringBuilder("{").append(edge);
        for (int i = 0; i < values.numElements(); i++) {
            if (i > 0) out.append(", ");
            if (keys.isNullAt(i)) throw new PgError("field name must not be null");
            JsonWriter.quote(out, keys.getUTF8String(i).toString()).append(" : ");
            out.append(values.isNullAt(i) ? "null" : values.getUTF8String(i).toString());
        }
        return fromString(out.append(edge).append('}').toString());
    }
}
