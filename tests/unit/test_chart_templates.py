"""What the chart renders: valid in every combination, and what the values say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.spec.crd import crd, schedule_crd
from tests.support import chart, chart_schemas
from tests.support.chart_platform import PLATFORM
from tests.support.operator_world import raw_job
from tools.pages.chart import CHART

pytestmark = pytest.mark.needs("helm", "charts", "chart-sources")

DIGEST = "sha256:" + "0123456789abcdef" * 4
ALL_ON: dict[str, Any] = {
    "commonLabels": {"team": "search"},
    "image": {"digest": DIGEST},
    "imagePullSecrets": [{"name": "registry"}],
    "log": {"level": "debug", "format": "json"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "pool", "operator": "Equal", "value": "system"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]}}},
    "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}}}],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"note": "x"},
    "podLabels": {"sidecar.istio.io/inject": "false"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
    "service": {"port": 80, "annotations": {"note": "x"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "30s",
                       "scrapeTimeout": "10s",
                       "relabelings": [{"action": "labeldrop", "regex": "x"}]},
    "podMonitor": {"enabled": True, "labels": {"release": "prom"},
                   "metricRelabelings": [{"action": "labeldrop", "regex": "x"}]},
    "prometheusRule": {"enabled": True, "labels": {"release": "prom"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Embertide"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}],
                      "apiServerCidrs": ["10.0.0.1/32", "fd00::1/128"],
                      "extraEgress": [{"ports": [{"port": 443}]}]},
}  # fmt: skip
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "all on": ALL_ON,
    "all on, two namespaces": ALL_ON | {"watchNamespaces": ["shop", "search"]},
    "one namespace, a number": {"watchNamespaces": ["2024"], "rbac": {"aggregate": False}},
    "all off": {
        "crds": {"install": False},
        "rbac": {"create": False, "aggregate": False},
        "serviceAccount": {"create": False, "name": "prepared"},
        "service": {"enabled": False},
        "networkPolicy": {"ingress": False},
    },
    "other names": {
        "nameOverride": "ember",
        "fullnameOverride": "tide",
        "namespaceOverride": "elsewhere",
    },
    "defaults of the platform": PLATFORM,
    "one replica, a class": {"replicas": 1, "operator": {"class": "gpu"}},
    "OpenShift": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "worker": {"runAsUser": None},
    },
}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schemas of every kind."""
    folder = tmp_path_factory.mktemp("schemas")
    chart_schemas.write(folder)
    return folder


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_every_combination_is_valid(values: dict[str, Any], schemas: Path) -> None:
    """helm lint --strict and, for each object and the test's job, kubeconform -strict."""
    linted = chart.lint(values)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    objects = chart.render(values)
    objects += [_test_job(objects)]
    assert chart.kubeconform(objects, schemas, chart_schemas.LOCATION) == ""


def _test_job(objects: list[chart.Object]) -> chart.Object:
    """The EmbeddingJob of ``helm test``."""
    tests = [o for o in objects if "helm.sh/hook" in o["metadata"].get("annotations", {})]
    job: chart.Object = yaml.safe_load(chart.only(tests, "ConfigMap")["data"]["job.yaml"])
    return job


def test_kubeconform_refuses_what_is_wrong(schemas: Path) -> None:
    objects = chart.render(ALL_ON)
    for kind, path in (("Deployment", "template"), ("ServiceMonitor", "endpoints")):
        spec = chart.only(objects, kind)["spec"]
        spec["unknown"] = spec.pop(path)
        assert "'unknown' not allowed" in chart.kubeconform(
            objects, schemas, chart_schemas.LOCATION
        )


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_objects_of_a_release_do_not_collide(values: dict[str, Any]) -> None:
    """Two releases have no object in common but the definition."""
    own, other = ({_identity(o) for o in chart.render(values, name)} for name in ("one", "two"))
    assert len(own) == len(chart.render(values, "one"))
    if "fullnameOverride" not in values:
        assert {kind for kind, *_ in own & other} <= {"CustomResourceDefinition"}


