"""docker-compose.cluster.yml, checked without Docker against docker-compose.yml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

NODES = ("qdrant-1", "qdrant-2", "qdrant-3")

SAME = ("image", "restart", "ulimits", "healthcheck", "stop_grace_period", "logging", "mem_limit", "cpus")
"""What a node has as the single server has it."""


def parse(name: str) -> dict[str, Any]:
    """A file of the top folder, with its anchors merged."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return parsed


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    """The file with one server."""
    return parse("docker-compose.yml")


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    """The file with three."""
    return parse("docker-compose.cluster.yml")


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_as_the_single_server(single: dict[str, Any], cluster: dict[str, Any], node: str) -> None:
    """A node differs from the server of docker-compose.yml only in being one of a cluster."""
    server, service = single["services"]["qdrant"], cluster["services"][node]
    added = {"QDRANT__CLUSTER__ENABLED": "true", "QDRANT__STORAGE__COLLECTION__REPLICATION_FACTOR": "2"}

    assert {key: service[key] for key in SAME} == {key: server[key] for key in SAME}
    assert service["environment"] == {**server["environment"], **added}
    assert set(service) <= {*SAME, "environment", "command", "ports", "volumes", "depends_on"}


def test_the_nodes_find_each_other(cluster: dict[str, Any]) -> None:
    """Each node names itself; all but the first join by the first, once it is ready."""
    for node in NODES:
        service = cluster["services"][node]
        joining = [] if node == NODES[0] else ["--bootstrap", f"http://{NODES[0]}:6335"]
        assert service["command"][3:] == ["qdrant", "--uri", f"http://{node}:6335", *joining]
        assert "exec ./qdrant" in service["command"][2]
        keyed = {"keys": {"condition": "service_completed_successfully"}}
        assert service["depends_on"] == keyed | ({NODES[0]: {"condition": "service_healthy"}} if joining else {})


def test_every_port_is_bound_to_loopback(cluster: dict[str, Any]) -> None:
    """No port is open to the network or taken twice, and the one between the nodes is not published."""
    ports = [port for service in cluster["services"].values() for port in service.get("ports", [])]
    parsed = [re.fullmatch(r"127\.0\.0\.1:(\$\{\w+:-)?(\d+)\}?:(\d+)", port) for port in ports]

    assert all(parsed)
    outside = [match[2] for match in parsed if match]
    assert len(set(outside)) == len(outside)
    assert {"6333", "6343", "6353"} <= set(outside)
    assert "6335" not in {match[3] for match in parsed if match}


def test_the_service_is_as_beside_one_server(single: dict[str, Any], cluster: dict[str, Any]) -> None:
    """The service and the load ask any node that answers, with the same rights and settings as beside one server."""
    for name in ("service", "ingest"):
        ours, theirs = cluster["services"][name], single["services"][name]
        differing = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        asked = ours["environment"]["PEARL_QDRANT_STORE"]

        assert differing <= {"depends_on", "environment"}
        assert asked == ",".join(f"http://{node}:6333" for node in NODES)
        assert set(ours["depends_on"]) < {*NODES, "ingest"}
        assert {**ours["environment"], "PEARL_QDRANT_STORE": "http://qdrant:6333"} == theirs["environment"]
    assert cluster["services"]["keys"] == single["services"]["keys"]
    assert cluster["name"] != single["name"]


def test_no_other_settings_are_read(cluster: dict[str, Any]) -> None:
    """What the file reads from the environment stands in .env.example, with the same default."""
    text, single = ((ROOT / name).read_text("utf-8") for name in ("docker-compose.cluster.yml", "docker-compose.yml"))
    found = re.findall(r"\$\{([A-Z_]+)(:[-?][^}]*)\}", text)

    assert found
    assert set(found) <= set(re.findall(r"\$\{([A-Z_]+)(:[-?][^}]*)\}", single))
