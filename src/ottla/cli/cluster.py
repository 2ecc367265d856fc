"""`ottla cluster`: who is there."""

from __future__ import annotations

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.output import AsJson, write_json, write_lines, write_table

EXAMPLES = """\b
Examples:
  ottla cluster
  ottla cluster --bootstrap broker.example:9092 --json
"""


def cluster(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the cluster's id, its brokers and how many topics it has."""
    with connected(bootstrap) as client, client.admin() as admin:
        found = admin.cluster()
        topics = len(admin.list_topics())
    brokers = sorted(found.brokers)
    if as_json:
        write_json(
            {
                "cluster_id": found.cluster_id,
                "controller": found.controller,
                "topics": topics,
                "brokers": [
                    {"id": one.node_id, "host": one.address.host, "port": one.address.port, "rack": one.rack}
                    for one in brokers
                ],
            }
        )
        return
    write_lines([f"cluster {found.cluster_id}: {len(brokers)} broker(s), {topics} topic(s)"])
    write_table(
        ("broker", "address", "rack", "role"),
        [
            (one.node_id, str(one.address), one.rack, "controller" if one.node_id == found.controller else None)
            for one in brokers
        ],
    )
