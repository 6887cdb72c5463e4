import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/**
 * Runs the same load on a peer as the Python side runs on Quire, and measures it in the same way.
 *
 * Reads commands from standard input, one per line. The response to each is one JSON line with
 * "done": true or an "error". One process serves a complete run, so that its code stays compiled.
 *
 *   ready
 *   append VARIANT BYTES COUNT OUTSTANDING
 *   open VARIANT BYTES PER_SECOND SECONDS FROM_SECOND WARM_UP_SECONDS
 *       (one more line, "started": true, before the measured part)
 *   fill BYTES COUNT
 *   read WAY
 *
 * Percentiles are exact, nearest rank over every sample. In an open loop each append's latency
 * counts from its due time. Failed appends are counted, but are not in a rate or percentile.
 */
abstract class LoadClient {
    /** Called once for each append; the error is null if it was acknowledged. */
    interface Completion {
        void done(Throwable error);
    }

    private static final int POOL_BYTES = 4 * 1024 * 1024;
    private static final int POOL_ENTRIES_MAX = 8192;
    private static final int FILL_OUTSTANDING = 2000;
    private static final long FAILED = -1;

    private final PrintStream answers;

    LoadClient() {
        answers = System.out;
        System.setOut(System.err); // some libraries print to standard output
    }

    /** Wait until the servers can be used. */
    abstract void ready() throws Exception;

    /** Begin a ledger or a producer; a batching one may delay entries to send more at once. */
    abstract void begin(String variant, boolean isBatching) throws Exception;

    abstract void append(byte[] payload, Completion completion) throws Exception;

    /** End the ledger or producer of begin(); return further facts about it. */
    abstract Map<String, Object> end() throws Exception;

    /** Return the servers that store it: comma-separated host:port. */
    abstract String members() throws Exception;

    /** Return the variant for catch-up reads, which is begun as any other variant. */
    abstract String filledVariant();

    /** Record that the variant begun last is for catch-up reads, and its number of entries. */
    abstract void noteFilled(int count);

    /** Read all its entries; return entries and bytes. */
    abstract long[] read(String way) throws Exception;

