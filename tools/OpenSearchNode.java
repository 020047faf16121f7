import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One OpenSearch node on 127.0.0.1, until it is killed. Arguments: folder, port for HTTP, port for transport. */
public final class OpenSearchNode {
    public static void main(final String[] arguments) throws InterruptedException {
        final OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("network.host", "127.0.0.1");
            settings.put("http.port", arguments[1]);
            settings.put("transport.port", arguments[2]);
            settings.put("discovery.type", "single-node");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", "false");
            settings.putList("node.roles", "cluster_manager", "data", "ingest");
        });
        runner.build(OpenSearchRunner.newConfigs().basePath(arguments[0]).numOfNode(1));
        Thread.currentThread().join(); // Java ends with the main of a source file
    }
}
