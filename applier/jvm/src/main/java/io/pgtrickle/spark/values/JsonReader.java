package io.pgtrickle.spark.values;

import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonNumber;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** Reads JSON: a text in, the value of jsonb out, or the members of a json as they are written. */
public final class JsonReader {
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?");

    private final String text;
    private int at;

    private JsonReader(String text) {
        this.text = text;
    }

    /** A member of a json object: its key, and its value as it is written. */
    public record WrittenMember(String key, String value) {}

    /** Returns the value; of several members with the same key the last one counts. */
    public static JsonValue parse(String text) {
        var reader = new JsonReader(text);
        JsonValue value = reader.readValue();
        reader.skipSpace();
        if (reader.at < text.length()) throw invalid();
        return value;
    }

    /** Returns whether a text is a JSON number. */
    public static boolean isNumber(String text) {
        return NUMBER.matcher(text).matches();
    }

    /** Returns the members of an object in their order, duplicates included; null for anything else. */
    public static List<WrittenMember> writtenMembers(String text) {
        var reader = new JsonReader(text);
        if (reader.peek() != '{') return null;
        var members = new ArrayList<WrittenMember>();
        reader.at++;
        if (reader.peek() == '}') return members;
        do {
            reader.peek();
            String key = reader.readString();
            reader.peek();
            reader.at++;
            members.add(new WrittenMember(key, reader.readWritten()));
        } while (reader.skipComma());
        return members;
    }

    /** Returns the elements of an array as they are written; null for anything else. */
    public static List<String> writtenElements(String text) {
        var reader = new JsonReader(text);
        if (reader.peek() != '[') return null;
        var elements = new ArrayList<String>();
        reader.at++;
        if (reader.peek() == ']') return elements;
        do {
            elements.add(reader.readWritten());
        } while (reader.skipComma());
        return elements;
    }

    private String readWritten() {
        peek();
        int start = at;
        readValue();
        return text.substring(start, at);
    }

    private boolean skipComma() {
        if (peek() != ',') return false;
        at++;
        return true;
    }

    private static PgError invalid() {
        return new PgError("invalid input syntax for type json");
    }

    private void skipSpace() {
        while (at < text.length()) {
            char c = text.charAt(at);
            if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
            at++;
        }
    }

    /** Returns the next character that is not white space, without moving past it. */
    private char peek() {
        skipSpace();
        if (at >= text.length()) throw invalid();
        return text.charAt(at);
    }

    private char readNext() {
        if (at >= text.length()) throw invalid();
        return text.charAt(at++);
    }

    private JsonValue readValue() {
        return switch (peek()) {
            case '{' -> readObject();
            case '[' -> readArray();
            case '"' -> new JsonString(readString());
            default -> {
                if (skipWord("true")) yield JsonBoolean.TRUE;
                if (skipWord("false")) yield JsonBoolean.FALSE;
                if (skipWord("null")) yield JsonNull.NULL;
                yield readNumber();
            }
        };
    }

    private boolean skipWord(String word) {
        if (!text.startsWith(word, at)) return false;
        int end = at + word.length();
        if (end < text.length() && (Character.isLetterOrDigit(text.charAt(end)) || text.charAt(end) == '_')) return false;
        at = end;
        return true;
    }

    private JsonNumber readNumber() {
        int start = at;
        while (at < text.length() && ",]} \t\n\r:".indexOf(text.charAt(at)) < 0) at++;
        String word = text.substring(start, at);
        if (!isNumber(word)) throw invalid();
        return new JsonNumber((PgNumeric.Finite) PgNumeric.parse(word));
    }

    private String readString() {
        var out = new StringBuilder();
        at++;
        while (true) {
            char c = readNext();
            if (c == '"') return out.toString();
            if (c < ' ') throw invalid();
            if (c == '\\') readEscape(out);
            else out.append(c);
        }
    }

    private void readEscape(StringBuilder out) {
        switch (readNext()) {
            case 'b' -> out.append('\b');
            case 'f' -> out.append('\f');
            case 'n' -> out.append('\n');
            case 'r' -> out.append('\r');
            case 't' -> out.append('\t');
            case '"' -> out.append('"');
            case '\\' -> out.append('\\');
            case '/' -> out.append('/');
            case 'u' -> readUnicode(out);
            default -> throw invalid();
        }
    }

    private void readUnicode(StringBuilder out) {
        if (at + 4 > text.length()) throw invalid();
        int code;
        try {
            code = Integer.parseInt(text.substring(at, at + 4), 16);
        } catch (NumberFormatException e) {
            throw invalid();
        }
        if (code == 0) throw new PgError("unsupported Unicode escape sequence");
        at += 4;
        char unit = (char) code;
        boolean afterHigh = !out.isEmpty() && Character.isHighSurrogate(out.charAt(out.length() - 1));
        if (Character.isLowSurrogate(unit) != afterHigh) throw invalid();
        if (Character.isHighSurrogate(unit) && !text.startsWith("\\u", at)) throw invalid();
        out.append(unit);
    }

    private JsonObject readObject() {
        JsonObject object = JsonObject.create();
        at++;
        if (peek() == '}') {
            at++;
            return object;
        }
        while (true) {
            if (peek() != '"') throw invalid();
            String key = readString();
            if (peek() != ':') throw invalid();
            at++;
            object.members().put(key, readValue());
            char c = peek();
            at++;
            if (c == '}') return object;
            if (c != ',') throw invalid();
        }
    }

    private JsonArray readArray() {
        var elements = new ArrayList<JsonValue>();
        at++;
        if (peek() == ']') {
            at++;
            return new JsonArray(elements);
        }
        while (true) {
            elements.add(readValue());
            char c = peek();
            at++;
            if (c == ']') return new JsonArray(elements);
            if (c != ',') throw invalid();
        }
    }
}
