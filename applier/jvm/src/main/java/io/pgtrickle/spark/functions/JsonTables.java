package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.JsonAccess.text;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.jsonpath.JsonPath.Outcome;
import io.pgtrickle.spark.values.FloatText;
import io.pgtrickle.spark.values.IsoDate;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonValue.JsonString;
import io.pgtrickle.spark.values.JsonWriter;
import io.pgtrickle.spark.values.NumericArithmetic;
import io.pgtrickle.spark.values.PgArray;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import io.pgtrickle.spark.values.PgTimestamp;
import java.util.ArrayList;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** JSON_TABLE, JSON_QUERY, JSON_VALUE and the columns of jsonb_to_recordset: JSON items as texts of a type. */
public final class JsonTables {
    private static final UTF8String EMPTY = fromString("e");
    private static final UTF8String ERROR = fromString("x");
    private static final UTF8String NULL = fromString("n");
    private static final Pattern RADIX = Pattern.compile("\\s*[+-]?0[xXoObB]");
    private static final Pattern MAYBE_DATE = Pattern.compile(
        "[0-9]|epoch|infinity|now|today|tomorrow|yesterday|allballs", Pattern.CASE_INSENSITIVE);

    private JsonTables() {}

    /** Returns the rows of JSON_TABLE. If the path fails there are no rows, or with `strict` the error is raised. */
    @SqlFunction("pg_jsonpath_rows")
    public static UTF8String rows(UTF8String json, UTF8String path, UTF8String variables, boolean strict) {
        var found = new ArrayList<JsonValue>();
        if (JsonPathFunctions.find(json, path, variables, !strict, found) == Outcome.ERROR) found.clear();
        return text(new JsonArray(found));
    }

    private static UTF8String found(String value) {
        return fromString("v" + value);
    }

    /** JSON_QUERY: v and the text, e if nothing is found, x for an error. `how`: when to wrap, and OMIT quotes. */
    @SqlFunction("pg_jsonpath_query")
    public static UTF8String query(UTF8String json, UTF8String path, UTF8String variables, UTF8String how) {
        var items = new ArrayList<JsonValue>();
        if (JsonPathFunctions.find(json, path, variables, true, items) == Outcome.ERROR) return ERROR;
        if (items.isEmpty()) return EMPTY;
        String wrapper = how.toString();
        if (wrapper.startsWith("ALWAYS") || (wrapper.startsWith("SEVERAL") && items.size() > 1)) {
            return found(JsonWriter.print(new JsonArray(items)));
        }
        if (items.size() > 1) return ERROR;
        boolean omitsQuotes = wrapper.endsWith("OMIT") && items.get(0) instanceof JsonString;
        return found(omitsQuotes ? JsonWriter.printScalar(items.get(0)) : JsonWriter.print(items.get(0)));
    }

    /** JSON_VALUE: v and the text of the type, n for NULL, e if nothing is found, x for an error. */
    @SqlFunction("pg_jsonpath_value")
    public static UTF8String value(UTF8String json, UTF8String path, UTF8String variables, UTF8String type) {
        var items = new ArrayList<JsonValue>();
        if (JsonPathFunctions.find(json, path, variables, true, items) == Outcome.ERROR) return ERROR;
        if (items.isEmpty()) return EMPTY;
        JsonValue item = items.get(0);
        if (items.size() > 1 || item.isContainer()) return ERROR;
        if (item == JsonNull.NULL) return NULL;
        String text = item instanceof JsonBoolean bool ? bool == JsonBoolean.TRUE ? "t" : "f"
            : JsonWriter.printScalar(item);
        ColumnType column = ColumnType.parse(type);
        if (!column.isText() && RADIX.matcher(text).lookingAt()) {
            throw new PgError("a number that is not written in decimals, which is not known here: \"" + text + "\"");
        }
        try {
            return found(column.normalize(text));
        } catch (PgError.NotComputed e) {
            throw e;
        } catch (PgError.NotIsoDate e) {
            // Only ISO dates and times can be read; any other text with a digit may be a date or time.
            if (MAYBE_DATE.matcher(text).find()) throw e;
            return ERROR;
        } catch (PgError e) {
            return ERROR;
        }
    }

    /** Returns the members with this name of an array of objects, as texts of a type. */
    @SqlFunction("pg_jsonpath_column")
    public static UTF8String column(UTF8String json, UTF8String name, UTF8String type) {
        if (!(JsonAccess.parse(json) instanceof JsonArray rows)) throw notObjects();
        ColumnType column = ColumnType.parse(type);
        var texts = new ArrayList<String>();
        for (JsonValue row : rows.elements()) {
            if (!(row instanceof JsonObject object)) throw notObjects();
            JsonValue value = object.get(name.toString());
            texts.add(value == null || value == JsonNull.NULL ? null : column.printMember(value));
        }
        return fromString(PgArray.print(texts));
    }

    private static PgError notObjects() {
        return new PgError("argument must be an array of objects");
    }

    /** A type of a column: its name, and the precision and scale of a numeric, null if it has none. */
    private record ColumnType(String name, Integer precision, Integer scale) {
        /** Reads `name` or `name:precision:scale`. */
        static ColumnType parse(UTF8String type) {
            String[] parts = type.toString().split(":");
            return parts.length == 1 ? new ColumnType(parts[0], null, null)
                : new ColumnType(parts[0], Integer.valueOf(parts[1]), Integer.valueOf(parts[2]));
        }

        boolean isText() {
            return name.equals("text") || name.equals("varchar");
        }

        String printMember(JsonValue value) {
            if (name.equals("jsonb")) return JsonWriter.print(value);
            return normalize(value instanceof JsonString string ? string.text() : JsonWriter.print(value));
        }

        /** Returns the text as the type writes it. */
        String normalize(String text) {
            return switch (name) {
                case "int2" -> printInteger(text, Short.MIN_VALUE, Short.MAX_VALUE);
                case "int4" -> printInteger(text, Integer.MIN_VALUE, Integer.MAX_VALUE);
                case "int8" -> printInteger(text, Long.MIN_VALUE, Long.MAX_VALUE);
                case "bool" -> CastFunctions.parseBoolean(fromString(text)) ? "t" : "f";
                case "uuid" -> CastFunctions.parseUuid(fromString(text)).toString();
                case "float8" -> FloatText.print(FloatText.parseDouble(text));
                case "date" -> PgTimestamp.printDate(IsoDate.parse(text, "date").toDate());
                case "timestamp" -> PgTimestamp.print(DateTexts.parseTimestamp(fromString(text)));
                case "timestamptz" -> PgTimestamp.print(DateTexts.parseInstant(fromString(text))) + "+00";
                case "numeric" -> {
                    PgNumeric number = PgNumeric.parse(text);
                    yield (precision == null ? number : NumericArithmetic.toPrecision(number, precision, scale)).toString();
                }
                default -> text;
            };
        }

        private static String printInteger(String text, long low, long high) {
            return Long.toString(CastFunctions.parseInteger(fromString(text), low, high));
        }
    }
}
