package pgtrickle;

import java.util.ArrayList;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of jsonb and a jsonpath; the path is in the form that PathItem reads. */
public final class JsonPath {
    private static final ConcurrentHashMap PATHS = new ConcurrentHashMap();

    private final boolean lax;
    private final PathItem path;

    private JsonPath(TreeMap from) {
        lax = from.get("lax") == Boolean.TRUE;
        path = PathItem.of(from.get("path"));
    }

    private static JsonPath of(UTF8String text) {
        String written = text.toString();
        JsonPath found = (JsonPath) PATHS.get(written);
        if (found == null) {
            found = new JsonPath((TreeMap) JsonTree.parse(written));
            if (PATHS.size() < 1000) PATHS.put(written, found);
        }
        return found;
    }

    private static TreeMap variables(UTF8String given) {
        Object found = JsonTree.parse(given.toString());
        if (found instanceof TreeMap) return (TreeMap) found;
        throw new PgError("\"vars\" argument is not an object");
    }

    private static int run(UTF8String json, UTF8String path, UTF8String vars, boolean silent, ArrayList found) {
        JsonPath own = of(path);
        return PathRun.run(own.lax, own.path, JsonTree.parse(json.toString()), variables(vars), silent, found);
    }

    private static UTF8String text(Object value) {
        return UTF8String.fromString(JsonTree.print(value));
    }

    public static Boolean exists(UTF8String json, UTF8String path, UTF8String vars, boolean silent) {
        int result = run(json, path, vars, silent, null);
        return result == PathRun.ERROR ? null : Boolean.valueOf(result == PathRun.SOME);
    }

    public static Boolean match(UTF8String json, UTF8String path, UTF8String vars, boolean silent) {
        ArrayList found = new ArrayList();
        run(json, path, vars, silent, found);
        if (found.size() == 1 && found.get(0) instanceof Boolean) return (Boolean) found.get(0);
        if ((found.size() == 1 && found.get(0) == JsonTree.NULL) || silent) return null;
        throw new PgError("single boolean result is expected");
    }

    public static UTF8String query_array(UTF8String json, UTF8String path, UTF8String vars, boolean silent) {
        ArrayList found = new ArrayList();
        run(json, path, vars, silent, found);
        return text(found);
    }

    /** Returns the rows of JSON_TABLE. If the path fails there are no rows, or with `strict` the error is raised. */
    public static UTF8String rows(UTF8String json, UTF8String path, UTF8String vars, boolean strict) {
        ArrayList found = new ArrayList();
        if (run(json, path, vars, !strict, found) == PathRun.ERROR) found.clear();
        return text(found);
    }

    private static final UTF8String NOTHING = UTF8String.fromString("e");
    private static final UTF8String FAILED = UTF8String.fromString("x");

    private static UTF8String shown(String value) {
        return UTF8String.fromString("v" + value);
    }

    /** JSON_QUERY: v and the text, e if nothing is found, x for an error. `how`: when to wrap, and OMIT quotes. */
    public static UTF8String query(UTF8String json, UTF8String path, UTF8String vars, UTF8String how) {
        ArrayList found = new ArrayList();
        if (run(json, path, vars, true, found) == PathRun.ERROR) return FAILED;
        String wanted = how.toString();
        if (found.isEmpty()) return NOTHING;
        if (wanted.startsWith("ALWAYS") || (wanted.startsWith("SEVERAL") && found.size() > 1)) {
            return shown(JsonTree.print(found));
        }
        if (found.size() > 1) return FAILED;
        Object value = found.get(0);
        boolean bare = wanted.endsWith("OMIT") && value instanceof String;
        return shown(bare ? (String) value : JsonTree.print(value));
    }

