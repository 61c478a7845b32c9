"""What every test file may use: where things lie, and settings that make runs repeatable."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# A person's own gateway and key never meet a test.
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
    os.environ.pop(name, None)

# No deadline: a slow moment of the machine is not a fault of the code. In continuous
# integration the same examples are drawn every time; at home, new ones.
settings.register_profile("home", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("home"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds pyproject.toml."""
    return REPOSITORY


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of published cases (JSON files)."""
    return REPOSITORY / "tests" / "cases"
