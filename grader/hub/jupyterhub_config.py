"""JupyterHub for this course on one machine: an example that works, to be adapted.

    make hub
    sudo .venv/bin/jupyterhub -f grader/hub/jupyterhub_config.py

Learners log in with the machine's accounts, fetch and submit through nbgrader's exchange, a
folder that all may write to. The instructor grades in a clone of this repository that learners
cannot read. A web server in front of it (nginx, Caddy) adds TLS: never offer this port itself.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(sys.executable).parent
EXCHANGE = Path(os.environ.get("COURSE_EXCHANGE", "/srv/nbgrader/exchange"))
INSTRUCTORS = set(os.environ.get("COURSE_INSTRUCTORS", "instructor").split(","))

c = get_config()  # type: ignore[name-defined]  # noqa: F821

# Who may come in: accounts of this machine. With "generic-oauth" (package oauthenticator), your
# university's own login; see JupyterHub's documentation.
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = INSTRUCTORS

# Where it listens: on this machine only, for the web server in front of it.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.ConfigurableHTTPProxy.command = [str(PROGRAMS / "configurable-http-proxy")]

# What each learner gets: JupyterLab, nbgrader's settings for learners, one core, 1 GB. The
# limits are requests to the spawner: systemd, Docker and Kubernetes enforce them, plain local
# processes do not.
c.Spawner.cmd = [str(PROGRAMS / "jupyterhub-singleuser")]
c.Spawner.default_url = "/lab"
c.Spawner.cpu_limit = 1
c.Spawner.mem_limit = "1G"
c.Spawner.http_timeout = 120
c.Spawner.start_timeout = 120
c.Spawner.environment = {
    "COURSE_EXCHANGE": str(EXCHANGE),
    "JUPYTER_CONFIG_PATH": str(HERE / "learner"),
}

# The exchange: everybody hands in there, so everybody may write there. nbgrader lays what is
# handed in where only its owner and the instructor can read it.
if not EXCHANGE.is_dir():
    EXCHANGE.mkdir(parents=True)
    EXCHANGE.chmod(0o777)
