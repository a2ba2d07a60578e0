package pgtrickle;

import java.util.ArrayList;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Composite values over PostgreSQL's text; fields are the texts of their output functions, null for NULL. */
public final class Rows {
    /** record_out */
    public static UTF8String of(ArrayData fields) {
        StringBuilder out = new StringBuilder("(");
        for (int i = 0; i < fields.numElements(); i++) {
            if (i > 0) out.append(',');
            if (!fields.isNullAt(i)) print(out, fields.getUTF8String(i).toString());
        }
        return UTF8String.fromString(out.append(')').toString());
    }

    private static void print(StringBuilder out, String field) {
        boolean quoted = field.isEmpty();
        for (int i = 0; i < field.length() && !quoted; i++) {
            char c = field.charAt(i);
            quoted = c == '"' || c == '\\' || c == '(' || c == ')' || c == ',' || Text.isSpace(c);
        }
        if (!quoted) out.append(field);
        else out.append('"').append(field.replace("\\", "\\\\").replace("\"", "\"\"")).append('"');
    }

    /** Parses a row with fields, the inverse of `of`; `()` is a row of one NULL. */
    static ArrayList parse(String row) {
        ArrayList out = new ArrayList();
        StringBuilder word = new StringBuilder();
        int i = 1;
        while (true) {
            word.setLength(0);
            boolean given = row.charAt(i) != ',' && row.charAt(i) != ')';
            if (given && row.charAt(i) == '"') {
                i++;
                while (row.charAt(i) != '"' || row.charAt(i + 1) == '"') {
                    if (row.charAt(i) == '"' || row.charAt(i) == '\\') i++;
                    word.append(row.charAt(i++));
                }
                i++;
            } else {
                while (row.charAt(i) != ',' && row.charAt(i) != ')') word.append(row.charAt(i++));
            }
            out.add(given ? word.toString() : null);
            if (row.charAt(i++) == ')') return out;
        }
    }
}
