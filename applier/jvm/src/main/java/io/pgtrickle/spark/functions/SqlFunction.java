package io.pgtrickle.spark.functions;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Makes a public static method callable from Spark SQL; SqlFunctions registers it.
 *
 * The type of the result follows from the method's: boolean, int, long, float, double, UTF8String or byte[]. A boxed or
 * object result may be null. Methods with the same name in SQL have the same name in Java: Spark chooses by arguments.
 */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface SqlFunction {
    /** The name in Spark SQL, in lower case. */
    String value();

    /** Whether the method is called with NULL arguments; otherwise they make the result NULL without a call. */
    boolean acceptsNull() default false;

    /** Whether the same arguments always give the same result. */
    boolean deterministic() default true;
}
