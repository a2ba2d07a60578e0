package io.pgtrickle.spark.functions;

import java.lang.reflect.Method;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Registers every method with the annotation SqlFunction.
 *
 * Spark calls the methods directly, also from the code it generates, with its own values (UTF8String, int, long ...).
 * The classes are listed here, because looking for them in the jar would cost time at every start.
 */
public final class SqlFunctions {
    static final List<Class<?>> CLASSES = List.of(
        ArrayFunctions.class, ArrayComparisons.class, ByteaFunctions.class, CastFunctions.class, DateFunctions.class,
        DateFields.class, DateTexts.class, FloatAggregates.class, FloatFunctions.class, IntervalFunctions.class,
        JsonAccess.class, JsonBuilding.class, JsonKeys.class, JsonPathFunctions.class, JsonTables.class,
        JsonTextFunctions.class, LikeFunctions.class, MessageBudget.class, NumberFormat.class, NumericAggregates.class,
        NumericConversions.class, NumericFunctions.class, NumericRounding.class, RangeFunctions.class,
        RegexFunctions.class, RowFunctions.class, TextFunctions.class, TimeFunctions.class, TimestampFormat.class);

    private SqlFunctions() {}

    /** Makes the functions callable in this session and in those that are cloned from it. */
    public static void register(SparkSession session) {
        FunctionRegistry registry = session.sessionState().functionRegistry();
        for (Class<?> functions : CLASSES) {
            for (Method method : functions.getDeclaredMethods()) {
                SqlFunction function = method.getAnnotation(SqlFunction.class);
                if (function != null) {
                    var builder = new CallBuilder(functions, method, function);
                    registry.createOrReplaceTempFunction(function.value(), builder, "scala_udf");
                }
            }
        }
    }

    /** Builds the call of one function: arguments in, the expression out. */
    private static final class CallBuilder extends AbstractFunction1<Seq<Expression>, Expression> {
        private final Class<?> functions;
        private final String method;
        private final DataType type;
        private final boolean acceptsNull;
        private final boolean nullable;
        private final boolean deterministic;

        CallBuilder(Class<?> functions, Method method, SqlFunction function) {
            this.functions = functions;
            this.method = method.getName();
            this.type = sparkType(method.getReturnType());
            this.acceptsNull = function.acceptsNull();
            this.deterministic = function.deterministic();
            this.nullable = !method.getReturnType().isPrimitive();
        }

        @Override
        public Expression apply(Seq<Expression> arguments) {
            Seq<AbstractDataType> notChecked = List$.MODULE$.empty();
            return new StaticInvoke(
                functions, type, method, arguments, notChecked, !acceptsNull, nullable, deterministic, Option.empty());
        }
    }

    private static DataType sparkType(Class<?> type) {
        if (type == UTF8String.class) return DataTypes.StringType;
        if (type == int.class || type == Integer.class) return DataTypes.IntegerType;
        if (type == long.class || type == Long.class) return DataTypes.LongType;
        if (type == boolean.class || type == Boolean.class) return DataTypes.BooleanType;
        if (type == double.class || type == Double.class) return DataTypes.DoubleType;
        if (type == float.class) return DataTypes.FloatType;
        if (type == byte[].class) return DataTypes.BinaryType;
        throw new IllegalArgumentException("a function cannot return " + type);
    }
}
