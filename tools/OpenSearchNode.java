import java.util.ArrayList;
import java.util.List;

import org.codelibs.opensearch.runner.OpenSearchRunner;

/**
 * OpenSearch on 127.0.0.1, until it is killed: a node in each balanced zone, or one node without a zone. Arguments: folder,
 * number of zones, then for each node a port for HTTP and one for transport.
 */
public final class OpenSearchNode {
    public static void main(final String[] arguments) throws InterruptedException {
        final int zones = Integer.parseInt(arguments[1]);
        final List<String> names = new ArrayList<>();
        for (int zone = 1; zone <= zones; zone++) {
            names.add("zone" + zone);
        }
        final OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("network.host", "127.0.0.1");
            settings.put("http.port", arguments[2 * number]);
            settings.put("transport.port", arguments[2 * number + 1]);
            settings.put("cluster.routing.allocation.disk.threshold_enabled", "false");
            settings.putList("node.roles", "cluster_manager", "data", "ingest");
            if (zones == 0) {
                settings.put("discovery.type", "single-node");
                return;
            }
            settings.put("node.attr.zone", "zone" + number);
            settings.putList("discovery.seed_hosts", "127.0.0.1:" + arguments[3]);
            settings.putList("cluster.initial_cluster_manager_nodes", "Node 1");
            settings.put("cluster.routing.allocation.awareness.attributes", "zone");
            settings.putList("cluster.routing.allocation.awareness.force.zone.values", names);
            settings.put("cluster.routing.allocation.awareness.balance", "true");
        });
        runner.build(OpenSearchRunner.newConfigs().basePath(arguments[0]).numOfNode(Math.max(zones, 1)));
        Thread.currentThread().join(); // Java ends with the main of a source file
    }
}
