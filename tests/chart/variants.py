"""Values that the chart is rendered with: each switch, each way."""

from typing import Any

Values = dict[str, Any]

MONITORED: Values = {
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Outbox"}},
}
PLACED: Values = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "operators", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
}
DRESSED: Values = {
    "podLabels": {"team": "shop", "app.kubernetes.io/name": "never-mind"},
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"annotations": {"iam": "outbox"}},
    "nameOverride": "obx",
}
SET: Values = {
    "settings": {
        "hands": 4,
        "driftSeconds": 0.5,
        "tierGraceSeconds": 1000000,
        "userGraceSeconds": 0,
        "giveUpSeconds": 10,
        "countSeconds": 2.5,
        "networkPolicies": True,
        "allowedHosts": ["*.rds.amazonaws.com", "10.0.0.0/8", "fd00::1"],
        "administratorSecrets": ["rabbitmq-admin", "other-admin"],
        "requireTls": True,
    },
    "log": {"level": "DEBUG", "format": "text"},
}
PROMETHEUS: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
API_SERVER: Values = {
    "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
    "ports": [{"port": 6443, "protocol": "TCP"}],
}
DNS: Values = {"ports": [{"port": 53, "protocol": "UDP"}]}


def variants(namespaces: tuple[str, str] = ("shop", "billing")) -> dict[str, Values]:
    """Each by its name. What is namespaced watches these."""
    return {
        "defaults": {},
        "namespaced": {"watchNamespaces": list(namespaces)},
        "namespaced-secrets": {
            "watchNamespaces": [namespaces[0]],
            "rbac": {"secretNames": ["shop-db", "shop-rabbitmq"]},
        },
        "cluster-secrets": {"rbac": {"secretNames": ["shop-db"]}},
        "one-replica": {"replicas": 1},
        "no-budget": {"podDisruptionBudget": {"enabled": False}},
        "without-definitions": {"crds": {"install": False}},
        "definitions-not-kept": {"crds": {"keep": False}},
        "own-account": {"serviceAccount": {"create": False, "name": "mine"}},
        "own-roles": {"rbac": {"create": False, "userRoles": False}},
        "digests": {
            "image": {"repository": "registry.example:5000/outbox-operator", "digest": "sha256:" + 64 * "0"},
            "relay": {"image": {"repository": "registry.example/outbox-relay", "tag": "2.0"}},
        },
        "monitored": MONITORED,
        "closed": {"networkPolicy": {"enabled": True}},
        "closed-both-ways": {
            "networkPolicy": {"enabled": True, "metricsFrom": [PROMETHEUS], "egress": [API_SERVER, DNS]}
        },
        "placed": PLACED,
        "dressed": DRESSED,
        "set": SET,
        "renamed": {"fullnameOverride": "o" + 50 * "x" + "r"},
        "a-dependency": {"global": {"imageRegistry": "registry.example"}, "enabled": True},
    }
