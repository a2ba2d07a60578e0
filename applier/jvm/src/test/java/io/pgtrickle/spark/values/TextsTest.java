package io.pgtrickle.spark.values;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Texts of floats, arrays, rows, dates and ranges. */
class TextsTest {
    @ParameterizedTest
    @CsvSource({
        "0, 0", "-0.0, -0", "1, 1", "0.1, 0.1", "-2.5, -2.5", "1e15, 1e+15", "123456789012345, 123456789012345",
        "1e14, 100000000000000", "0.0001, 0.0001", "0.00001, 1e-05", "4.9e-324, 5e-324",
        "1.7976931348623157e308, 1.7976931348623157e+308", "3.3333333333333335, 3.3333333333333335",
        "2e-44, 2e-44", "9007199254740993, 9.007199254740992e+15", "NaN, NaN", "-Infinity, -Infinity",
    })
    void doubles(double value, String expected) {
        assertEquals(expected, FloatText.print(value));
        assertEquals(value, FloatText.parseDouble(expected));
    }

    @ParameterizedTest
    @CsvSource({
        "0.1, 0.1", "3.3333, 3.3333", "100000, 100000", "1000000, 1e+06", "1.4e-45, 1e-45", "3.4028235e38, 3.4028235e+38",
        "16777217, 1.6777216e+07", "0.3333333333, 0.33333334",
    })
    void floats(float value, String expected) {
        assertEquals(expected, FloatText.print(value));
        assertEquals(value, FloatText.parseFloat(expected));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1e400", "-1e400", "1e-400"})
    void doublesOutOfRange(String text) {
        String message = assertThrows(PgError.class, () -> FloatText.parseDouble(text)).getMessage();
        assertEquals("PostgreSQL would report: \"" + text + "\" is out of range for type double precision", message);
    }

    @Test
    void arrays() {
        List<String> elements = Arrays.asList("a", null, "", "NULL", "null", "a b", "a,b", "{", "\"", "\\", "é", "\t");
        String text = "{a,NULL,\"\",\"NULL\",\"null\",\"a b\",\"a,b\",\"{\",\"\\\"\",\"\\\\\",é,\"\t\"}";
        assertEquals(text, PgArray.print(elements));
        assertEquals(elements, PgArray.parse(text));
        assertEquals("{}", PgArray.print(List.of()));
        assertEquals(List.of(), PgArray.parse("{}"));
        assertEquals(List.of(2, 3), PgArray.dimensions("{{1,2,3},{\"a,}\",\\,,6}}"));
        assertThrows(PgError.NotComputed.class, () -> PgArray.parse("[0:1]={1,2}"));
        assertThrows(PgError.NotComputed.class, () -> PgArray.parse("{{1}}"));
    }

    @Test
    void rows() {
        List<String> fields = Arrays.asList("a", null, "", "a b", "(x)", "\"", "\\", "1,5");
        String text = "(a,,\"\",\"a b\",\"(x)\",\"\"\"\",\"\\\\\",\"1,5\")";
        assertEquals(text, PgRow.print(fields));
        assertEquals(fields, PgRow.parse(text));
        assertEquals(Arrays.asList((String) null), PgRow.parse("()"));
    }

    @ParameterizedTest
    @CsvSource({
        "2024-02-29, 2024-02-29 00:00:00", "' 2024-01-01 10:00 ', 2024-01-01 10:00:00",
        "2024-01-01T23:59:60, 2024-01-02 00:00:00", "2024-12-31 24:00:00, 2025-01-01 00:00:00",
        "2024-01-01 12:34:56.789, 2024-01-01 12:34:56.789", "2024-1-5, 2024-01-05 00:00:00",
        "2024-01-01 00:00:00-0330, 2024-01-01 03:30:00", "2024-01-01 00:00:00+02, 2023-12-31 22:00:00",
    })
    void instants(String text, String expected) {
        assertEquals(expected, PgTimestamp.print(IsoDate.parse(text, "timestamp with time zone").toInstant()));
    }

    @Test
    void otherDates() {
        assertThrows(PgError.NotIsoDate.class, () -> IsoDate.parse("Jan 5 2024", "date"));
        assertThrows(PgError.NotComputed.class, () -> IsoDate.parse("10000-01-01", "date"));
        assertThrows(PgError.class, () -> IsoDate.parse("2023-02-29", "date").toDate());
    }

    @ParameterizedTest
    @CsvSource({
        "INT4, 1, 5, [), '[1,5)'", "INT4, 1, 5, (], '[2,6)'", "INT4, 1, 1, [], '[1,2)'", "INT4, 1, 1, [), empty",
        "INT8, , 5, (], '(,6)'", "INT8, 1, , [), '[1,)'", "INT4, 1, 2, (), empty", "INT4, , , (), '(,)'",
        "DATE, 2024-02-28, 2024-02-29, [], '[2024-02-28,2024-03-01)'",
    })
    void ranges(DiscreteRange.Kind kind, String low, String high, String ends, String expected) {
        String text = DiscreteRange.of(kind, low, high, ends).print(kind);
        assertEquals(expected, text);
        assertEquals(expected, DiscreteRange.parse(kind, text).print(kind));
    }

    @Test
    void aRangeEndsWithItsType() {
        String largest = Integer.toString(Integer.MAX_VALUE);
        String message = assertThrows(
            PgError.class, () -> DiscreteRange.of(DiscreteRange.Kind.INT4, "1", largest, "[]")).getMessage();
        assertEquals("PostgreSQL would report: int4 out of range", message);
    }
}