    /** Perform commands until the input ends; then end at once, also during a command. */
    final void serve() throws Exception {
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread listener = new Thread(() -> listen(commands), "commands");
        listener.setDaemon(true);
        listener.start();
        while (true) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.putAll(perform(commands.take().trim().split(" ")));
                answer.put("done", true);
            } catch (Throwable error) { // respond also when out of memory
                error.printStackTrace();
                answer.put("error", String.valueOf(error));
            }
            say(answer);
        }
    }

    private static void listen(BlockingQueue<String> commands) {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                commands.add(line);
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> perform(String[] words) throws Exception {
        switch (words[0]) {
            case "ready":
                ready();
                return Map.of();
            case "append":
                return closedLoop(words[1], number(words[2]), number(words[3]), number(words[4]));
            case "open":
                return openLoop(words[1], number(words[2]), number(words[3]),
                    Double.parseDouble(words[4]), Double.parseDouble(words[5]),
                    Double.parseDouble(words[6]));
            case "fill":
                return fill(number(words[1]), number(words[2]));
            case "read":
                return timedRead(words[1]);
            default:
                throw new IllegalArgumentException("unknown command: " + words[0]);
        }
    }

    private Map<String, Object> closedLoop(String variant, int bytes, int count, int outstanding)
            throws Exception {
        begin(variant, outstanding > 1);
        byte[][] pool = pool(bytes);
        Samples samples = new Samples(count);
        Semaphore window = new Semaphore(outstanding);
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            window.acquire();
            int number = i;
            long sent = System.nanoTime();
            append(pool[i % pool.length], error -> {
                samples.end(number, sent, error);
                window.release();
            });
        }
        window.acquire(outstanding);
        double seconds = (System.nanoTime() - start) / 1e9;
        Map<String, Object> found = samples.figures("");
        found.putAll(end());
        found.putAll(rates(count - samples.failed.get(), bytes, seconds));
        return found;
    }

    private Map<String, Object> fill(int bytes, int count) throws Exception {
        Map<String, Object> found = closedLoop(filledVariant(), bytes, count, FILL_OUTSTANDING);
        if (!found.get("failed_count").equals(0)) {
            throw new IllegalStateException("appends failed: " + found.get("first_failure"));
        }
        noteFilled(count);
        return found;
    }

    private Map<String, Object> openLoop(String variant, int bytes, int perSecond, double seconds,
            double from, double warmUp) throws Exception {
        begin(variant, false);
        schedule(new Samples((int) (perSecond * warmUp)), bytes, perSecond);
        say(Map.of("started", true, "members", members()));
        Samples samples = new Samples((int) (perSecond * seconds));
        double late = schedule(samples, bytes, perSecond);
        int first = (int) (perSecond * from);
        Map<String, Object> found = samples.between(first, samples.took.length).figures("");
        found.putAll(samples.between(0, first).figures("before_"));
        found.put("generator_late_ms_max", late);
        found.putAll(end());
        return found;
    }

    /** Append on schedule; wait for all; return the maximum delay behind the schedule, in ms. */
    private double schedule(Samples samples, int bytes, int perSecond) throws Exception {
        int count = samples.took.length;
        byte[] payload = pool(bytes)[0];
        Semaphore ended = new Semaphore(0);
        long start = System.nanoTime();
        long late = 0;
        for (int i = 0; i < count; i++) {
            int number = i;
            long due = start + (long) (i * 1e9 / perSecond);
            for (long rest = due - System.nanoTime(); rest > 0; rest = due - System.nanoTime()) {
                LockSupport.parkNanos(rest);
            }
            late = Math.max(late, System.nanoTime() - due);
            append(payload, error -> {
                samples.end(number, due, error);
                ended.release();
            });
        }
        ended.acquire(count);
        return late / 1e6;
    }

    private Map<String, Object> timedRead(String way) throws Exception {
        long start = System.nanoTime();
        long[] found = read(way);
        double seconds = (System.nanoTime() - start) / 1e9;
        return rates(found[0], found[1] / (double) found[0], seconds);
    }

    private static Map<String, Object> rates(long count, double bytes, double seconds) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("entry_count", count);
        found.put("seconds", seconds);
        found.put("entries_per_s", count / seconds);
        found.put("MB_per_s", count * bytes / seconds / 1e6);
        return found;
    }

    static byte[][] pool(int bytes) {
        Random random = new Random(1);
        int count = Math.max(1, Math.min(POOL_ENTRIES_MAX, POOL_BYTES / bytes));
        byte[][] pool = new byte[count][bytes];
        for (byte[] payload : pool) {
            random.nextBytes(payload);
        }
        return pool;
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private void say(Map<String, Object> values) {
        String fields = values.entrySet().stream()
            .map(entry -> quoted(entry.getKey()) + ": " + json(entry.getValue()))
            .collect(Collectors.joining(", "));
        answers.println("{" + fields + "}");
        answers.flush();
    }

    private static String json(Object value) {
        return value instanceof Number || value instanceof Boolean ? value.toString()
            : quoted(String.valueOf(value));
    }

    private static String quoted(String text) {
        return '"' + text.replaceAll("[\\p{Cntrl}\"\\\\]", " ") + '"';
    }

    /** Outcomes of appends, by number; written by the library's threads. */
    private static final class Samples {
        final long[] took;
        final AtomicInteger failed = new AtomicInteger();
        final AtomicReference<String> firstFailure = new AtomicReference<>();

        Samples(int count) {
            this(new long[count]);
        }

        private Samples(long[] took) {
            this.took = took;
        }

        void end(int number, long since, Throwable error) {
            took[number] = error == null ? System.nanoTime() - since : FAILED;
            if (error != null) {
                failed.incrementAndGet();
                firstFailure.compareAndSet(null, String.valueOf(error));
            }
        }

        Samples between(int first, int end) {
            Samples part = new Samples(Arrays.copyOfRange(took, first, end));
            part.failed.set((int) Arrays.stream(part.took).filter(nanos -> nanos < 0).count());
            part.firstFailure.set(firstFailure.get());
            return part;
        }

        Map<String, Object> figures(String prefix) {
            long[] ordered = Arrays.stream(took).filter(nanos -> nanos >= 0).sorted().toArray();
            Map<String, Object> found = new LinkedHashMap<>();
            if (ordered.length > 0) {
                found.put(prefix + "p50_ms", percentile(ordered, 0.5));
                found.put(prefix + "p90_ms", percentile(ordered, 0.9));
                found.put(prefix + "p99_ms", percentile(ordered, 0.99));
                found.put(prefix + "p999_ms", percentile(ordered, 0.999));
                found.put(prefix + "max_ms", percentile(ordered, 1.0));
            }
            found.put(prefix + "failed_count", failed.get());
            if (failed.get() > 0) {
                found.put(prefix + "first_failure", firstFailure.get());
            }
            return found;
        }

        private static double percentile(long[] ordered, double share) {
            return ordered[Math.max(0, (int) Math.ceil(share * ordered.length) - 1)] / 1e6;
        }
    }
}
