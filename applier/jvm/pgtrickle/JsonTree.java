package pgtrickle;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;

/** jsonb as a tree: TreeMap, ArrayList, String, Num, Boolean or NULL; it is written as PostgreSQL writes it. */
final class JsonTree {
    static final Object NULL = new Object();

    /** jsonb sorts keys by length in bytes, then by bytes. */
    static final Comparator KEYS = new KeyOrder();

    static final class KeyOrder implements Comparator {
        public int compare(Object a, Object b) {
            UTF8String x = UTF8String.fromString((String) a);
            UTF8String y = UTF8String.fromString((String) b);
            return x.numBytes() != y.numBytes() ? Integer.compare(x.numBytes(), y.numBytes()) : x.compareTo(y);
        }
    }

    private final String s;
    private int at;

    private JsonTree(String s) {
        this.s = s;
    }

    static Object parse(String text) {
        JsonTree reader = new JsonTree(text);
        Object found = reader.value();
        reader.space();
        if (reader.at < text.length()) throw reader.invalid();
        return found;
    }

    /** Returns keys and values of an object, or elements of an array, values as written; null for anything else. */
    static ArrayList written(String text, boolean object) {
        JsonTree reader = new JsonTree(text);
        if (reader.peek() != (object ? '{' : '[')) return null;
        ArrayList out = new ArrayList();
        reader.at++;
        if (reader.peek() == (object ? '}' : ']')) return out;
        while (true) {
            if (object) {
                reader.peek();
                out.add(reader.string());
                reader.peek();
                reader.at++;
            }
            reader.peek();
            int start = reader.at;
            reader.value();
            out.add(text.substring(start, reader.at));
            if (reader.peek() != ',') return out;
            reader.at++;
        }
    }

    private PgError invalid() {
        return new PgError("invalid input syntax for type json");
    }

    private void space() {
        while (at < s.length()) {
            char c = s.charAt(at);
            if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
            at++;
        }
    }

    private char peek() {
        space();
        if (at >= s.length()) throw invalid();
        return s.charAt(at);
    }

    private Object value() {
        char c = peek();
        if (c == '{') return object();
        if (c == '[') return array();
        if (c == '"') return string();
        if (s.startsWith("true", at) && ends(4)) return Boolean.TRUE;
        if (s.startsWith("false", at) && ends(5)) return Boolean.FALSE;
        if (s.startsWith("null", at) && ends(4)) return NULL;
        return number();
    }

    private boolean ends(int length) {
        int end = at + length;
        if (end < s.length() && (Character.isLetterOrDigit(s.charAt(end)) || s.charAt(end) == '_')) return false;
        at = end;
        return true;
    }

    private static final java.util.regex.Pattern NUMBER =
        java.util.regex.Pattern.compile("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?");

    static boolean isNumber(String text) {
        return NUMBER.matcher(text).matches();
    }

    private Object number() {
        int start = at;
        while (at < s.length() && ",]} \t\n\r:".indexOf(s.charAt(at)) < 0) at++;
        String word = s.substring(start, at);
        if (!NUMBER.matcher(word).matches()) throw invalid();
        return Num.parse(word);
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        at++;
        while (true) {
            if (at >= s.length()) throw invalid();
            char c = s.charAt(at++);
            if (c == '"') return out.toString();
            if (c < ' ') throw invalid();
            if (c != '\\') {
                out.append(c);
                continue;
            }
            if (at >= s.length()) throw invalid();
            char e = s.charAt(at++);
            int simple = "bfnrt".indexOf(e);
            if (simple >= 0) out.append("\b\f\n\r\t".charAt(simple));
            else if (e == '"' || e == '\\' || e == '/') out.append(e);
            else if (e == 'u') {
                if (at + 4 > s.length()) throw invalid();
                int code;
                try {
                    code = Integer.parseInt(s.substring(at, at + 4), 16);
                } catch (NumberFormatException x) {
                    throw invalid();
                }
                if (code == 0) throw new PgError("unsupported Unicode escape sequence");
                at += 4;
                char unit = (char) code;
                boolean low = out.length() > 0 && Character.isHighSurrogate(out.charAt(out.length() - 1));
                if (Character.isLowSurrogate(unit) != low) throw invalid();
                if (Character.isHighSurrogate(unit) && !s.startsWith("\\u", at)) throw invalid();
                out.append(unit);
            } else throw invalid();
        }
    }

