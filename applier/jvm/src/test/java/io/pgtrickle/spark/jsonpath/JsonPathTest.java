package io.pgtrickle.spark.jsonpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.pgtrickle.spark.jsonpath.JsonPath.Outcome;
import io.pgtrickle.spark.values.JsonReader;
import io.pgtrickle.spark.values.JsonValue;
import io.pgtrickle.spark.values.JsonValue.JsonArray;
import io.pgtrickle.spark.values.JsonValue.JsonObject;
import io.pgtrickle.spark.values.JsonWriter;
import io.pgtrickle.spark.values.PgError;
import java.util.ArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class JsonPathTest {
    private static final String DOCUMENT = "{\"a\": [1, 2.5, {\"b\": \"x\"}, [3]], \"c\": {\"b\": null}}";

    private static String find(boolean lax, String path, boolean silent) {
        JsonPath compiled = JsonPath.of("{\"lax\": " + lax + ", \"path\": " + path.replace('\'', '"') + "}");
        var found = new ArrayList<JsonValue>();
        JsonObject variables = (JsonObject) JsonReader.parse("{\"x\": 2}");
        Outcome outcome = compiled.find(JsonReader.parse(DOCUMENT), variables, silent, found);
        return outcome == Outcome.ERROR ? "error" : JsonWriter.print(new JsonArray(found));
    }

    private static String root(String next) {
        return "{'kind': 'root', 'next': " + next + "}";
    }

    private static String key(String name, String next) {
        return "{'kind': 'key', 'value': '" + name + "'" + (next.isEmpty() ? "" : ", 'next': " + next) + "}";
    }

    @Test
    void laxPathsUnwrapArraysAndIgnoreWhatIsMissing() {
        assertEquals("[\"x\"]", find(true, root(key("a", key("b", ""))), false));
        assertEquals("[]", find(true, root(key("z", "")), false));
        assertEquals("[1]", find(true, root(key("c", "{'kind': 'size'}")), false));
    }

    @Test
    void strictPathsRaise() {
        String message = assertThrows(PgError.class, () -> find(false, root(key("z", "")), false)).getMessage();
        assertEquals("PostgreSQL would report: JSON object does not contain key \"z\"", message);
        assertEquals("error", find(false, root(key("z", "")), true));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "[0, null] | [1]", "[0, 1] | [1, 2.5]", "[1.7, null] | [2.5]", "[-1, null] | []", "[9, null] | []",
    })
    void laxSubscripts(String places, String expected) {
        String values = places.replaceAll("(-?[0-9.]+)", "{'kind': 'value', 'value': $1}");
        assertEquals(expected, find(true, root(key("a", "{'kind': 'elements', 'places': " + values + "}")), false));
    }

    @Test
    void lastIsTheSizeOfTheInnermostArray() {
        String last = "{'kind': 'elements', 'places': [{'kind': 'last'}, null]}";
        assertEquals("[[3]]", find(true, root(key("a", last)), false));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "> | 1 | [2.5, 3]", "== | 1.0 | [1]", "<> | null | [1, 2.5, {\"b\": \"x\"}, 3]", "< | 'a' | []",
    })
    void filtersCompareByType(String operator, String literal, String expected) {
        String condition = "{'kind': '" + operator + "', 'left': {'kind': 'current'}, 'right': {'kind': 'value', 'value': "
            + literal + "}}";
        String filter = "{'kind': 'filter', 'left': " + condition + "}";
        String found = find(true, root(key("a", "{'kind': 'any_element', 'next': " + filter + "}")), false);
        assertEquals(expected, found);
    }

    @Test
    void arithmeticRaisesOrFails() {
        String sum = "{'kind': '/', 'left': {'kind': 'variable', 'value': 'x'}, 'right': {'kind': 'value', 'value': 0}}";
        assertThrows(PgError.class, () -> find(true, sum, false));
        assertEquals("error", find(true, sum, true));
        assertEquals("[0.40000000000000000000]", find(
            true, sum.replace("'value': 0", "'value': 5"), false));
    }

    @Test
    void aMissingVariableIsAlwaysAnError() {
        String path = "{'kind': 'variable', 'value': 'nothing'}";
        assertThrows(PgError.class, () -> find(true, path, true));
    }

    @Test
    void everyLevelDownToTheLast() {
        String any = "{'kind': 'any', 'first': 4294967295, 'last': 4294967295}";
        assertEquals("[1, 2.5, \"x\", 3, null]", find(true, root(any), false));
    }
}
