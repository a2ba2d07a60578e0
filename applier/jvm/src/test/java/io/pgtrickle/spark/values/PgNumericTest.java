package io.pgtrickle.spark.values;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.pgtrickle.spark.values.PgNumeric.Finite;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class PgNumericTest {
    @ParameterizedTest
    @CsvSource({
        "' -12.50\t', -12.50", "1e10, 10000000000", "+.5, 0.5", "5., 5", "0.1e-3, 0.0001",
        "nan, NaN", "-inf, -Infinity", "+Infinity, Infinity", "0.00, 0.00", "-0, 0",
    })
    void readsWhatPostgresReads(String text, String expected) {
        assertEquals(expected, PgNumeric.parse(text).toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "abc", "1 2", "+nan", "1e", "."})
    void refusesOtherTexts(String text) {
        String message = assertThrows(PgError.class, () -> PgNumeric.parse(text)).getMessage();
        assertEquals("PostgreSQL would report: invalid input syntax for type numeric: \"" + text + "\"", message);
    }

    @ParameterizedTest
    @ValueSource(strings = {"0x1F", "1_000.5_0", "0b01", "-0o17"})
    void doesNotReadWhatOnlyLaterVersionsRead(String text) {
        assertThrows(PgError.NotComputed.class, () -> PgNumeric.parse(text));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1e131072", "1e-16384", "1e9999999999"})
    void refusesNumbersThatAreTooLong(String text) {
        String message = assertThrows(PgError.class, () -> PgNumeric.parse(text)).getMessage();
        assertEquals("PostgreSQL would report: value overflows numeric format", message);
    }

    @Test
    void comparesAndSortsAlike() {
        List<String> ascending = List.of(
            "-Infinity", "-1e400", "-12", "-1.5", "-1", "-0.5", "-0.05", "0", "0.05", "0.5", "1", "1.05", "1.5", "12",
            "100", "1e400", "Infinity", "NaN");
        for (String a : ascending) {
            for (String b : ascending) {
                int expected = Integer.compare(ascending.indexOf(a), ascending.indexOf(b));
                PgNumeric x = PgNumeric.parse(a);
                PgNumeric y = PgNumeric.parse(b);
                assertEquals(expected, Integer.signum(x.compare(y)), a + " " + b);
                assertEquals(expected, Integer.signum(x.sortable().compareTo(y.sortable())), a + " " + b);
            }
        }
        assertEquals(PgNumeric.parse("1").sortable(), PgNumeric.parse("1.00").sortable());
    }

    @ParameterizedTest
    @CsvSource({
        "1, 3, 0.33333333333333333333", "10000000000, 3, 3333333333.33333333", "1, 10000, 0.000100000000000000000000",
        "9999, 10000, 0.99990000000000000000", "Infinity, -2, -Infinity", "1, Infinity, 0", "Infinity, Infinity, NaN",
    })
    void dividesWithTheScaleOfPostgres(String a, String b, String expected) {
        assertEquals(expected, NumericArithmetic.quotient(PgNumeric.parse(a), PgNumeric.parse(b)).toString());
    }

    @ParameterizedTest
    @CsvSource({
        "5.5, 2, 1.5", "-5.5, 2, -1.5", "5, Infinity, 5", "-Infinity, 3, NaN", "NaN, 0, NaN",
    })
    void remaindersHaveTheSignOfTheDividend(String a, String b, String expected) {
        assertEquals(expected, NumericArithmetic.remainder(PgNumeric.parse(a), PgNumeric.parse(b)).toString());
    }

    @ParameterizedTest
    @CsvSource({
        "2, 10, 1024.0000000000000", "2, 0.5, 1.4142135623730950", "2, -1, 0.5000000000000000",
        "-8, 3, -512.00000000000000", "0, 0, 1.0000000000000000", "1.5, 2.5, 2.7556759606310754",
    })
    void powersHaveTheScaleOfPostgres(String base, String exponent, String expected) {
        assertEquals(expected, NumericMath.power(finite(base), finite(exponent)).toString());
    }

    @ParameterizedTest
    @CsvSource({"1, 0.0000000000000000", "2, 0.6931471805599453", "10, 2.3025850929940457", "0.5, -0.6931471805599453"})
    void logarithms(String x, String expected) {
        assertEquals(expected, NumericMath.ln(finite(x)).toString());
    }

    @ParameterizedTest
    @CsvSource({"0, 1.0000000000000000", "1, 2.7182818284590452", "-1, 0.3678794411714423", "-6000, ''"})
    void exponentials(String x, String expected) {
        String found = NumericMath.exp(finite(x)).toString();
        if (expected.isEmpty()) assertTrue(found.matches("0\\.0{1000}"));
        else assertEquals(expected, found);
    }

    @Test
    void digitsInBaseTenThousand() {
        var found = new ArrayList<Integer>();
        Finite number = finite("12345678.9");
        for (int i = 0; i < number.digits(); i++) found.add(number.digit(i));
        assertEquals(List.of(1234, 5678, 9000), found);
        assertEquals(List.of(0, 1, -1, 0, 1), Stream.of("0", "10000", "0.0001", "9999", "99999999")
            .map(text -> finite(text).weight()).toList());
    }

    private static Finite finite(String text) {
        return (Finite) PgNumeric.parse(text);
    }
}