    private Object object() {
        TreeMap out = new TreeMap(KEYS);
        at++;
        if (peek() == '}') {
            at++;
            return out;
        }
        while (true) {
            if (peek() != '"') throw invalid();
            String key = string();
            if (peek() != ':') throw invalid();
            at++;
            out.put(key, value());
            char c = peek();
            at++;
            if (c == '}') return out;
            if (c != ',') throw invalid();
        }
    }

    private Object array() {
        ArrayList out = new ArrayList();
        at++;
        if (peek() == ']') {
            at++;
            return out;
        }
        while (true) {
            out.add(value());
            char c = peek();
            at++;
            if (c == ']') return out;
            if (c != ',') throw invalid();
        }
    }

    static String print(Object value) {
        StringBuilder out = new StringBuilder();
        print(out, value);
        return out.toString();
    }

    private static void print(StringBuilder out, Object value) {
        if (value instanceof TreeMap) {
            out.append('{');
            boolean first = true;
            for (Iterator i = ((TreeMap) value).entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                if (!first) out.append(", ");
                first = false;
                quote(out, (String) entry.getKey());
                out.append(": ");
                print(out, entry.getValue());
            }
            out.append('}');
        } else if (value instanceof ArrayList) {
            out.append('[');
            ArrayList list = (ArrayList) value;
            for (int i = 0; i < list.size(); i++) {
                if (i > 0) out.append(", ");
                print(out, list.get(i));
            }
            out.append(']');
        } else if (value instanceof String) {
            quote(out, (String) value);
        } else {
            out.append(value == NULL ? "null" : value.toString());
        }
    }

    static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            int simple = "\b\f\n\r\t\"\\".indexOf(c);
            if (simple >= 0) out.append('\\').append("bfnrt\"\\".charAt(simple));
            else if (c < ' ') out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
            else out.append(c);
        }
        out.append('"');
    }

    static boolean same(Object a, Object b) {
        if (a instanceof Num && b instanceof Num) return ((Num) a).compare((Num) b) == 0;
        if (a instanceof TreeMap && b instanceof TreeMap) {
            TreeMap x = (TreeMap) a;
            TreeMap y = (TreeMap) b;
            if (x.size() != y.size()) return false;
            for (Iterator i = x.entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                if (!y.containsKey(entry.getKey()) || !same(entry.getValue(), y.get(entry.getKey()))) return false;
            }
            return true;
        }
        if (a instanceof ArrayList && b instanceof ArrayList) {
            ArrayList x = (ArrayList) a;
            ArrayList y = (ArrayList) b;
            if (x.size() != y.size()) return false;
            for (int i = 0; i < x.size(); i++) {
                if (!same(x.get(i), y.get(i))) return false;
            }
            return true;
        }
        return a.equals(b);
    }

    /** Returns the same text for equal values. */
    static Object normal(Object value) {
        if (value instanceof Num) return Num.of(((Num) value).value.stripTrailingZeros());
        if (value instanceof ArrayList) {
            ArrayList out = new ArrayList();
            for (int i = 0; i < ((ArrayList) value).size(); i++) out.add(normal(((ArrayList) value).get(i)));
            return out;
        }
        if (value instanceof TreeMap) {
            TreeMap out = new TreeMap(KEYS);
            for (Iterator i = ((TreeMap) value).entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                out.put(entry.getKey(), normal(entry.getValue()));
            }
            return out;
        }
        return value;
    }

    private static boolean isContainer(Object value) {
        return value instanceof TreeMap || value instanceof ArrayList;
    }

    /** a @> b; at the root a scalar is an array of one element that contains nothing but scalars. */
    static boolean contains(Object a, Object b) {
        if (a instanceof TreeMap != b instanceof TreeMap) return false;
        if (!isContainer(a)) return !isContainer(b) && same(a, b);
        if (a instanceof TreeMap) {
            for (Iterator i = ((TreeMap) b).entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                Object own = ((TreeMap) a).get(entry.getKey());
                if (own == null || !within(own, entry.getValue())) return false;
            }
            return true;
        }
        if (!isContainer(b)) return holds((ArrayList) a, b);
        ArrayList wanted = (ArrayList) b;
        for (int i = 0; i < wanted.size(); i++) {
            if (!holds((ArrayList) a, wanted.get(i))) return false;
        }
        return true;
    }

    private static boolean within(Object own, Object wanted) {
        if (!isContainer(own) || !isContainer(wanted)) return !isContainer(own) && !isContainer(wanted) && same(own, wanted);
        return own.getClass() == wanted.getClass() && contains(own, wanted);
    }

    private static boolean holds(ArrayList list, Object wanted) {
        for (int i = 0; i < list.size(); i++) {
            if (within(list.get(i), wanted)) return true;
        }
        return false;
    }
}
