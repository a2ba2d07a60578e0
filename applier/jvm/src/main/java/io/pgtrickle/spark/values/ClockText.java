package io.pgtrickle.spark.values;

import java.time.LocalDate;

/** Texts of dates and times of day in DateStyle ISO. */
public final class ClockText {
    private ClockText() {}

    /** Returns hh:mm:ss with up to six decimals, without zeros at the end, for microseconds since midnight. */
    public static String ofTime(long micros) {
        return append(new StringBuilder(), micros / PgInterval.HOUR, micros % PgInterval.HOUR).toString();
    }

    /** Returns yyyy-mm-dd. */
    public static String ofDate(LocalDate date) {
        var out = new StringBuilder();
        String year = Integer.toString(date.getYear());
        for (int i = year.length(); i < 4; i++) out.append('0');
        out.append(year).append('-');
        appendTwoDigits(out, date.getMonthValue()).append('-');
        return appendTwoDigits(out, date.getDayOfMonth()).toString();
    }

    /** Appends hours, and microseconds as minutes, seconds and decimals. */
    static StringBuilder append(StringBuilder out, long hours, long micros) {
        appendTwoDigits(out, hours).append(':');
        appendTwoDigits(out, micros / PgInterval.MINUTE).append(':');
        appendTwoDigits(out, micros / PgInterval.SECOND % 60);
        int fraction = (int) (micros % PgInterval.SECOND);
        if (fraction == 0) return out;
        String digits = Integer.toString(1000000 + fraction).substring(1);
        int end = 6;
        while (digits.charAt(end - 1) == '0') end--;
        return out.append('.').append(digits, 0, end);
    }

    private static StringBuilder appendTwoDigits(StringBuilder out, long value) {
        return out.append(value < 10 ? "0" : "").append(value);
    }
}
