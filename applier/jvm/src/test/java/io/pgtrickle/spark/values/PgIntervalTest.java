package io.pgtrickle.spark.values;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class PgIntervalTest {
    @ParameterizedTest
    @ValueSource(strings = {
        "00:00:00", "1 mon", "-1 mons +29 days -24:00:00", "1 year 2 mons 3 days 04:05:06.789", "-00:00:00.000001",
        "178956970 years 7 mons 2147483647 days", "-178956970 years -8 mons", "-2147483648 days",
        "2562047788:00:54.775807", "-2562047788:00:54.775808", "-1 days +02:03:00", "1 day -00:00:01",
    })
    void writesWhatItReads(String text) {
        assertEquals(text, PgInterval.parse(text).toString());
    }

    @ParameterizedTest
    @CsvSource({"2 weeks, 14 days", "90 minutes, 01:30:00", "1 MONTH 1 sec, 1 mon 00:00:01", "+3 hours, 03:00:00"})
    void readsNumbersWithUnits(String text, String expected) {
        assertEquals(expected, PgInterval.parse(text).toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "1", "day 1", "1 fortnight", "01:00:00 1 day", "1:2:3:4"})
    void refusesOtherTexts(String text) {
        assertThrows(PgError.NotComputed.class, () -> PgInterval.parse(text));
    }

    @ParameterizedTest
    @CsvSource({
        "1 mon, 0.5, 15 days", "1 day, 1.5, 1 day 12:00:00", "1 mon, 1.7, 1 mon 21 days", "00:00:01, 0.0000005, 00:00:00",
        "-1 mons +31 days -47:59:59, 2, -2 mons +62 days -95:59:58", "1 year, 0.3333333, 3 mons 29 days 23:59:58.9632",
    })
    void fractionsGoToTheNextUnit(String text, double factor, String expected) {
        assertEquals(expected, PgInterval.parse(text).times(factor).toString());
    }

    @ParameterizedTest
    @CsvSource({
        "35 days 25:00:00, 35 days 25:00:00, 36 days 01:00:00, 1 mon 5 days 25:00:00, 1 mon 6 days 01:00:00",
        "-1 days +36:00:00, -1 days +36:00:00, 12:00:00, -1 days +36:00:00, 12:00:00",
        "1 mon -1 hours, 1 mon -01:00:00, 1 mon -01:00:00, 1 mon -01:00:00, 29 days 23:00:00",
    })
    void justifies(String text, String same, String hours, String days, String both) {
        PgInterval interval = PgInterval.parse(text);
        assertEquals(same, interval.toString());
        assertEquals(hours, interval.justifyHours().toString());
        assertEquals(days, interval.justifyDays().toString());
        assertEquals(both, interval.justify().toString());
    }

    @ParameterizedTest
    @CsvSource({"-178956970 years -8 mons", "-2147483648 days", "-2562047788:00:54.775808"})
    void theSmallestPartsHaveNoCounterpart(String text) {
        String message = assertThrows(PgError.class, () -> PgInterval.parse(text).negate()).getMessage();
        assertEquals("PostgreSQL would report: interval out of range", message);
    }

    @ParameterizedTest
    @CsvSource({"1 mon, 30 days, 0", "1 day, 24:00:00, 0", "1 mon, 31 days, -1", "1 year, 359 days, 1"})
    void aMonthHasThirtyDays(String a, String b, int expected) {
        assertEquals(expected, PgInterval.parse(a).size().compareTo(PgInterval.parse(b).size()));
    }
}
