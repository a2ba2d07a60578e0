package io.pgtrickle.spark.values;

import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;

/** Writes a jsonb as PostgreSQL does. */
public final class JsonWriter {
    private JsonWriter() {}

    /** Returns the text of jsonb_out. */
    public static String print(JsonValue value) {
        var out = new StringBuilder();
        print(out, value);
        return out.toString();
    }

    private static void print(StringBuilder out, JsonValue value) {
        if (value instanceof JsonObject object) {
            String between = "{";
            for (var member : object.members().entrySet()) {
                quote(out.append(between), member.getKey());
                print(out.append(": "), member.getValue());
                between = ", ";
            }
            out.append(object.members().isEmpty() ? "{}" : "}");
        } else if (value instanceof JsonArray array) {
            String between = "[";
            for (JsonValue element : array.elements()) {
                print(out.append(between), element);
                between = ", ";
            }
            out.append(array.elements().isEmpty() ? "[]" : "]");
        } else if (value instanceof JsonString string) {
            quote(out, string.text());
        } else {
            out.append(printPlain(value));
        }
    }

    /** Returns the text of a scalar as ->> gives it: a string without its quotes. */
    public static String printScalar(JsonValue scalar) {
        return scalar instanceof JsonString string ? string.text() : printPlain(scalar);
    }

    private static String printPlain(JsonValue value) {
        return value instanceof JsonNumber number ? number.value().toString()
            : value == JsonValue.JsonBoolean.TRUE ? "true" : value == JsonValue.JsonBoolean.FALSE ? "false" : "null";
    }

    /** Returns the text as a JSON string. */
    public static String quote(String text) {
        return quote(new StringBuilder(), text).toString();
    }

    /** Appends the text as a JSON string. */
    public static StringBuilder quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            switch (c) {
                case '\b' -> out.append("\\b");
                case '\f' -> out.append("\\f");
                case '\n' -> out.append("\\n");
                case '\r' -> out.append("\\r");
                case '\t' -> out.append("\\t");
                case '"', '\\' -> out.append('\\').append(c);
                default -> {
                    if (c < ' ') out.append(String.format("\\u%04x", (int) c));
                    else out.append(c);
                }
            }
        }
        return out.append('"');
    }
}
