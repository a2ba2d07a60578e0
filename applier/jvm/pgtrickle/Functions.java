package pgtrickle;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Makes every public static method of the library callable from Spark SQL as pg_CLASS_METHOD, all in lower case.
 *
 * Spark calls the methods directly, also from the code it generates, with its own values (UTF8String, int, long ...).
 * A NULL argument makes the result NULL without a call, except for the methods of NullAware. A boxed or object result
 * may be null.
 */
public class Functions {
    private static final Class[] STRICT = {
        Aggregates.class, Arrays.class, Casts.class, Dates.class, Floats.class, Format.class, Intervals.class,
        Json.class, JsonPath.class, JsonText.class, Numeric.class, Ranges.class, Regex.class, Rows.class, Text.class,
    };

    public static void register(org.apache.spark.sql.classic.SparkSession session) {
        FunctionRegistry registry = session.sessionState().functionRegistry();
        for (int i = 0; i < STRICT.length; i++) {
            register(registry, STRICT[i], true);
        }
        register(registry, NullAware.class, false);
    }

    private static void register(FunctionRegistry registry, Class from, boolean strict) {
        Method[] methods = from.getDeclaredMethods();
        for (int i = 0; i < methods.length; i++) {
            Method method = methods[i];
            DataType type = typeOf(method.getReturnType());
            int modifiers = method.getModifiers();
            if (type != null && Modifier.isPublic(modifiers) && Modifier.isStatic(modifiers)) {
                String name = "pg_" + from.getSimpleName() + "_" + method.getName();
                boolean nullable = !method.getReturnType().isPrimitive();
                registry.createOrReplaceTempFunction(
                    name.toLowerCase(), new Builder(from, method.getName(), type, strict, nullable), "scala_udf");
            }
        }
    }

    private static DataType typeOf(Class type) {
        if (type == boolean.class || type == Boolean.class) return DataTypes.BooleanType;
        if (type == int.class || type == Integer.class) return DataTypes.IntegerType;
        if (type == long.class || type == Long.class) return DataTypes.LongType;
        if (type == double.class || type == Double.class) return DataTypes.DoubleType;
        if (type == float.class || type == Float.class) return DataTypes.FloatType;
        if (type == UTF8String.class) return DataTypes.StringType;
        if (type == byte[].class) return DataTypes.BinaryType;
        return null;
    }

    private static class Builder extends scala.runtime.AbstractFunction1 implements java.io.Serializable {
        private final Class from;
        private final String method;
        private final DataType type;
        private final boolean strict;
        private final boolean nullable;

        Builder(Class from, String method, DataType type, boolean strict, boolean nullable) {
            this.from = from;
            this.method = method;
            this.type = type;
            this.strict = strict;
            this.nullable = nullable;
        }

        public Object apply(Object arguments) {
            scala.collection.immutable.Seq none = (scala.collection.immutable.Seq)
                scala.collection.immutable.Nil$.MODULE$;
            return new StaticInvoke(
                from, type, method, (scala.collection.immutable.Seq) arguments, none, strict, nullable, true,
                scala.Option.empty());
        }
    }
}
