"""The fields of a RayCluster (ray.io/v1, KubeRay 1.6 and 1.7) that ours may use. The API server drops an unknown one in
silence; pod templates are core Kubernetes and are checked as such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ANY: dict[str, Any] = {}
_GROUP = {
    "rayStartParams": ANY,
    "template": ANY,
    "serviceType": str,
}
_WORKERS = {
    "groupName": str,
    "replicas": int,
    "minReplicas": int,
    "maxReplicas": int,
    "idleTimeoutSeconds": int,
    "priority": int,
    "labels": ANY,
    "resources": ANY,
    "rayStartParams": ANY,
    "template": ANY,
}
FIELDS: dict[str, Any] = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": {
        "version": {"v1", "v2"},
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
        "idleTimeoutSeconds": int,
        "imagePullPolicy": str,
        "env": ANY,
        "resources": ANY,
        "securityContext": ANY,
    },
    "authOptions": {"mode": {"disabled", "token"}},
    "gcsFaultToleranceOptions": {"redisAddress": str, "redisPassword": {"valueFrom": ANY}},
    "headGroupSpec": _GROUP,
    "workerGroupSpecs": [_WORKERS],
}


def problems(value: Any, fields: Any = FIELDS, at: str = "spec") -> Iterator[str]:
    """What of it the operator would not take, by path."""
    if fields is ANY:
        return
    if isinstance(fields, set):
        if value not in fields:
            yield f"{at}: {value} is none of {sorted(fields)}"
    elif isinstance(fields, type):
        if type(value) is not fields:
            yield f"{at}: {value!r} is no {fields.__name__}"
    elif isinstance(fields, list):
        for number, each in enumerate(value):
            yield from problems(each, fields[0], f"{at}.{number}")
    else:
        for name, each in value.items():
            if name in fields:
                yield from problems(each, fields[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}: no such field"
