import java.util.ArrayDeque;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The load, through BookKeeper's client. Argument: the metadata service's URI.
 *
 * A variant is ENSEMBLE/WRITE/ACK quorum. Ways to read: "async" (readAsync, 200 entries, 8 under
 * way) and "batch" (batchReadAsync, up to 4 MB, BATCHES under way).
 */
final class BookKeeperLoad extends LoadClient {
    private static final byte[] PASSWORD = new byte[0];
    private static final DigestType DIGEST = DigestType.CRC32C;
    private static final String FILLED = "3/3/2";
    private static final int ASYNC_ENTRIES = 200;
    private static final int ASYNC_READS = 8;
    private static final int BATCH_ENTRIES = 3000;
    private static final int BATCH_BYTES = 4 * 1024 * 1024;
    private static final int BATCHES = 2;
    private static final long READY_TIMEOUT_NANOS = 60_000_000_000L;

    private final String uri;
    private BookKeeper client;
    private LedgerHandle ledger;
    private long filledId;

    private BookKeeperLoad(String uri) {
        this.uri = uri;
    }

    public static void main(String[] arguments) throws Exception {
        new BookKeeperLoad(arguments[0]).serve();
    }

    @Override
    void ready() throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(uri);
        settings.setUseV2WireProtocol(true);
        settings.setThrottleValue(0);
        client = new BookKeeper(settings);
        long deadline = System.nanoTime() + READY_TIMEOUT_NANOS;
        while (true) {
            try {
                begin(FILLED, true);
                end();
                return;
            } catch (BKException.BKNotEnoughBookiesException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    @Override
    void begin(String variant, boolean isBatching) throws Exception {
        String[] sizes = variant.split("/");
        ledger = client.createLedger(Integer.parseInt(sizes[0]), Integer.parseInt(sizes[1]),
            Integer.parseInt(sizes[2]), DIGEST, PASSWORD);
    }

    @Override
    void append(byte[] payload, Completion completion) {
        ledger.asyncAddEntry(payload, (status, handle, entryId, context) ->
            completion.done(status == BKException.Code.OK ? null : BKException.create(status)), null);
    }

    @Override
    Map<String, Object> end() throws Exception {
        int fragments = ledger.getLedgerMetadata().getAllEnsembles().size();
        ledger.close();
        return Map.of("fragments", fragments);
    }

    @Override
    String members() {
        return ledger.getLedgerMetadata().getAllEnsembles().lastEntry().getValue().stream()
            .map(Object::toString).collect(Collectors.joining(","));
    }

    @Override
    String filledVariant() {
        return FILLED;
    }

    @Override
    void noteFilled(int count) {
        filledId = ledger.getId();
    }

    @Override
    long[] read(String way) throws Exception {
        try (LedgerHandle handle = client.openLedger(filledId, DIGEST, PASSWORD)) {
            return way.equals("batch") ? readBatches(handle) : readRanges(handle);
        }
    }

    private static long[] readRanges(LedgerHandle handle) throws Exception {
        ArrayDeque<CompletableFuture<LedgerEntries>> underWay = new ArrayDeque<>();
        long[] found = new long[2];
        long last = handle.getLastAddConfirmed();
        for (long next = 0; next <= last || !underWay.isEmpty(); ) {
            while (next <= last && underWay.size() < ASYNC_READS) {
                underWay.add(handle.readAsync(next, Math.min(last, next + ASYNC_ENTRIES - 1)));
                next += ASYNC_ENTRIES;
            }
            take(underWay.remove().get(), found);
        }
        return found;
    }

    private static long[] readBatches(LedgerHandle handle) throws Exception {
        ArrayDeque<Batch> underWay = new ArrayDeque<>();
        long[] found = new long[2];
        long last = handle.getLastAddConfirmed();
        for (long next = 0; next <= last || !underWay.isEmpty(); ) {
            while (next <= last && underWay.size() < BATCHES) {
                long end = Math.min(last, next + BATCH_ENTRIES - 1);
                underWay.add(new Batch(handle, next, end));
                next = end + 1;
            }
            Batch batch = underWay.remove();
            long first = batch.first + take(batch.entries.get(), found);
            if (first <= batch.end) { // it returned fewer than requested
                underWay.addFirst(new Batch(handle, first, batch.end));
            }
        }
        return found;
    }

    private static long take(LedgerEntries entries, long[] found) {
        long count = 0;
        try (entries) {
            for (LedgerEntry entry : entries) {
                found[1] += entry.getEntryBuffer().readableBytes();
                count++;
            }
        }
        found[0] += count;
        return count;
    }

    /** Entries first to end, or as many of them as one read returns. */
    private static final class Batch {
        final long first;
        final long end;
        final CompletableFuture<LedgerEntries> entries;

        Batch(LedgerHandle handle, long first, long end) {
            this.first = first;
            this.end = end;
            this.entries = handle.batchReadAsync(first, (int) (end - first + 1), BATCH_BYTES);
        }
    }
}