@pytest.mark.parametrize("watched", [[], ["shop"]])
def test_releases_of_one_name_in_two_namespaces_do_not_collide(watched: list[str]) -> None:
    """Also where both watch the same namespace."""
    one, two = (
        {_identity(o) for o in chart.render({"watchNamespaces": watched}, namespace=name)}
        for name in ("tools", "more-tools")
    )
    assert {kind for kind, *_ in one & two} == {"CustomResourceDefinition"}


def _identity(item: chart.Object) -> tuple[str, str, str]:
    meta = item["metadata"]
    return item["kind"], meta.get("namespace", ""), meta["name"]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_every_object_has_the_labels_and_the_namespace(values: dict[str, Any]) -> None:
    for item in chart.render(values):
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "embertide"
        if values.get("commonLabels"):
            assert item["metadata"]["labels"]["team"] == "search"
        of_cluster = item["kind"].startswith("Cluster") or item["kind"].startswith("Custom")
        assert of_cluster != ("namespace" in item["metadata"]), item["metadata"]


def test_names_and_namespace_can_be_replaced() -> None:
    objects = chart.render(MATRIX["other names"])
    definitions = {"embeddingjobs.embertide.dev", "embeddingschedules.embertide.dev"}
    names = {o["metadata"]["name"] for o in objects} - definitions
    assert {"tide-operator", "elsewhere:tide-edit", "tide-test"} <= names
    assert {name.partition("-")[0] for name in names} == {"tide", "elsewhere:tide"}
    assert {o["metadata"].get("namespace", "elsewhere") for o in objects} == {"elsewhere"}
    assert all(o["metadata"]["labels"]["app.kubernetes.io/name"] == "ember" for o in objects)
    binding = chart.only(objects, "ClusterRoleBinding", "elsewhere:tide-operator")
    assert binding["subjects"][0]["namespace"] == "elsewhere"


