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
    /** The rows of such a query as an Arrow stream; null when it is none, or they are more than `most`. */
    public static byte[] rows(Dataset frame, String zone, int most) {
        ArrayBuffer found = new ArrayBuffer();
        if (!gathered(frame.queryExecution().optimizedPlan(), found) || found.size() > most) return null;
        StructType schema = frame.schema();
        if (found.isEmpty()) return ArrowConverters$.MODULE$.createEmptyArrowBatch(schema, zone, true, false);
        return (byte[]) ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
            found.iterator(), schema, most, Integer.MAX_VALUE, zone, true, false).next();
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
