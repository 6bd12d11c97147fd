#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet: that it is YAML of the kinds it should be, that what it asks of a node is what the agent needs and no more,
and that the agent takes the configuration in it.
usage: kubernetes.py SLUICED UNIT SOURCE_ROOT"""
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

sluiced, unit, root = sys.argv[1:]
try:
    import yaml
except ImportError:
    print("1..0 # SKIP python3's yaml is not here (package python3-yaml)")
    sys.exit(0)

path = os.path.join(root, "deploy", "kubernetes", "sluiced.yaml")


class Strict(yaml.SafeLoader):
    """A key that is there twice is refused: the API server would take the last one without a word."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(set(keys)) == len(keys), f"line {node.start_mark.line + 1}: a key is there twice"
    return loader.construct_mapping(node, deep=True)


Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def documents():
    with open(path, encoding="utf8") as file:
        return {document["kind"]: document for document in yaml.load_all(file, Strict)}  # a SafeLoader


def pod():
    return documents()["DaemonSet"]["spec"]["template"]["spec"]


def container():
    (one,) = pod()["containers"]
    return one


def each_document_is_whole():
    found = documents()
    assert set(found) == {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet"}, set(found)
    versions = {"ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1", "DaemonSet": "apps/v1"}
    for kind, document in found.items():
        assert document["apiVersion"] == versions.get(kind, "v1"), kind
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"]), kind
        if not kind.startswith("Cluster") and kind != "Namespace":
            assert document["metadata"]["namespace"] == found["Namespace"]["metadata"]["name"], kind
    binding = found["ClusterRoleBinding"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": found["ClusterRole"]["metadata"]["name"]}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": pod()["serviceAccountName"], "namespace": found["Namespace"]["metadata"]["name"]}]
    spec = found["DaemonSet"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def it_may_read_and_patch_nodes_and_nothing_else():
    rules = documents()["ClusterRole"]["rules"]
    may = {(group, resource, verb) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert may == {("", "nodes", "get"), ("", "nodes", "list"), ("", "nodes", "patch"), ("", "nodes/status", "patch")}, may
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in rules)


def its_capabilities_are_those_of_the_unit():
    with open(unit, encoding="utf8") as file:
        (wanted,) = re.findall(r"^CapabilityBoundingSet=(.*)$", file.read(), re.MULTILINE)
    context = container()["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert [f"CAP_{name}" for name in context["capabilities"]["add"]] == wanted.split(), (context, wanted)
    assert context["privileged"] is False and context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
    assert context["runAsUser"] == 0 and context["seccompProfile"] == {"type": "RuntimeDefault"}


def it_sees_the_host_and_writes_to_two_folders():
    spec = pod()
    assert spec["hostNetwork"] is True and spec["hostPID"] is True and spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(mounts) == set(volumes) and len(mounts) == len(container()["volumeMounts"])
    writable = {mount["mountPath"] for mount in mounts.values() if not mount.get("readOnly")}
    assert writable == {"/var/lib/sluiced", "/run/sluiced"}, writable
    for name, mount in mounts.items():
        assert name == "config" or volumes[name]["hostPath"]["path"] == mount["mountPath"], name
    assert {"/sys", "/dev/shm", "/dev/kmsg"} < {mount["mountPath"] for mount in mounts.values()}
    # A node that is in trouble is to be watched most of all.
    assert spec["tolerations"] == [{"operator": "Exists"}]


def the_agent_takes_its_configuration():
    data = documents()["ConfigMap"]["data"]
    (argument,) = [one for one in container()["args"] if one.endswith(".conf")]
    place = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert argument == f"{place['config']}/sluiced.conf" and set(data) == {"sluiced.conf"}
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf8") as file:
        file.write(data["sluiced.conf"])
        file.flush()
        said = subprocess.run([sluiced, "--config", file.name, "--check"], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
    # What it writes is in the folders that are there for it, and its port is the one that is told.
    for key, folder in (("path", "/var/lib/sluiced/"), ("socket", "/run/sluiced/")):
        (value,) = re.findall(rf"^\s*{key} = (.*)$", data["sluiced.conf"], re.MULTILINE)
        assert value.startswith(folder), value
    (port,) = re.findall(r"^http = .*:(\d+)$", data["sluiced.conf"], re.MULTILINE)
    (told,) = container()["ports"]
    annotations = documents()["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]
    assert (int(port), port, int(port)) == (told["containerPort"], annotations["prometheus.io/port"], told["hostPort"])
    for probe in ("livenessProbe", "readinessProbe"):
        ((_, how),) = [item for item in container()[probe].items() if isinstance(item[1], dict)]
        assert how["port"] == told["name"], probe


def its_limits_are_those_of_the_unit():
    with open(unit, encoding="utf8") as file:
        text = file.read()
    (percent,), (memory,) = re.findall(r"^CPUQuota=(\d+)%$", text, re.MULTILINE), re.findall(r"^MemoryMax=(\d+)M$", text, re.MULTILINE)
    assert container()["resources"]["limits"] == {"cpu": f"{int(percent) * 10}m", "memory": f"{memory}Mi"}, json.dumps(container()["resources"])


def the_instances_of_the_cluster_find_the_agents():
    with open(os.path.join(root, "deploy", "kubernetes", "sluiced-cluster.yaml"), encoding="utf8") as file:
        found = {(document["kind"], document["metadata"]["name"]): document for document in yaml.load_all(file, Strict)}
    space = documents()["Namespace"]["metadata"]["name"]
    assert all(document["metadata"]["namespace"] == space for document in found.values())
    # The service that they ask for is there, and is that of the agents' pods and their port.
    text = found["ConfigMap", "sluiced-cluster"]["data"]["cluster.conf"]
    (service,) = re.findall(rf"^members = kubernetes:{space}/(\S+)$", text, re.MULTILINE)
    agents = documents()["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service", service]["spec"]["selector"].items() <= agents.items()
    assert found["Service", service]["spec"]["ports"][0]["port"] == container()["ports"][0]["containerPort"]
    (rule,) = found["Role", "sluiced-cluster"]["rules"]
    assert rule == {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}, rule
    (one,) = found["Deployment", "sluiced-cluster"]["spec"]["template"]["spec"]["containers"]
    (port,) = re.findall(r"^http = .*:(\d+)$", text, re.MULTILINE)
    assert one["image"] == container()["image"] and one["ports"][0]["containerPort"] == int(port)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(text)
        conf.flush()
        done = subprocess.run([sluiced, "--cluster", "--config", conf.name, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "built without --cluster" in done.stderr, done.stderr


cases = [each_document_is_whole, it_may_read_and_patch_nodes_and_nothing_else, its_capabilities_are_those_of_the_unit, it_sees_the_host_and_writes_to_two_folders,
         the_agent_takes_its_configuration, its_limits_are_those_of_the_unit, the_instances_of_the_cluster_find_the_agents]
failed = False
for number, case in enumerate(cases, 1):
    try:
        case()
        print(f"ok {number} - {case.__name__}")
    except Exception:  # pylint: disable=broad-except
        failed = True
        print(f"not ok {number} - {case.__name__}")
        print("\n".join(f"# {line}" for line in traceback.format_exc().splitlines()))
print(f"1..{len(cases)}")
sys.exit(failed)
