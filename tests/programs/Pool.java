import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A job in Java whose pool of threads asks a server.
 *
 * <p>java Pool HOW SECONDS WORKERS PORT. It writes its phases as tests/programs/phases.py does.
 */
public final class Pool {
    private static final List<String> WRITTEN = Collections.synchronizedList(new ArrayList<>());
    private static final AtomicLong USED_IN_PHASES = new AtomicLong();
    private static final double COMPUTE_SECONDS = 0.05;

    interface Action {
        void run() throws Exception;
    }

    private static long waitedNs() throws IOException {
        return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ")[1]);
    }

    private static long usedNs() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long processUsedNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void write(String kind, long began, long ended, long used, long waited) {
        WRITTEN.add(String.format("[\"%s\", %d, %d, %d, %d]", kind, began, ended, used, waited));
    }

    private static void phase(String kind, Action action) throws Exception {
        long began = System.nanoTime(), used = usedNs(), waited = waitedNs();
        action.run();
        used = usedNs() - used;
        write(kind, began, System.nanoTime(), used, waitedNs() - waited);
        USED_IN_PHASES.addAndGet(used);
    }

    private static void compute() {
        long end = usedNs() + (long) (1e9 * COMPUTE_SECONDS);
        while (usedNs() < end) {
            for (int number = 0; number < 10000; number++) Math.sqrt(number);
        }
    }

    private static Void waitForAnswer(int port, double seconds) throws IOException {
        try (Socket connection = new Socket("127.0.0.1", port)) {
            connection.getOutputStream().write((seconds + "\n").getBytes(StandardCharsets.US_ASCII));
            connection.getInputStream().read();
        }
        return null;
    }

    private static Void ask(int port, double seconds) throws Exception {
        phase("network", () -> waitForAnswer(port, seconds));
        phase("any", Pool::compute);
        return null;
    }

    /** The pool only asks, and the main thread works with all answers. */
    private static void askThenCompute(ExecutorService pool, int workers, int port) throws Exception {
        phase(
                "network",
                () -> {
                    List<CompletableFuture<Void>> answers = new ArrayList<>();
                    for (int number = 0; number < workers; number++) {
                        CompletableFuture<Void> answer = new CompletableFuture<>();
                        pool.submit(() -> answer.complete(waitForAnswer(port, 0.7)));
                        answers.add(answer);
                    }
                    CompletableFuture.allOf(answers.toArray(new CompletableFuture<?>[0])).join();
                });
        for (int number = 0; number < 4; number++) phase("any", Pool::compute);
    }

    public static void main(String[] arguments) throws Exception {
        long until = System.nanoTime() + (long) (1e9 * Double.parseDouble(arguments[1]));
        long usedBefore = processUsedNs();
        int workers = Integer.parseInt(arguments[2]), port = Integer.parseInt(arguments[3]);
        ExecutorService pool = Executors.newFixedThreadPool(workers);
        while (System.nanoTime() < until) {
            List<Callable<Void>> tasks = new ArrayList<>();
            for (int number = 0; number < workers; number++) {
                double seconds = 0.4 + 0.4 * number / workers;
                tasks.add(() -> ask(port, seconds));
            }
            switch (arguments[0]) {
                case "invoke_all" -> pool.invokeAll(tasks);
                case "get" -> {
                    List<Future<Void>> results = new ArrayList<>();
                    for (Callable<Void> task : tasks) results.add(pool.submit(task));
                    for (Future<Void> result : results) result.get();
                }
                case "get_for_a_time" -> {
                    List<Future<Void>> results = new ArrayList<>();
                    for (Callable<Void> task : tasks) results.add(pool.submit(task));
                    for (Future<Void> result : results) result.get(30, TimeUnit.SECONDS);
                }
                case "futures" -> askThenCompute(pool, workers, port);
                case "completion" -> {
                    ExecutorCompletionService<Void> service = new ExecutorCompletionService<>(pool);
                    for (Callable<Void> task : tasks) service.submit(task);
                    for (int number = 0; number < workers; number++) service.poll(30, TimeUnit.SECONDS);
                }
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
        // The virtual machine's compilers and collectors.
        long beside = processUsedNs() - usedBefore - USED_IN_PHASES.get();
        write("beside", System.nanoTime(), System.nanoTime(), Math.max(beside, 0), 0);
        Path folder = Path.of(System.getenv("TIMED_PHASES"));
        long pid = ProcessHandle.current().pid();
        Files.writeString(folder.resolve(pid + ".json"), "[" + String.join(",", WRITTEN) + "]");
        System.exit(0);
    }
}
