package pgtrickle;

import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/** Queries that need no Spark job: projections and filters of rows on the driver, which the optimizer has computed. */
public final class Planned {
    /** The rows of such a query as an Arrow stream; null when it is none, or made of more rows than `most`. */
    public static byte[] rows(Dataset frame, String zone, int most) {
        // Asked of the plan before it is optimized: the optimizer is slow with many rows, and would be for nothing.
        if (!isFew(frame.queryExecution().analyzed(), most)) return null;
        ArrayBuffer found = new ArrayBuffer();
        if (!gathered(frame.queryExecution().optimizedPlan(), found)) return null;
        StructType schema = frame.schema();
        if (found.isEmpty()) return ArrowConverters$.MODULE$.createEmptyArrowBatch(schema, zone, true, false);
        return (byte[]) ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
            found.iterator(), schema, most, Integer.MAX_VALUE, zone, true, false).next();
    }

    private static boolean isFew(LogicalPlan plan, int most) {
        int rows = 0;
        Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (!(leaf instanceof LocalRelation)) return false;
            rows += ((LocalRelation) leaf).data().size();
        }
        return rows <= most;
    }

    private static boolean gathered(LogicalPlan plan, ArrayBuffer into) {
        if (plan instanceof LocalRelation) {
            into.addAll(((LocalRelation) plan).data());
            return true;
        }
        // A limit of ours is above what is taken from here in any case.
        if (plan instanceof LocalLimit) return gathered(((LocalLimit) plan).child(), into);
        if (!(plan instanceof Union)) return false;
        Iterator children = ((Union) plan).children().iterator();
        while (children.hasNext()) {
            if (!gathered((LogicalPlan) children.next(), into)) return false;
        }
        return true;
    }
}
