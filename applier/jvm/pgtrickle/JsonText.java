package pgtrickle;

import java.util.ArrayList;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The type json, which keeps its original text, and JSON of any value from the text of its output function.
 *
 * Each value has a kind: n a number, b a boolean, j JSON, t anything that becomes a string, d a timestamp, z one
 * with time zone; an a before the kind means an array. `r`, the names and the kinds of fields: a composite value.
 */
public final class JsonText {
    private static UTF8String shown(String value) {
        return value == null ? null : UTF8String.fromString(value);
    }

    /** ->>: a string without its quotes, SQL's NULL for JSON's null, anything else as it is written. */
    private static String plain(String value) {
        if (value == null || value.equals("null")) return null;
        return value.charAt(0) == '"' ? (String) JsonTree.parse(value) : value;
    }

    /** Returns the last member with this name, as PostgreSQL does. */
    private static String field(UTF8String json, UTF8String key) {
        ArrayList members = JsonTree.written(json.toString(), true);
        String found = null;
        for (int i = 0; members != null && i < members.size(); i += 2) {
            if (members.get(i).equals(key.toString())) found = (String) members.get(i + 1);
        }
        return found;
    }

    private static String element(UTF8String json, int index) {
        ArrayList elements = JsonTree.written(json.toString(), false);
        if (elements == null) return null;
        long i = index < 0 ? (long) elements.size() + index : index;
        return i < 0 || i >= elements.size() ? null : (String) elements.get((int) i);
    }

    public static UTF8String get(UTF8String json, UTF8String key) {
        return shown(field(json, key));
    }

    public static UTF8String get_text(UTF8String json, UTF8String key) {
        return shown(plain(field(json, key)));
    }

    public static UTF8String get(UTF8String json, int index) {
        return shown(element(json, index));
    }

    public static UTF8String get_text(UTF8String json, int index) {
        return shown(plain(element(json, index)));
    }

    public static int array_length(UTF8String json) {
        ArrayList found = JsonTree.written(json.toString(), false);
        if (found == null) throw new PgError("cannot get array length of what is no array");
        return found.size();
    }

    /** IS JSON: of any shape or of one shape, and with `unique` without duplicate keys. */
    public static boolean is_json(UTF8String text, UTF8String shape, boolean unique) {
        return JsonSyntax.valid(text.toString(), shape.toString(), unique);
    }

    static String of(String kind, String text) {
        if (text == null) return "null";
        switch (kind.charAt(0)) {
            case 'n':
                return JsonTree.isNumber(text) ? text : quoted(text);
            case 'b':
                return text.equals("t") ? "true" : "false";
            case 'j':
                return text;
            case 'd':
                return quoted(text.replace(' ', 'T'));
            case 'z':
                return quoted(text.replace(' ', 'T') + ":00");
            case 'a':
                return array(kind.substring(1), text);
            case 'r':
                return row(kind, text);
            default:
                return quoted(text);
        }
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder();
        JsonTree.quote(out, text);
        return out.toString();
    }

    private static String array(String kind, String text) {
        ArrayList elements = Arrays.parse(UTF8String.fromString(text));
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < elements.size(); i++) {
            if (i > 0) out.append(',');
            out.append(of(kind, (String) elements.get(i)));
        }
        return out.append(']').toString();
    }

    private static String row(String kind, String text) {
        if (kind.equals("r")) return "{}";
        String[] parts = kind.substring(2).split("\u0000", -1);
        ArrayList values = Rows.parse(text);
        StringBuilder out = new StringBuilder("{");
        for (int i = 0; i < values.size(); i++) {
            if (i > 0) out.append(',');
            JsonTree.quote(out, parts[2 * i]);
            out.append(':').append(of(parts[2 * i + 1], (String) values.get(i)));
        }
        return out.append('}').toString();
    }

    public static UTF8String of(UTF8String kind, UTF8String text) {
        return UTF8String.fromString(of(kind.toString(), text.toString()));
    }

    /** json_agg, json_build_array: takes JSON values and the separator between them. */
    public static UTF8String array(ArrayData values, UTF8String between) {
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < values.numElements(); i++) {
            if (i > 0) out.append(values.isNullAt(i) ? ", " : between.toString());
            out.append(values.isNullAt(i) ? "null" : values.getUTF8String(i).toString());
        }
        return UTF8String.fromString(out.append(']').toString());
    }

    /** json_object_agg, json_build_object: takes keys and JSON values; `edge` is the text just inside the braces. */
    public static UTF8String object(ArrayData keys, ArrayData values, UTF8String edge) {
        StringBuilder out = new StringBuilder("{").append(edge.toString());
        for (int i = 0; i < values.numElements(); i++) {
            if (i > 0) out.append(", ");
            if (keys.isNullAt(i)) throw new PgError("field name must not be null");
            JsonTree.quote(out, keys.getUTF8String(i).toString());
            out.append(" : ").append(values.isNullAt(i) ? "null" : values.getUTF8String(i).toString());
        }
        return UTF8String.fromString(out.append(edge.toString()).append('}').toString());
    }
}
