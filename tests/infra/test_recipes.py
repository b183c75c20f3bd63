"""The recipes for clusters: they parse, agree with each other and with our pins, and open nothing to the world.

No engine runs them here; what can be checked without one is.
"""

import pkgutil
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from prefect import Flow
from ray.scripts.scripts import start, status

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = ("Dockerfile", "compose.yaml", "kuberay.yaml", "prefect.yaml", "slurm.sbatch")


def text(name: str) -> str:
    return (INFRA / name).read_text()


def document(name: str) -> Any:
    return yaml.safe_load(text(name))


def pins() -> dict[str, Version]:
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    return {name: Version(version) for name, _, version in (line.partition("==") for line in lines)}


def leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Every scalar of a YAML document with the path to it."""
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in leaves(each, f"{path}/{key}")]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each, path)]
    return [(path, str(value))]


def test_every_requirement_is_pinned_within_its_range() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    pinned = pins()
    for requirement in map(Requirement, wanted):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, str(requirement)


def test_pins_are_sorted_canonical_and_fit_every_build() -> None:
    names = list(pins())
    assert names == sorted(map(canonicalize_name, names))
    assert not [name for name, version in pins().items() if version.local]


def test_one_image_everywhere_with_our_version() -> None:
    documents = [document("compose.yaml"), *yaml.safe_load_all(text("kuberay.yaml"))]
    images = {value for each in documents for path, value in leaves(each) if path.endswith("/image")}
    assert images == {f"rnnsearch:{PROJECT['version']}"}
    for name in ("Dockerfile", "compose.yaml"):
        assert f"docker build -f infra/Dockerfile -t {images.copy().pop()} ." in text(name)


def test_compose_publishes_ports_on_loopback_only() -> None:
    published = [
        port for service in document("compose.yaml")["services"].values() for port in service.get("ports", [])
    ]
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_every_compose_service_is_watched_and_shares_the_store() -> None:
    services = document("compose.yaml")["services"]
    assert all("healthcheck" in service for service in services.values())
    assert all("store:/store" in services[name]["volumes"] for name in ("head", "worker"))


def test_kubernetes_exposes_no_service_and_shares_the_store() -> None:
    claim, cluster = yaml.safe_load_all(text("kuberay.yaml"))
    spec = cluster["spec"]
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert pod["containers"][0]["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]


def test_ray_asks_for_a_token_in_every_recipe() -> None:
    services = document("compose.yaml")["services"]
    for name in ("head", "worker"):
        assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"
        assert services[name]["secrets"] == ["ray_token"]
    assert list(yaml.safe_load_all(text("kuberay.yaml")))[1]["spec"]["authOptions"] == {"mode": "token"}
    assert "RAY_AUTH_MODE=token" in text("slurm.sbatch")
    assert "RAY_AUTH_MODE=token" in text("Dockerfile")


@pytest.mark.parametrize("name", TEXTS)
def test_no_recipe_holds_a_secret(name: str) -> None:
    for found in re.finditer(
        r"(?im)^.*(token|password|secret|credential|api_?key)\w*['\"]?[ \t]*[:=][ \t]*(\S*).*$", text(name)
    ):
        assert found[2] in ("", "token", "{}") or found[2].startswith(
            ("/run/secrets/", "[ray_token]", "$")
        ), found[0]
    assert not re.search(r"[A-Za-z0-9+/]{40,}", text(name)), "something that looks like a key"


def test_versions_in_the_recipes_are_the_pinned_ones() -> None:
    assert list(yaml.safe_load_all(text("kuberay.yaml")))[1]["spec"]["rayVersion"] == str(pins()["ray"])
    assert document("prefect.yaml")["prefect-version"] == str(pins()["prefect"])


@pytest.mark.parametrize("name", ["compose.yaml", "slurm.sbatch"])
def test_ray_knows_every_flag_that_it_is_given(name: str) -> None:
    known = {"start": start, "status": status}
    joined = text(name).replace("\\\n", " ").replace(", ", " ")
    given = [
        (command, flag)
        for command, rest in re.findall(r"\bray (start|status)\b([^&|>\n\]]*)", joined)
        for flag in re.findall(r"--[a-z-]+", rest)
    ]
    assert ("start", "--head") in given
    for command, flag in given:
        assert flag in {name for option in known[command].params for name in option.opts}, flag


def test_prefect_s_deployments_name_a_flow_by_module_and_its_parameters() -> None:
    for deployment in document("prefect.yaml")["deployments"]:
        module, _, name = deployment["entrypoint"].rpartition(".")
        flow = pkgutil.resolve_name(f"{module}:{name}")
        assert isinstance(flow, Flow)
        assert set(deployment["parameters"]) <= set(flow.parameters.properties)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("path", ["infra/slurm.sbatch", ".ci/run"])
def test_scripts_are_bash_that_parses(path: str) -> None:
    subprocess.run(["bash", "-n", ROOT / path], check=True)
    lines = (ROOT / path).read_text().splitlines()
    assert "set -euo pipefail" in lines
    options = [at for at, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert all(at < lines.index("set -euo pipefail") for at in options)


def test_the_image_is_installed_under_the_pins_and_does_not_run_as_root() -> None:
    lines = text("Dockerfile").splitlines()
    assert any("pip install" in line and "-c /tmp/install/constraints.txt" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER rnnsearch"]