    /** JSON_VALUE: v and the text of the type, n for NULL, e if nothing is found, x for an error. */
    public static UTF8String value(UTF8String json, UTF8String path, UTF8String vars, UTF8String type) {
        ArrayList found = new ArrayList();
        if (run(json, path, vars, true, found) == PathRun.ERROR) return FAILED;
        if (found.isEmpty()) return NOTHING;
        Object value = found.get(0);
        if (found.size() > 1 || value instanceof TreeMap || value instanceof ArrayList) return FAILED;
        if (value == JsonTree.NULL) return UTF8String.fromString("n");
        String text = value instanceof Boolean ? value == Boolean.TRUE ? "t" : "f" : value.toString();
        String[] kind = type.toString().split(":");
        if (!kind[0].equals("text") && !kind[0].equals("varchar") && RADIX.matcher(text).lookingAt()) {
            throw new PgError("a number that is not written in decimals, which is not known here: \"" + text + "\"");
        }
        try {
            return shown(read(UTF8String.fromString(text), kind));
        } catch (PgError e) {
            // Only ISO dates and times can be parsed; any other text with a digit may be a date or time.
            if (e.getMessage().contains("not an ISO date") && MAYBE_A_DATE.matcher(text).find()) throw e;
            if (e.getMessage().contains("nothing; but")) throw e;
            return FAILED;
        }
    }

    private static final java.util.regex.Pattern MAYBE_A_DATE = java.util.regex.Pattern.compile(
        "[0-9]|epoch|infinity|now|today|tomorrow|yesterday|allballs", java.util.regex.Pattern.CASE_INSENSITIVE);

    /** Returns the members with this name of an array of objects, as texts of a type. */
    public static UTF8String column(UTF8String json, UTF8String name, UTF8String type) {
        Object rows = JsonTree.parse(json.toString());
        if (!(rows instanceof ArrayList)) throw new PgError("argument must be an array of objects");
        ArrayList out = new ArrayList();
        for (int i = 0; i < ((ArrayList) rows).size(); i++) {
            Object row = ((ArrayList) rows).get(i);
            if (!(row instanceof TreeMap)) throw new PgError("argument must be an array of objects");
            out.add(field(((TreeMap) row).get(name.toString()), type.toString().split(":")));
        }
        return UTF8String.fromString(Arrays.print(out));
    }

    private static String field(Object value, String[] kind) {
        if (value == null || value == JsonTree.NULL) return null;
        if (kind[0].equals("jsonb")) return JsonTree.print(value);
        return read(UTF8String.fromString(value instanceof String ? (String) value : JsonTree.print(value)), kind);
    }

    private static final java.util.regex.Pattern RADIX = java.util.regex.Pattern.compile("\\s*[+-]?0[xXoObB]");

    private static String read(UTF8String text, String[] kind) {
        if (kind[0].equals("int2")) return Long.toString(Casts.in_int(text, -32768L, 32767L));
        if (kind[0].equals("int4")) return Long.toString(Casts.in_int(text, -2147483648L, 2147483647L));
        if (kind[0].equals("int8")) return Long.toString(Casts.in_int(text, Long.MIN_VALUE, Long.MAX_VALUE));
        if (kind[0].equals("bool")) return Casts.in_bool(text) ? "t" : "f";
        if (kind[0].equals("uuid")) return Casts.in_uuid(text).toString();
        if (kind[0].equals("float8")) return Floats.out8(Floats.in8(text)).toString();
        if (kind[0].equals("date")) return Dates.out_date(Dates.in_date(text)).toString();
        if (kind[0].equals("timestamp")) return Dates.out_timestamp(Dates.in_timestamp(text)).toString();
        if (kind[0].equals("timestamptz")) return Dates.out_timestamp(Dates.in_timestamptz(text)).toString() + "+00";
        if (!kind[0].equals("numeric")) return text.toString();
        UTF8String number = Numeric.in(text);
        if (kind.length == 1) return number.toString();
        return Numeric.sized(number, Integer.parseInt(kind[1]), Integer.parseInt(kind[2])).toString();
    }

    public static UTF8String query_first(UTF8String json, UTF8String path, UTF8String vars, boolean silent) {
        ArrayList found = new ArrayList();
        run(json, path, vars, silent, found);
        return found.isEmpty() ? null : text(found.get(0));
    }
}
