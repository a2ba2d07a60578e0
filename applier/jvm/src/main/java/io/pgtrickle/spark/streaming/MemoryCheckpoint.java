package io.pgtrickle.spark.streaming;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.unsafe.Platform;

/**
 * Keeps the checkpoint of a streaming query in the memory of the driver.
 *
 * <p>Spark writes two small files for each micro-batch and waits for them. Nobody reads them again here: a start begins
 * at the offsets of the traces' checkpoint, in a new folder. Spark makes an instance for each of its logs, so all of
 * them share one map from a file's path to its bytes; a folder has no bytes.
 */
public final class MemoryCheckpoint implements CheckpointFileManager {
    private static final NavigableMap<String, byte[]> FILES = new ConcurrentSkipListMap<>();
    private static final byte[] FOLDER = new byte[0];

    private final Path root;

    public MemoryCheckpoint(Path root, Configuration configuration) {
        this.root = root;
    }

    /** Removes what a query left in its folder. */
    public static void drop(String folder) {
        FILES.remove(folder);
        FILES.subMap(folder + "/", folder + "/" + Character.MAX_VALUE).clear();
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        if (!overwriteIfPossible) refuseExisting(path);
        return new NewFile(path, new ByteArrayOutputStream(), overwriteIfPossible);
    }

    @Override
    public FSDataInputStream open(Path path) {
        return new FSDataInputStream(new Bytes(find(path)));
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        find(path);
        String folder = key(path) + "/";
        return FILES.subMap(folder, folder + Character.MAX_VALUE).entrySet().stream()
            .filter(entry -> entry.getKey().indexOf('/', folder.length()) < 0)
            .map(entry -> status(entry.getKey(), entry.getValue()))
            .filter(status -> filter.accept(status.getPath()))
            .toArray(FileStatus[]::new);
    }

    @Override
    public void mkdirs(Path path) {
        for (Path folder = path; folder != null; folder = folder.getParent()) FILES.putIfAbsent(key(folder), FOLDER);
    }

    @Override
    public boolean exists(Path path) {
        return FILES.containsKey(key(path));
    }

    @Override
    public void delete(Path path) {
        drop(key(path));
    }

    @Override
    public boolean isLocal() {
        return true;
    }

    @Override
    public Path createCheckpointDirectory() {
        mkdirs(root);
        return root;
    }

    private static String key(Path path) {
        return path.toUri().getPath();
    }

    private static byte[] find(Path path) {
        byte[] bytes = FILES.get(key(path));
        // Spark expects it, and the methods of its Scala trait declare no exceptions.
        if (bytes == null) Platform.throwException(new FileNotFoundException(path.toString()));
        return bytes;
    }

    private static void refuseExisting(Path path) {
        if (FILES.containsKey(key(path))) Platform.throwException(new FileAlreadyExistsException(path.toString()));
    }

    private static FileStatus status(String file, byte[] bytes) {
        return new FileStatus(bytes.length, bytes == FOLDER, 1, 1, 0, new Path(file));
    }

    /** A file that exists once it is closed. */
    private static final class NewFile extends CancellableFSDataOutputStream {
        private final Path path;
        private final ByteArrayOutputStream bytes;
        private final boolean overwrites;
        private boolean ended;

        NewFile(Path path, ByteArrayOutputStream bytes, boolean overwrites) {
            super(bytes);
            this.path = path;
            this.bytes = bytes;
            this.overwrites = overwrites;
        }

        @Override
        public void close() throws IOException {
            if (ended) return;
            ended = true;
            flush();
            // Never the array that marks folders: an empty file has one of its own.
            byte[] content = bytes.size() == 0 ? new byte[0] : bytes.toByteArray();
            if (overwrites) FILES.put(key(path), content);
            else if (FILES.putIfAbsent(key(path), content) != null) refuseExisting(path);
        }

        @Override
        public void cancel() {
            ended = true;
        }
    }

    /** The bytes of a file as Hadoop reads files. */
    private static final class Bytes extends ByteArrayInputStream implements Seekable, PositionedReadable {
        Bytes(byte[] bytes) {
            super(bytes);
        }

        @Override
        public void seek(long position) throws EOFException {
            if (position < 0 || position > count) throw new EOFException("position " + position + " of " + count);
            pos = (int) position;
        }

        @Override
        public long getPos() {
            return pos;
        }

        @Override
        public boolean seekToNewSource(long position) {
            return false;
        }

        @Override
        public int read(long position, byte[] into, int offset, int length) {
            if (position >= count) return -1;
            int read = (int) Math.min(length, count - position);
            System.arraycopy(buf, (int) position, into, offset, read);
            return read;
        }

        @Override
        public void readFully(long position, byte[] into, int offset, int length) throws EOFException {
            if (read(position, into, offset, length) < length) throw new EOFException("the file ends before");
        }

        @Override
        public void readFully(long position, byte[] into) throws EOFException {
            readFully(position, into, 0, into.length);
        }
    }
}
