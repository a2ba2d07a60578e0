package pgtrickle;

import java.util.HashSet;

/** Tests whether the type json accepts a text. The type json does not check what an escape stands for. */
final class JsonSyntax {
    private final String s;
    private final boolean unique;
    private int at;

    private JsonSyntax(String s, boolean unique) {
        this.s = s;
        this.unique = unique;
    }

    static boolean valid(String text, String shape, boolean unique) {
        JsonSyntax reader = new JsonSyntax(text, unique);
        reader.space();
        char first = reader.next();
        String found = first == '{' ? "object" : first == '[' ? "array" : "scalar";
        if (!shape.equals("any") && !shape.equals(found)) return false;
        if (!reader.value()) return false;
        reader.space();
        return reader.at == text.length();
    }

    private char next() {
        return at < s.length() ? s.charAt(at) : '\0';
    }

    private void space() {
        while (next() == ' ' || next() == '\t' || next() == '\n' || next() == '\r') at++;
    }

    private boolean value() {
        space();
        char c = next();
        if (c == '{') return object();
        if (c == '[') return array();
        if (c == '"') return text() != null;
        int start = at;
        while (at < s.length() && " \t\n\r,]}:[{\"".indexOf(s.charAt(at)) < 0) at++;
        String word = s.substring(start, at);
        return word.equals("true") || word.equals("false") || word.equals("null") || JsonTree.isNumber(word);
    }

    private boolean array() {
        at++;
        space();
        if (next() == ']') {
            at++;
            return true;
        }
        while (value()) {
            space();
            char c = next();
            at++;
            if (c == ']') return true;
            if (c != ',') return false;
        }
        return false;
    }

    private boolean object() {
        HashSet keys = new HashSet();
        at++;
        space();
        if (next() == '}') {
            at++;
            return true;
        }
        while (true) {
            space();
            Object key = next() == '"' ? text() : null;
            if (key == null || (unique && !keys.add(key))) return false;
            space();
            if (next() != ':') return false;
            at++;
            if (!value()) return false;
            space();
            char c = next();
            at++;
            if (c == '}') return true;
            if (c != ',') return false;
        }
    }

    /** Returns the string, decoded only if keys must be unique; null if it is not a string. */
    private Object text() {
        String written = string();
        if (!unique || written == null) return written;
        try {
            return JsonTree.parse(written);
        } catch (PgError e) {
            return null;
        }
    }

    /** Returns the string as written, with its quotes; null if it is not a string. */
    private String string() {
        int start = at++;
        while (at < s.length()) {
            char c = s.charAt(at++);
            if (c == '"') return s.substring(start, at);
            if (c < ' ') return null;
            if (c != '\\') continue;
            char e = next();
            at++;
            if (e == 'u') {
                for (int i = 0; i < 4; i++, at++) {
                    if ("0123456789abcdefABCDEF".indexOf(next()) < 0) return null;
                }
            } else if ("\"\\/bfnrt".indexOf(e) < 0) return null;
        }
        return null;
    }
}
