package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.CharacterClass;
import io.pgtrickle.spark.values.PgError;
import java.math.BigInteger;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** Input functions of simple types: a text in, the value out, or PostgreSQL's error. */
public final class CastFunctions {
    private static final Pattern INTEGER = Pattern.compile("[+-]?\\d(_?\\d)*");
    private static final Pattern UUID = Pattern.compile("[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}");

    private CastFunctions() {}

    /** Reads int2, int4 or int8, which is from `low` to `high`, except hexadecimal, octal and binary integers. */
    @SqlFunction("pg_casts_in_int")
    public static long parseInteger(UTF8String input, long low, long high) {
        String text = CharacterClass.trimSpace(input.toString());
        if (!INTEGER.matcher(text).matches()) throw PgError.invalidInput("integer", input);
        var value = new BigInteger(text.replace("_", "").replace("+", ""));
        if (value.bitLength() > 63 || value.longValue() < low || value.longValue() > high) {
            throw new PgError("value \"" + input + "\" is out of range for type integer");
        }
        return value.longValue();
    }

    /** Reads a boolean: a beginning of true, yes, false or no, or on, off, 1, 0. */
    @SqlFunction("pg_casts_in_bool")
    public static boolean parseBoolean(UTF8String input) {
        return switch (CharacterClass.trimSpace(input.toString()).toLowerCase(Locale.ROOT)) {
            case "t", "tr", "tru", "true", "y", "ye", "yes", "on", "1" -> true;
            case "f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0" -> false;
            default -> throw PgError.invalidInput("boolean", input);
        };
    }

    /** Reads a uuid and writes it as PostgreSQL does. */
    @SqlFunction("pg_casts_in_uuid")
    public static UTF8String parseUuid(UTF8String input) {
        String text = input.toString();
        if (text.startsWith("{") && text.endsWith("}")) text = text.substring(1, text.length() - 1);
        if (!UUID.matcher(text).matches()) throw PgError.invalidInput("uuid", input);
        String hex = text.replace("-", "").toLowerCase(Locale.ROOT);
        return fromString(String.join("-", hex.substring(0, 8), hex.substring(8, 12), hex.substring(12, 16),
            hex.substring(16, 20), hex.substring(20)));
    }

    /** Returns the position of a label among the labels of its enum, which are separated by NUL: their order. */
    @SqlFunction("pg_casts_place")
    public static int enumPosition(UTF8String label, UTF8String labels) {
        int position = List.of(labels.toString().split("\u0000", -1)).indexOf(label.toString());
        if (position >= 0) return position;
        throw new PgError.NotComputed("the label \"" + label + "\" was added after the stream table was defined");
    }
}
