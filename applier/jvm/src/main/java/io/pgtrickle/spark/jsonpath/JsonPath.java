package io.pgtrickle.spark.jsonpath;

import io.pgtrickle.spark.values.JsonReader;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonBoolean;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/** A jsonpath, read once from the JSON form of the plan (applier.sql.typing.json_paths). */
public final class JsonPath {
    private static final int MOST = 1000;
    private static final ConcurrentHashMap<String, JsonPath> PATHS = new ConcurrentHashMap<>();

    private final boolean lax;
    private final PathItem first;

    private JsonPath(JsonObject plan) {
        lax = plan.get("lax") == JsonBoolean.TRUE;
        first = PathItem.of(plan.get("path"));
    }

    /** How the evaluation of a path, or of one of its items, ended. */
    public enum Outcome {
        /** There are items. */
        FOUND,
        /** There is no item. */
        NOT_FOUND,
        /** The evaluation failed; only if errors are silent. */
        ERROR
    }

    /** Returns the path with this JSON form. */
    public static JsonPath of(String plan) {
        JsonPath path = PATHS.get(plan);
        if (path == null) {
            path = new JsonPath((JsonObject) JsonReader.parse(plan));
            if (PATHS.size() < MOST) PATHS.put(plan, path);
        }
        return path;
    }

    /** Adds the items that a document has to a list; raises errors unless they are silent. */
    public Outcome find(JsonValue document, JsonObject variables, boolean silent, List<JsonValue> found) {
        return new PathEvaluator(document, variables, lax, silent).evaluate(first, found);
    }

    /** Returns whether a document has an item; a strict path is evaluated to its end, as errors may come later. */
    public Outcome exists(JsonValue document, JsonObject variables, boolean silent) {
        return new PathEvaluator(document, variables, lax, silent).exists(first);
    }
}
