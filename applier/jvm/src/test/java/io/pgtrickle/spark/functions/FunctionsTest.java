package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.pgtrickle.spark.values.IsoDate;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgTimestamp;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Values for which the comparison with PostgreSQL once found a difference, or for which one is likely. */
class FunctionsTest {
    private static long timestamp(String text) {
        return IsoDate.parse(text, "timestamp").toTimestamp();
    }

    private static String string(UTF8String text) {
        return text == null ? null : text.toString();
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', value = {
        "a%b,a\\%b,true", "a\\%,a\\\\\\%,true", "ab,a_,true", "a,a_,false", "😀b,_b,true", "abcabc,%bc,true", "ab,%a%b%_,false",
    })
    void like(String text, String pattern, boolean expected) {
        assertEquals(expected, LikeFunctions.like(fromString(text), fromString(pattern)));
    }

    @Test
    void aPatternDoesNotEndWithItsEscape() {
        assertThrows(PgError.class, () -> LikeFunctions.like(fromString("a"), fromString("\\")));
        assertEquals("a\\\\%\\%", string(LikeFunctions.withBackslash(fromString("a\\%x%"), fromString("x"))));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '~', value = {
        "abcd ~ (a|ab)(c|bcd)? ~ <\\1> ~ <a>", "aXbX ~ X* ~ - ~ -a--b--", "😀b ~ . ~ x ~ xx",
        "ab ~ (a)|(b) ~ [\\2\\&\\\\] ~ [a\\][bb\\]",
    })
    void theLongestMatchIsReplaced(String text, String pattern, String with, String expected) {
        assertEquals(expected, string(RegexFunctions.replace(
            fromString(text), fromString(pattern), fromString(with), true)));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', value = {
        "abc || {a,b,c}", "a1b2 | [0-9] | {a,b,\"\"}", "a,,b | , | {a,\"\",b}", "`` | a | {\"\"}",
    })
    void split(String text, String pattern, String expected) {
        String given = pattern == null ? "" : pattern;
        assertEquals(expected, string(RegexFunctions.split(fromString(text == null ? "" : text), fromString(given))));
    }

    @ParameterizedTest
    @CsvSource({
        "2024-03-31, 1 mon, 2024-04-30 00:00:00", "2024-02-29, -1 year, 2023-02-28 00:00:00",
        "2024-01-31 12:00, 1 mon -13:00:00, 2024-02-28 23:00:00", "1970-01-01, -00:00:00.000001, 1969-12-31 23:59:59.999999",
    })
    void timestampsMove(String text, String interval, String expected) {
        assertEquals(expected, PgTimestamp.print(DateFunctions.add(timestamp(text), fromString(interval))));
    }

    @ParameterizedTest
    @CsvSource({
        "2024-03-01, 2024-01-31, 1 mon 1 day", "2024-01-31, 2024-03-01, -1 mons -1 days", "2024-03-01, 2024-02-29 12:00, 12:00:00",
        "2000-02-29, 1999-02-28 00:00:01, 1 year 23:59:59",
    })
    void ages(String a, String b, String expected) {
        assertEquals(expected, string(DateFunctions.age(timestamp(a), timestamp(b))));
    }

    @ParameterizedTest
    @CsvSource({
        "Europe/Berlin, 2024-03-31 02:30:00, 2024-03-31 01:30:00", "Europe/Berlin, 2024-10-27 02:30:00, 2024-10-27 01:30:00",
        "America/New_York, 2024-03-10 02:30:00, 2024-03-10 07:30:00",
    })
    void gapsAndOverlapsOfZones(String zone, String local, String instant) {
        assertEquals(instant, PgTimestamp.print(DateFunctions.fromZone(fromString(zone), timestamp(local))));
    }

    @ParameterizedTest
    @CsvSource({"isoyear, 2021-01-03, 2020", "week, 2021-01-03, 53", "dow, 2024-02-25, 0", "century, 2000-12-31, 20",
        "millennium, 2001-01-01, 3", "julian, 2000-01-01, 2451545", "doy, 2024-12-31, 366"})
    void fields(String unit, String text, long expected) {
        assertEquals(expected, DateFields.ofTimestamp(fromString(unit), timestamp(text)));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', ignoreLeadingAndTrailingWhitespace = false, value = {
        "2024-01-05 13:02:03|FMMonth FMDDth, YYYY HH12:MI am|January 5th, 2024 01:02 pm",
        "2024-02-12|DDth Month|12th February ", "2024-12-30|IYYY-IW-ID|2025-01-1", "0001-01-01|YYYY YY|0001 01",
    })
    void timestampsAsTexts(String text, String format, String expected) {
        assertEquals(expected, string(TimestampFormat.print(timestamp(text), fromString(format))));
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', delimiter = '|', ignoreLeadingAndTrailingWhitespace = false, value = {
        "1234.567|9,999.99| 1,234.57", "-5|999|  -5", "0|FM9.99|0.", "0.5|FM0.00|0.50", "12345|999| ###", "0|9| 0", "0.1|9.9|  .1",
    })
    void numbersAsTexts(String number, String format, String expected) {
        assertEquals(expected, string(NumberFormat.print(fromString(number), fromString(format))));
    }

    @Test
    void numericsKeepTheirScale() {
        assertEquals("1.414213562373095", string(NumericFunctions.squareRoot(fromString("2"))));
        assertEquals("0.25", string(NumericFunctions.gcd(fromString("1.25"), fromString("0.50"))));
        assertEquals("3", string(NumericRounding.round(fromString("2.5"), 0)));
        assertEquals("-3", string(NumericRounding.round(fromString("-2.5"), 0)));
        assertEquals(2, NumericConversions.toInteger(fromString("1.5"), Integer.MIN_VALUE, Integer.MAX_VALUE));
        assertThrows(PgError.class, () -> NumericRounding.toPrecision(fromString("999.995"), 5, 2));
    }

    @Test
    void floatsAreCheckedForTheirRange() {
        assertThrows(PgError.class, () -> FloatFunctions.multiply(1e200, 1e200));
        assertThrows(PgError.class, () -> FloatFunctions.multiply(1e-200, 1e-200));
        assertThrows(PgError.class, () -> FloatFunctions.divide(1, 0));
        assertEquals(Double.NaN, FloatFunctions.divide(Double.NaN, 0));
        assertEquals(0, FloatFunctions.divide(1, Double.POSITIVE_INFINITY));
        assertThrows(PgError.NotComputed.class, () -> FloatFunctions.wholePower(3, 40));
    }

    @Test
    void paddingWithNothing() {
        assertEquals("ab", string(TextFunctions.padLeft(fromString("ab"), 5, fromString(""))));
        assertEquals("", string(TextFunctions.padRight(fromString("ab"), Integer.MIN_VALUE, fromString("x"))));
        assertEquals("xyxab", string(TextFunctions.padLeft(fromString("ab"), 5, fromString("xy"))));
        assertEquals("ab", string(TextFunctions.align(fromString("ab"), Integer.MIN_VALUE, true)));
    }

    @Test
    void nullInArrays() {
        UTF8String text = fromString("text");
        assertEquals("{NULL}", string(ArrayFunctions.append(null, null)));
        assertEquals("{a}", string(ArrayComparisons.remove(text, fromString("{a,NULL}"), null)));
        assertEquals(2, ArrayComparisons.position(text, fromString("{a,NULL}"), null));
        assertEquals(null, ArrayComparisons.compareAll(text, fromString("="), fromString("b"), fromString("{a,NULL}"), false));
        assertEquals(true, ArrayComparisons.compareAll(text, fromString("="), fromString("a"), fromString("{a,NULL}"), false));
        assertEquals("{}", string(ArrayFunctions.split(fromString(""), fromString(","), null)));
        assertEquals("{a,NULL}", string(ArrayFunctions.split(fromString("a,b"), fromString(","), fromString("b"))));
    }

    @Test
    void sumsOfLimbs() {
        String[] limbs = new String[4];
        for (int i = 0; i < 4; i++) {
            limbs[i] = Long.toString(NumericAggregates.limb(fromString("-1234567890123456789012.5"), 1, i));
        }
        assertEquals("-1234567890123456789012.5", string(NumericAggregates.ofLimbs(
            1, fromString(limbs[0]), fromString(limbs[1]), fromString(limbs[2]), fromString(limbs[3]))));
    }

    @Test
    void aggregatesOfFewValues() {
        var one = new GenericArrayData(new Object[] {fromString("5")});
        assertEquals(null, NumericAggregates.variance(one, true, false));
        assertEquals("0", string(NumericAggregates.variance(one, false, true)));
        var two = new GenericArrayData(new double[] {1, 2});
        assertEquals(0.5, FloatAggregates.variance(two, true, false));
        assertEquals(null, FloatAggregates.regression(
            fromString("regr_slope"), two, new GenericArrayData(new double[] {3, 3})));
    }

    @Test
    void jsonOfComposites() {
        String kind = "r\0a\0n\0b c\0t";
        assertEquals("{\"a\":1,\"b c\":null}", string(JsonTextFunctions.ofText(fromString(kind), fromString("(1,)"))));
        assertEquals("[1,null]", string(JsonTextFunctions.ofText(fromString("an"), fromString("{1,NULL}"))));
        assertEquals("100", string(JsonBuilding.ofText(fromString("n"), fromString("1e2"))));
        assertEquals("2", string(JsonTextFunctions.get(fromString("{\"a\":1, \"a\" : 2}"), fromString("a"))));
    }
}
