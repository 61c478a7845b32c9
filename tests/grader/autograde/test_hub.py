"""The example for a university: a real JupyterHub on loopback; log in, fetch, submit, collect."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from nbgrader.apps.api import NbGraderAPI

from grader.autograde.course import Course
from grader.build.command import ROOT
from grader.cli import main
from tests.grader.autograde.test_run import record
from tests.grader.classroom import DAY1, make_course, solved, text_of

pytest.importorskip("jupyterhub", reason="needs the extra hub")

PROXY = Path(sys.executable).parent / "configurable-http-proxy"
pytestmark = [
    pytest.mark.hub,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="JupyterHub is not for Windows"),
    pytest.mark.skipif(not PROXY.exists() or not shutil.which("node"), reason="needs: make hub"),
]
COURSE = "context-compaction"


@dataclass
class Hub:
    """A running hub: its address, the exchange, where learners' homes are."""

    address: str
    exchange: Path
    homes: Path


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Start the example with what a test must change: accounts, ports, folders."""
    public, api, inner = free_ports(3)
    homes, exchange = tmp_path / "homes", tmp_path / "exchange"
    homes.mkdir()
    # All servers run as one account here, as in a container image, where nbgrader asks JupyterHub
    # for the name; so the account must seem to be called what it is called there.
    site = tmp_path / "site"
    site.mkdir()
    (site / "nbgrader_config.py").write_text(
        "import nbgrader.utils\nnbgrader.utils.get_osusername = lambda: 'jovyan'\n"
        f"load_subconfig({str(ROOT / 'grader/hub/learner/nbgrader_config.py')!r})\n"
    )
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"load_subconfig({str(ROOT / 'grader/hub/jupyterhub_config.py')!r})\n"
        "c = get_config()\n"
        "c.JupyterHub.authenticator_class = 'dummy'\n"
        "c.DummyAuthenticator.password = 'let me in'\n"
        "c.JupyterHub.spawner_class = 'simple'\n"
        f"c.SimpleLocalProcessSpawner.home_dir_template = {str(homes / '{username}')!r}\n"
        f"c.JupyterHub.bind_url = 'http://127.0.0.1:{public}'\n"
        f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{api}'\n"
        f"c.JupyterHub.hub_bind_url = 'http://127.0.0.1:{inner}'\n"
        f"c.Spawner.environment['JUPYTER_CONFIG_PATH'] = {str(site)!r} + ':' + "
        "c.Spawner.environment['JUPYTER_CONFIG_PATH']\n"
        "c.Spawner.args = ['--allow-root']\n"
    )
    environment = {**os.environ, "COURSE_EXCHANGE": str(exchange), "PYTHONPATH": str(ROOT)}
    log = (tmp_path / "hub.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterhub", "-f", str(config)],
        cwd=tmp_path,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{public}"
    try:
        until = time.monotonic() + 180
        while not _answers(f"{address}/hub/login"):
            told = (tmp_path / "hub.log").read_text()[-3000:]
            assert process.poll() is None and time.monotonic() < until, told
            time.sleep(0.3)
        yield Hub(address, exchange, homes)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


class Learner:
    """Somebody in a browser."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name
        self.session = requests.Session()
        self.base = f"{hub.address}/user/{name}"

    def log_in(self, password: str) -> requests.Response:
        form = self.session.get(f"{self.hub.address}/hub/login", timeout=60)
        token = re.search(r'name="_xsrf" value="([^"]+)"', form.text)
        assert token
        data = {"username": self.name, "password": password, "_xsrf": token.group(1)}
        return self.session.post(f"{self.hub.address}/hub/login", data=data, timeout=120)

    def wait_for_lab(self) -> str:
        until = time.monotonic() + 180
        while time.monotonic() < until:
            page = self.session.get(f"{self.base}/lab", timeout=120)
            if page.ok and page.url.startswith(self.base) and "jupyter-config-data" in page.text:
                return page.text
            time.sleep(0.5)
        raise AssertionError(f"no JupyterLab: {page.status_code} {page.url}")

    def act(self, action: str, slug: str) -> Any:
        """Press a button of the Assignments tab."""
        cookies = [k for k in self.session.cookies if k.name == "_xsrf"]
        token = max(cookies, key=lambda cookie: len(cookie.path or "")).value
        answer = self.session.post(
            f"{self.base}/assignments/{action}",
            data={"course_id": COURSE, "assignment_id": slug},
            headers={"X-XSRFToken": str(token)},
            timeout=120,
        )
        assert answer.ok, answer.text
        return answer.json()


def test_log_in_fetch_submit_collect_and_grade(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_SEED", "7")
    root = make_course(tmp_path / "course")
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.Exchange.root = {str(hub.exchange)!r}\n")
    instructor = NbGraderAPI(config=Course(root).config)

    def succeed(told: dict[str, Any]) -> None:
        assert told["success"], told.get("error") or told.get("log")

    succeed(instructor.generate_assignment(DAY1, force=True))
    succeed(instructor.release_assignment(DAY1))

    ada = Learner(hub, "ada")
    assert ada.log_in("guessed").status_code == 403
    ada.log_in("let me in")
    page = ada.wait_for_lab()
    settings = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.S)[1])
    disabled = json.dumps(settings.get("disabledExtensions"))
    assert "formgrader" in disabled and "create-assignment" in disabled

    told = ada.act("fetch", DAY1)
    assert told["success"], told
    lab = hub.homes / "ada" / DAY1 / f"{DAY1}.ipynb"
    assert json.loads(lab.read_text()) == json.loads(
        (root / "labs" / DAY1 / f"{DAY1}.ipynb").read_text()
    )
    lab.write_text(text_of(solved()))
    told = ada.act("submit", DAY1)
    assert told["success"], told

    succeed(instructor.collect(DAY1))
    assert main(["autograde", "--course", str(root), "--jobs", "1"]) == 0
    assert [mark.passed for mark in record(root, "ada").marks] == [True, True]
