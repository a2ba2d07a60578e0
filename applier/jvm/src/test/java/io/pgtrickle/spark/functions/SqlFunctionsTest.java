package io.pgtrickle.spark.functions;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SqlFunctionsTest {
    @Test
    void functionsHaveNamesThatAreUniqueInLowerCase() {
        Map<String, String> javaNames = new HashMap<>();
        for (Class<?> functions : SqlFunctions.CLASSES) {
            for (Method method : functions.getDeclaredMethods()) {
                SqlFunction function = method.getAnnotation(SqlFunction.class);
                String javaName = functions.getSimpleName() + "." + method.getName();
                if (function == null) {
                    assertTrue(!Modifier.isPublic(method.getModifiers()), javaName + " is public and no function");
                    continue;
                }
                assertTrue(function.value().matches("pg_[a-z0-9_]+"), function.value());
                assertTrue(Modifier.isPublic(method.getModifiers()) && Modifier.isStatic(method.getModifiers()), javaName);
                String other = javaNames.putIfAbsent(function.value(), javaName);
                assertTrue(other == null || other.equals(javaName), function.value() + " is " + other + " and " + javaName);
            }
        }
        assertEquals(219, javaNames.size(), "update this number when you add or remove a function");
    }
}
