package io.pgtrickle.spark.values;

import java.util.HashSet;
import java.util.Set;

/** Tests whether the type json accepts a text. The type json does not check what an escape stands for. */
public final class JsonSyntax {
    private final String text;
    private final boolean uniqueKeys;
    private int at;

    private JsonSyntax(String text, boolean uniqueKeys) {
        this.text = text;
        this.uniqueKeys = uniqueKeys;
    }

    /** Returns whether the text is JSON of a shape (any, object, array or scalar), without duplicate keys if asked. */
    public static boolean isValid(String text, String shape, boolean uniqueKeys) {
        var syntax = new JsonSyntax(text, uniqueKeys);
        syntax.skipSpace();
        String found = switch (syntax.peek()) {
            case '{' -> "object";
            case '[' -> "array";
            default -> "scalar";
        };
        if (!shape.equals("any") && !shape.equals(found)) return false;
        if (!syntax.skipValue()) return false;
        syntax.skipSpace();
        return syntax.at == text.length();
    }

    private char peek() {
        return at < text.length() ? text.charAt(at) : '\0';
    }

    private void skipSpace() {
        while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') at++;
    }

    private boolean skipValue() {
        skipSpace();
        return switch (peek()) {
            case '{' -> skipObject();
            case '[' -> skipArray();
            case '"' -> skipString() != null;
            default -> skipWord();
        };
    }

    private boolean skipWord() {
        int start = at;
        while (at < text.length() && " \t\n\r,]}:[{\"".indexOf(text.charAt(at)) < 0) at++;
        String word = text.substring(start, at);
        return switch (word) {
            case "true", "false", "null" -> true;
            default -> JsonReader.isNumber(word);
        };
    }

    private boolean skipArray() {
        at++;
        skipSpace();
        if (peek() == ']') {
            at++;
            return true;
        }
        while (skipValue()) {
            skipSpace();
            char c = peek();
            at++;
            if (c == ']') return true;
            if (c != ',') return false;
        }
        return false;
    }

    private boolean skipObject() {
        Set<Object> keys = new HashSet<>();
        at++;
        skipSpace();
        if (peek() == '}') {
            at++;
            return true;
        }
        while (true) {
            skipSpace();
            Object key = peek() == '"' ? skipString() : null;
            if (key == null || (uniqueKeys && !keys.add(key))) return false;
            skipSpace();
            if (peek() != ':') return false;
            at++;
            if (!skipValue()) return false;
            skipSpace();
            char c = peek();
            at++;
            if (c == '}') return true;
            if (c != ',') return false;
        }
    }

    /** Returns something equal for equal strings, read only if keys must be unique; null if it is not a string. */
    private Object skipString() {
        String written = skipWrittenString();
        if (!uniqueKeys || written == null) return written;
        try {
            return JsonReader.parse(written);
        } catch (PgError e) {
            return null;
        }
    }

    /** Returns the string as written, with its quotes; null if it is not a string. */
    private String skipWrittenString() {
        int start = at++;
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') return text.substring(start, at);
            if (c < ' ') return null;
            if (c != '\\') continue;
            char escape = peek();
            at++;
            if (escape == 'u') {
                for (int i = 0; i < 4; i++, at++) {
                    if ("0123456789abcdefABCDEF".indexOf(peek()) < 0) return null;
                }
            } else if ("\"\\/bfnrt".indexOf(escape) < 0) {
                return null;
            }
        }
        return null;
    }
}
