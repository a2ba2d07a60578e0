package io.pgtrickle.spark.values;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "{\"bb\":1,\"a\":2.50,\"a\":3} | {\"a\": 3, \"bb\": 1}", "[1e2,-0.0,1.0E-2] | [100, 0.0, 0.010]",
        "{\"é\":1,\"zz\":2,\"a\":3} | {\"a\": 3, \"zz\": 2, \"é\": 1}", " [ ] | []", "{} | {}",
        "\"\\u00e9\\ud83d\\ude00\\n\\/\" | \"é😀\\n/\"", "\"\\u0001\" | \"\\u0001\"", " true | true",
    })
    void readsAndWrites(String text, String expected) {
        assertEquals(expected, JsonWriter.print(JsonReader.parse(text)));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", "[1,]", "{\"a\"}", "01", "\"\\u00g0\"", "\"\\ud800\"", "\"\\ude00\"", "\"\\ud800a\"", "{\"\\u0000\": 1}",
        "tru", "nulls", "\"a\tb\"", "1 2", "[1", "{\"a\":1,}", "+1", "1.", "NaN",
    })
    void refuses(String text) {
        assertThrows(PgError.class, () -> JsonReader.parse(text));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "1 | 1.0 | true", "{\"a\": [1.50]} | {\"a\": [1.5]} | true", "[1, 2] | [2, 1] | false", "\"1\" | 1 | false",
        "null | false | false", "{\"a\": 1} | {\"b\": 1} | false", "[] | {} | false",
    })
    void comparesValues(String a, String b, boolean expected) {
        JsonValue x = JsonReader.parse(a);
        JsonValue y = JsonReader.parse(b);
        assertEquals(expected, JsonComparison.areEqual(x, y));
        String normal = JsonWriter.print(JsonComparison.normalize(x));
        assertEquals(expected, normal.equals(JsonWriter.print(JsonComparison.normalize(y))));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "[1, 2, [1, 3]] | [1] | true", "[1, 2, [1, 3]] | [[1]] | true", "[1, 2] | [3] | false", "[\"a\"] | \"a\" | true",
        "\"a\" | [\"a\"] | false", "{\"a\": {\"b\": 1, \"c\": 2}} | {\"a\": {\"b\": 1.0}} | true", "[[1]] | [1] | false",
        "{\"a\": 1} | [1] | false", "[1, 1] | [1, 1, 1] | true", "[] | [] | true", "{\"a\": [1]} | {\"a\": 1} | false",
    })
    void contains(String a, String b, boolean expected) {
        assertEquals(expected, JsonComparison.contains(JsonReader.parse(a), JsonReader.parse(b)));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "{\"a\":1, \"a\":2}", " true ", "{\"a\": [1, {\"b\": 2, \"\\u0062\": 3}]} ", "\"\\ud800\"", "{\"\\u0000\": 1}", "[]",
    })
    void theTypeJsonDoesNotReadEscapes(String text) {
        assertTrue(JsonSyntax.isValid(text, "any", false));
    }

    @ParameterizedTest
    @ValueSource(strings = {"[1,]", "{\"a\"}", "01", "\"\\u00g0\"", "tru", "\"a\tb\"", "", "[1", "\"\\x\"", "{,}"})
    void notJson(String text) {
        assertFalse(JsonSyntax.isValid(text, "any", false));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "{\"a\":1, \"a\":2} | object | false", "{\"a\": 1, \"b\": {\"a\": 1}} | object | true", "[1] | object | false",
        "{\"a\": [1, {\"b\": 2, \"\\u0062\": 3}]} | any | false", "1 | scalar | true", "[] | array | true",
    })
    void uniqueKeysAndShapes(String text, String shape, boolean expected) {
        assertEquals(expected, JsonSyntax.isValid(text, shape, true));
    }
}