def test_the_deployment_is_what_the_values_say() -> None:
    spec = chart.only(chart.render(ALL_ON), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == f"ghcr.io/embertide/operator:0.1.0@{DIGEST}"
    environment = {item["name"]: item.get("value") for item in container["env"]}
    assert environment["EMBERTIDE_LOG_FORMAT"] == "json"
    assert environment["EMBERTIDE_NAMESPACES"] == ""
    assert environment["EMBERTIDE_WORKER_USER"] == "65532"
    assert environment["HTTPS_PROXY"] == "http://proxy:3128"
    assert (spec["priorityClassName"], spec["nodeSelector"]) == (
        "system-cluster-critical",
        {"pool": "system"},
    )
    assert spec["volumes"][0]["name"] == container["volumeMounts"][0]["name"] == "ca"


def test_openshift_chooses_the_ids() -> None:
    spec = chart.only(chart.render(MATRIX["OpenShift"]), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    environment = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
    assert environment["EMBERTIDE_WORKER_USER"] == ""


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["shop"]}])
def test_the_record_of_outputs_is_the_operators_alone(values: dict[str, Any]) -> None:
    """It may get and patch this one ConfigMap, whose data the chart does not have."""
    objects = chart.render(values)
    own = [o for o in objects if o["metadata"]["name"] == "embertide-outputs"]
    assert "data" not in chart.only(own, "ConfigMap")
    (rule,) = chart.only(own, "Role")["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["embertide-outputs"], ["get", "patch"])
    role_of = chart.only(own, "RoleBinding")["roleRef"]
    assert (role_of["kind"], role_of["name"]) == ("Role", "embertide-outputs")
    deployment = chart.only(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    place = environment["EMBERTIDE_OWN_NAMESPACE"], environment["EMBERTIDE_OUTPUTS_CONFIG_MAP"]
    assert place == (deployment["metadata"]["namespace"], "embertide-outputs")


def test_namespaces_get_a_role_each_and_the_cluster_none() -> None:
    objects = chart.render({"watchNamespaces": ["shop", "2024"], "rbac": {"aggregate": False}})
    own = [o for o in objects if o["metadata"]["name"] == "tools:embertide-operator"]
    roles, bindings = ([o for o in own if o["kind"] == kind] for kind in ("Role", "RoleBinding"))
    for found in (roles, bindings):
        assert [o["metadata"]["namespace"] for o in found] == ["shop", "2024"]
    assert not [o for o in objects if o["kind"].startswith("ClusterRole")]
    (cluster_role,) = (
        o
        for o in chart.render({"rbac": {"aggregate": False}})
        if o["kind"] == "ClusterRole" and not _is_uninstall(o)
    )
    assert all(role["rules"] == cluster_role["rules"] for role in roles)


def test_it_may_write_its_own_lease_and_no_other() -> None:
    objects = chart.render({"watchNamespaces": ["shop"]})
    leases = [
        (o["metadata"].get("namespace"), rule.get("resourceNames"), rule["verbs"])
        for o in objects
        for rule in o.get("rules", ())
        if rule["resources"] == ["leases"] and not _is_uninstall(o)
    ]
    assert leases == [
        ("tools", ["embertide-operator"], ["get", "update"]),
        ("tools", None, ["create"]),
    ]
    (container,) = chart.only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item.get("value") for item in container["env"]}
    assert environment["EMBERTIDE_OWN_NAMESPACE"] == "tools"
    assert environment["EMBERTIDE_OWN_NAME"] == "embertide-operator"
    times = [environment[f"EMBERTIDE_{name}_SECONDS"] for name in ("LEASE", "RENEW", "RETRY")]
    assert times == ["15", "10", "2"]


def test_pods_are_created_and_deleted_and_never_changed() -> None:
    rules = chart.only(chart.render(), "ClusterRole", "tools:embertide-operator")["rules"]
    (verbs,) = (rule["verbs"] for rule in rules if rule["resources"] == ["pods"])
    assert verbs == ["list", "watch", "create", "delete", "deletecollection"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_are_spread_and_drained_one_by_one(replicas: int) -> None:
    objects = chart.render({"replicas": replicas})
    spec = chart.only(objects, "Deployment")["spec"]
    assert spec["replicas"] == replicas
    rolling = {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    budgets = [o["spec"] for o in objects if o["kind"] == "PodDisruptionBudget"]
    spread = spec["template"]["spec"].get("topologySpreadConstraints", [])
    if replicas == 1:
        assert (budgets, spread) == ([], []), "a budget would block every drain"
        return
    (budget,) = budgets
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == spec["selector"]
    assert {item["whenUnsatisfiable"] for item in spread} == {"ScheduleAnyway"}
    assert all(item["labelSelector"] == spec["selector"] for item in spread)


def test_a_class_reaches_the_operator_and_the_jobs_of_the_release() -> None:
    """Its test and its schedules, unless a schedule says otherwise."""
    template: dict[str, Any] = {"metadata": {}, "spec": raw_job()["spec"]}
    own = {"name": "own", "schedule": "0 3 * * *", "jobTemplate": template}
    other = own | {"name": "other"}
    other["jobTemplate"] = template | {"spec": template["spec"] | {"operatorClass": "cpu"}}
    objects = chart.render({"operator": {"class": "gpu"}, "schedules": [own, other]})
    (container,) = chart.only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "EMBERTIDE_OPERATOR_CLASS", "value": "gpu"} in container["env"]
    assert _test_job(objects)["spec"]["operatorClass"] == "gpu"
    classes = {
        name: yaml.safe_load(chart.only(objects, "ConfigMap", f"{name}-submit")["data"]["job.yaml"])
        for name in ("own", "other")
    }
    assert {name: job["spec"]["operatorClass"] for name, job in classes.items()} == {
        "own": "gpu",
        "other": "cpu",
    }


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_are_the_generated_ones_and_stay_unless_told(keep: bool) -> None:
    objects = chart.render({"crds": {"keep": keep}})
    for definition in (crd(), schedule_crd()):
        name = definition["metadata"]["name"]
        found = chart.only(objects, "CustomResourceDefinition", name)
        annotations = found["metadata"].get("annotations", {})
        assert annotations.get("helm.sh/resource-policy") == ("keep" if keep else None)
        assert found["spec"] == definition["spec"]


def test_rules_and_dashboards_are_taken_as_they_are(tmp_path: Path) -> None:
    """Braces in annotations are Prometheus' own and not helm's."""
    copy = tmp_path / "embertide"
    shutil.copytree(CHART, copy)
    alert = {
        "alert": "X",
        "expr": "up == 0",
        "annotations": {"summary": '{{ $labels.job }} is {{ $value | printf "%.1f" }}'},
    }
    rules = {"groups": [{"name": "g", "rules": [alert]}]}
    dashboard = {"uid": "x", "title": "{{ job }} `x`"}
    for name, content in (("rules/x.yaml", rules), ("dashboards/x.json", dashboard)):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(json.dumps(content))
    objects = chart.render(ALL_ON, chart=copy)
    assert chart.only(objects, "PrometheusRule", "embertide-x")["spec"] == rules
    found = chart.only(objects, "ConfigMap", "embertide-dashboard-x")
    assert json.loads(found["data"]["x.json"]) == dashboard
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_every_file_of_rules_and_dashboards_is_rendered() -> None:
    objects = chart.render(ALL_ON)
    for path in CHART.glob("rules/*.yaml"):
        assert chart.only(objects, "PrometheusRule", f"embertide-{path.stem}")
    for path in CHART.glob("dashboards/*.json"):
        assert chart.only(objects, "ConfigMap", f"embertide-dashboard-{path.stem}")


def test_without_values_nothing_needs_a_definition_of_others() -> None:
    groups = {o["apiVersion"].partition("/")[0] for o in chart.render()}
    assert groups == {
        "v1",
        "apps",
        "batch",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
    }


def test_the_operator_is_reached_and_reaches_only_what_it_needs() -> None:
    values = {"networkPolicy": {"enabled": True, "ingress": False}}
    spec = chart.only(chart.render(values), "NetworkPolicy")["spec"]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    dns, api, workers = spec["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert {port["port"] for port in api["ports"]} == {443, 6443}
    (peer,) = workers["to"]
    assert peer["podSelector"] == {"matchLabels": {"embertide.dev/role": "worker"}}


def test_workers_are_scraped_where_jobs_are_watched() -> None:
    for watched, selector in (([], {"any": True}), (["shop"], {"matchNames": ["shop"]})):
        values = {"podMonitor": {"enabled": True}, "watchNamespaces": watched}
        spec = chart.only(chart.render(values), "PodMonitor")["spec"]
        assert spec["namespaceSelector"] == selector
        assert spec["podMetricsEndpoints"][0]["port"] == "http"


def test_uninstall_has_the_rights_to_what_is_left_alone() -> None:
    """Rights to change or delete are to objects by name, but for the test's jobs."""
    for watched, verb in (([], "list"), (["shop", "search"], "get")):
        hooks = [o for o in chart.render({"watchNamespaces": watched}) if _is_uninstall(o)]
        rules = [rule for o in hooks for rule in o.get("rules", ())]
        named = {tuple(rule["resourceNames"]) for rule in rules if "resourceNames" in rule}
        assert named == {("operators.embertide.dev",), ("embertide-operator",)}
        verbs = {rule["resources"][0]: rule["verbs"] for rule in rules}
        assert verbs == {
            "configmaps": [verb, "patch", "delete"],
            "leases": ["get", "delete"],
            "deployments": ["get"],
            "embeddingjobs": ["list", "delete"],
        }
        assert ("ClusterRole" in {o["kind"] for o in hooks}) is (not watched)
    assert not [o for o in chart.render({"uninstall": {"cleanUp": False}}) if _is_uninstall(o)]


def _is_uninstall(item: chart.Object) -> bool:
    return item["metadata"].get("annotations", {}).get("helm.sh/hook") == "post-delete"
