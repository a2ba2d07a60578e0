package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.spark.unsafe.types.UTF8String;

/** Texts of bytea. */
public final class ByteaFunctions {
    /** PostgreSQL breaks base64 as MIME does, but with a line feed alone. */
    private static final Base64.Encoder BASE64 = Base64.getMimeEncoder(76, new byte[] {'\n'});

    private ByteaFunctions() {}

    /** The text of bytea_output hex. */
    @SqlFunction("pg_casts_out_bytea")
    public static UTF8String print(byte[] bytes) {
        return fromString("\\x" + HexFormat.of().formatHex(bytes));
    }

    /** Reads both formats of bytea_output. */
    @SqlFunction("pg_casts_in_bytea")
    public static byte[] parse(UTF8String input) {
        String text = input.toString();
        return text.startsWith("\\x") ? parseHex(text) : parseEscaped(input.getBytes());
    }

    private static byte[] parseHex(String text) {
        var out = new ByteArrayOutputStream();
        int at = 2;
        while (at < text.length()) {
            char c = text.charAt(at);
            if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
                at++;
                continue;
            }
            int high = hexDigit(c);
            if (at + 1 >= text.length()) throw new PgError("invalid hexadecimal data: odd number of digits");
            out.write(high * 16 + hexDigit(text.charAt(at + 1)));
            at += 2;
        }
        return out.toByteArray();
    }

    private static int hexDigit(char c) {
        int digit = c < 128 ? Character.digit(c, 16) : -1;
        if (digit < 0) throw new PgError("invalid hexadecimal digit: \"" + c + "\"");
        return digit;
    }

    private static byte[] parseEscaped(byte[] raw) {
        var out = new ByteArrayOutputStream();
        for (int i = 0; i < raw.length; i++) {
            if (raw[i] != '\\') {
                out.write(raw[i]);
            } else if (i + 1 < raw.length && raw[i + 1] == '\\') {
                out.write('\\');
                i++;
            } else if (i + 3 < raw.length && isOctal(raw[i + 1], '3') && isOctal(raw[i + 2], '7')
                && isOctal(raw[i + 3], '7')) {
                out.write((raw[i + 1] - '0') * 64 + (raw[i + 2] - '0') * 8 + raw[i + 3] - '0');
                i += 3;
            } else {
                throw new PgError("invalid input syntax for type bytea");
            }
        }
        return out.toByteArray();
    }

    private static boolean isOctal(byte b, char largest) {
        return b >= '0' && b <= largest;
    }

    /** encode(bytea, format). */
    @SqlFunction("pg_text_encode")
    public static UTF8String encode(byte[] bytes, UTF8String format) {
        return fromString(switch (format.toString()) {
            case "hex" -> HexFormat.of().formatHex(bytes);
            case "base64" -> new String(BASE64.encode(bytes), StandardCharsets.ISO_8859_1);
            case "escape" -> escape(bytes);
            default -> throw new PgError("unrecognized encoding: \"" + format + "\"");
        });
    }

    private static String escape(byte[] bytes) {
        var out = new StringBuilder();
        for (byte signed : bytes) {
            int b = signed & 255;
            if (b == 0 || b > 127) {
                out.append('\\').append(b / 64).append(b / 8 % 8).append(b % 8);
            } else if (b == '\\') {
                out.append("\\\\");
            } else {
                out.append((char) b);
            }
        }
        return out.toString();
    }
}
