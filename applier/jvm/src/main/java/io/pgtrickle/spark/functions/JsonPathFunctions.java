package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.JsonAccess.text;

import io.pgtrickle.spark.jsonpath.JsonPath;
import io.pgtrickle.spark.jsonpath.JsonPath.Outcome;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonNull;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.PgError;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of jsonb and a jsonpath; the path is in the JSON form of the plan, the variables are an object. */
public final class JsonPathFunctions {
    private JsonPathFunctions() {}

    private static JsonObject parseVariables(UTF8String variables) {
        if (JsonAccess.parse(variables) instanceof JsonObject object) return object;
        throw new PgError("\"vars\" argument is not an object");
    }

    /** Adds the items that the path finds to a list. */
    static Outcome find(
        UTF8String json, UTF8String path, UTF8String variables, boolean silent, List<JsonValue> found) {
        JsonPath compiled = JsonPath.of(path.toString());
        return compiled.find(JsonAccess.parse(json), parseVariables(variables), silent, found);
    }

    /** jsonb_path_exists. */
    @SqlFunction("pg_jsonpath_exists")
    public static Boolean exists(UTF8String json, UTF8String path, UTF8String variables, boolean silent) {
        JsonPath compiled = JsonPath.of(path.toString());
        return switch (compiled.exists(JsonAccess.parse(json), parseVariables(variables), silent)) {
            case FOUND -> true;
            case NOT_FOUND -> false;
            case ERROR -> null;
        };
    }

    /** jsonb_path_match. */
    @SqlFunction("pg_jsonpath_match")
    public static Boolean match(UTF8String json, UTF8String path, UTF8String variables, boolean silent) {
        var found = new ArrayList<JsonValue>();
        find(json, path, variables, silent, found);
        if (found.size() == 1 && found.get(0) instanceof JsonBoolean result) return result == JsonBoolean.TRUE;
        if ((found.size() == 1 && found.get(0) == JsonNull.NULL) || silent) return null;
        throw new PgError("single boolean result is expected");
    }

    /** jsonb_path_query_array. */
    @SqlFunction("pg_jsonpath_query_array")
    public static UTF8String queryArray(UTF8String json, UTF8String path, UTF8String variables, boolean silent) {
        var found = new ArrayList<JsonValue>();
        find(json, path, variables, silent, found);
        return text(new JsonArray(found));
    }

    /** jsonb_path_query_first. */
    @SqlFunction("pg_jsonpath_query_first")
    public static UTF8String queryFirst(UTF8String json, UTF8String path, UTF8String variables, boolean silent) {
        var found = new ArrayList<JsonValue>();
        find(json, path, variables, silent, found);
        return found.isEmpty() ? null : text(found.get(0));
    }
}
