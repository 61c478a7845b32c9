"""The house itself: dependencies agree everywhere, the README tells the truth, nothing leaks."""

import contextlib
import fnmatch
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT_FILE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PROJECT_FILE["project"]
SETUPTOOLS = PROJECT_FILE["tool"]["setuptools"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")

PYTHONS = [
    found[1]
    for text in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text))
]
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "win32": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


def marker_environment(python: str, platform: str) -> dict[str, str]:
    """Return what a marker of a requirement may ask about, on that Python and system."""
    return {
        "implementation_name": "cpython",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "python_full_version": f"{python}.9",
        "python_version": python,
        "extra": "",
        **PLATFORMS[platform],
    }


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


def command_lines(language: str) -> list[str]:
    """Return the lines of the README's code blocks in one language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


# --- dependencies -----------------------------------------------------------------------


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    for text in itertools.chain(PROJECT["dependencies"], *EXTRAS.values()):
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            continue
        kinds = {specifier.operator for specifier in requirement.specifier}
        assert kinds in ({">=", "<"}, {"=="}), text


def test_the_extra_all_holds_every_other_extra() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.name == PROJECT["name"]
    assert everything.extras == set(EXTRAS) - {"all"}


def test_conda_environment_repeats_the_project() -> None:
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == PROJECT["name"]
    *conda, by_pip = environment["dependencies"]
    assert by_pip["pip"] == ["-c constraints.txt", *PROJECT["dependencies"], "-e ."]
    (python,) = (text for text in conda if text.startswith("python "))
    bounds = SpecifierSet(python.removeprefix("python "))
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}.5" in bounds] == PYTHONS


def test_python_versions_agree() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    assert sorted(PYTHONS, key=lambda text: int(text.split(".")[1])) == PYTHONS
    assert f"{PYTHONS[0]}.0" in supported
    assert f"3.{int(PYTHONS[0].split('.')[1]) - 1}.99" not in supported
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in README
    target = PROJECT_FILE["tool"]["ruff"]["target-version"]
    assert target == "py" + PYTHONS[0].replace(".", "")


def pins() -> list[Requirement]:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def pins_for(environment: dict[str, str]) -> dict[str, str]:
    """Return name -> version in force there; a name pinned twice is an error."""
    versions: dict[str, str] = {}
    for pin in pins():
        if not applies(pin, environment):
            continue
        (specifier,) = pin.specifier
        name = canonicalize_name(pin.name)
        assert name not in versions, f"{name} is pinned twice"
        versions[name] = specifier.version
    return versions


def test_constraints_hold_exact_versions_and_no_address() -> None:
    text = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    assert "make constraints" in text
    assert "://" not in text
    assert not re.search(r"^\s*-", text, flags=re.MULTILINE), "an option of pip"
    for pin in pins():
        assert pin.url is None
        assert [specifier.operator for specifier in pin.specifier] == ["=="], str(pin)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_constraints_satisfy_every_bound(python: str, platform: str) -> None:
    environment = marker_environment(python, platform)
    versions = pins_for(environment)
    for text in itertools.chain(PROJECT["dependencies"], *EXTRAS.values()):
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"] or not applies(requirement, environment):
            continue
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, text


def installed_requirements() -> Iterator[tuple[str, Requirement]]:
    """Walk from the project's own list through all that is installed here: (by whom, what)."""
    waiting = [
        (PROJECT["name"], Requirement(text))
        for text in itertools.chain(PROJECT["dependencies"], *EXTRAS.values())
    ]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted_by, requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == PROJECT["name"]:
            continue
        yield wanted_by, requirement
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not here
        for extra in requirement.extras | {""}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in distribution.requires or []:
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    waiting.append((name, further))


def test_constraints_cover_what_dependencies_need_in_turn() -> None:
    here = dict(marker_environment(f"3.{sys.version_info.minor}", sys.platform))
    here["python_full_version"] = sys.version.split()[0]
    versions = pins_for(here)
    walked = list(installed_requirements())
    assert len({requirement.name for _, requirement in walked}) > 50
    for wanted_by, requirement in walked:
        assert canonicalize_name(requirement.name) in versions, f"{requirement} ({wanted_by})"


def test_this_environment_has_the_versions_written_down() -> None:
    if not Path(sys.prefix).is_relative_to(REPOSITORY):
        pytest.skip("not the environment that make builds")
    here = dict(marker_environment(f"3.{sys.version_info.minor}", sys.platform))
    here["python_full_version"] = sys.version.split()[0]
    versions = pins_for(here)
    for _, requirement in installed_requirements():
        name = canonicalize_name(requirement.name)
        with contextlib.suppress(metadata.PackageNotFoundError):
            assert metadata.version(name) == versions[name], name


# --- packages ---------------------------------------------------------------------------


def test_a_wheel_holds_every_module_and_all_data(tmp_path: Path) -> None:
    """What is installed without a clone is the same as in it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in ("compaction", "grader"):
        folder = REPOSITORY / SETUPTOOLS["package-dir"][package]
        tracked = subprocess.run(
            ["git", "ls-files"], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.splitlines()
        missing = {f"{package}/{name}" for name in tracked if name.endswith(".py")} - packed
        missing = {name for name in missing if not name.endswith("_config.py")}
        assert not missing
        assert f"{package}/py.typed" in packed


def test_data_files_of_the_library_are_packed() -> None:
    folder = REPOSITORY / SETUPTOOLS["package-dir"]["compaction"]
    globs = SETUPTOOLS["package-data"]["compaction"]
    data = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert "py.typed" in data
    for name in data:
        assert any(fnmatch.fnmatch(name, glob) for glob in globs), name


def test_licences_are_named_and_there() -> None:
    assert PROJECT["license"] == "MIT AND CC-BY-4.0"
    texts = [(REPOSITORY / name).read_text(encoding="utf-8") for name in PROJECT["license-files"]]
    assert texts[0].startswith("MIT License\n")
    assert "Creative Commons Attribution 4.0 International" in texts[1]
    for name in PROJECT["license-files"]:
        assert f"({name})" in README


# --- what the README says ---------------------------------------------------------------


def make_words() -> set[str]:
    return set(re.findall(r"^([a-z]+):(?!=)", MAKEFILE, flags=re.MULTILINE))


def test_make_words_in_the_readme_exist() -> None:
    named = {line.split()[1] for line in command_lines("sh") if line.startswith("make ")}
    named |= set(re.findall(r"`(?:[A-Z_]+=\S+ )?make ([a-z]+)", README))
    assert {"lab", "selftest", "test"} <= named
    assert named <= make_words()


def test_make_words_are_explained() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE)
    assert set(phony.split()) == make_words()
    assert {"lab", "test", "selftest", "build"} <= make_words()
    explained = set(re.findall(r"^([a-z]+):.* ## \S", MAKEFILE, flags=re.MULTILINE))
    assert explained == make_words()


def readme_commands() -> list[str]:
    """Return every `python -m compaction|grader WORD` that the README names."""
    return sorted(set(re.findall(r"python -m ((?:compaction|grader) [a-z]+)", README)))


@pytest.mark.parametrize("command", readme_commands())
def test_commands_in_the_readme_exist(command: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", *command.split(), "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert command.split()[1] in answer.stdout


def test_flags_in_the_readme_exist() -> None:
    for line in command_lines("sh"):
        words = line.split()
        if words[:2] != ["python", "-m"] or words[2] not in ("compaction", "grader"):
            continue
        flags = [word for word in words if word.startswith("--")]
        helped = [sys.executable, *words[1:4], "--help"]
        answer = subprocess.run(
            helped, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
        )
        for flag in flags:
            assert flag in answer.stdout, line


def test_links_in_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert len(links) > 10
    headings = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", README, flags=re.MULTILINE)
    }
    for link in links:
        if link.startswith("#"):
            assert link[1:] in headings, link
        elif not link.startswith("https://"):
            assert (REPOSITORY / link).is_file(), link


def test_the_day_table_has_eight_rows() -> None:
    rows = re.findall(r"^\| (\d) \| \[.+?\]\(course/day(\d)_(\w+)\.ipynb\)", README, re.MULTILINE)
    assert [int(day) for day, _, _ in rows] == list(range(1, 9))
    for day, again, verb in rows:
        assert day == again
        assert (REPOSITORY / "solutions" / f"day{day}_{verb}").is_dir()


def test_python_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful engineer."},
        {"role": "user", "content": "remember: the build command is `pnpm build:calc`. Go on."},
    ]
    for turn in range(60):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"part{turn}.py"})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        text = "the limit is checked here\n" * 300
        messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": text},
        ]
    messages.append({"role": "assistant", "content": "All parts are read."})
    (tmp_path / "history.json").write_text(json.dumps(messages), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec("\n".join(command_lines("python")), {"__name__": "readme"})
    size, *table, after, lost = printed.getvalue().splitlines()
    assert "at most" in size and "no usage seen yet" in size
    assert len(table) == 7
    assert [row.split()[0:2] for row in table if row.endswith("over")] == [["tool", "results"]]
    assert after.endswith("compacted")
    before_tokens, after_tokens = map(int, re.findall(r"\d+", after))
    assert after_tokens < before_tokens / 2
    assert lost.startswith("lost: [] given up: ")


# --- what make does ---------------------------------------------------------------------

needs_make = pytest.mark.skipif(
    os.name == "nt" or shutil.which("make") is None, reason="there is no make here"
)


def fresh_environment(**settings: str) -> dict[str, str]:
    """Return this process's environment without what a make that runs the tests left in it."""
    ours = {"EXTRAS", "LAB_ARGS", "PYTHON", "TEST_ARGS", "VENV", "WHERE", "MFLAGS"}
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("MAKE")}
    return kept | settings


def run_make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=REPOSITORY,
        env=fresh_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@needs_make
def test_make_installs_extras_in_the_tested_versions() -> None:
    lines = run_make("-n", "test", "VENV=nowhere", "EXTRAS=tokenizers,browser").stdout
    assert "install --quiet -c constraints.txt -e '.[browser,test,tokenizers]'" in lines
    assert "touch nowhere/.ready-browser+test+tokenizers" in lines


@needs_make
def test_make_says_in_one_line_that_python_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    program = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{program}' \"$2\"\n")
    old.chmod(0o755)
    answer = run_make("lab", f"VENV={tmp_path / 'env'}", f"PYTHON={old}")
    assert answer.returncode != 0
    said, make_itself = answer.stderr.splitlines()
    assert said.startswith(f"{old} is Python 3.9; the course needs 3.11 or newer.")
    assert make_itself.startswith("make: ***")
    assert not (tmp_path / "env").exists()


@needs_make
def test_make_says_that_there_is_no_such_python(tmp_path: Path) -> None:
    answer = run_make("lab", f"VENV={tmp_path / 'env'}", "PYTHON=no-such-python")
    assert answer.returncode != 0
    assert answer.stderr.startswith("There is no no-such-python here. Install Python 3.11")


@needs_make
@pytest.mark.slow
def test_make_lab_lays_a_workbook_and_prints_an_address(tmp_path: Path) -> None:
    git("status")
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(clone)], check=True, timeout=60)
    # This environment stands in for the clone's: -o tells make that it is ready.
    ready = f"{sys.prefix}/.ready"
    command = ["make", "-o", ready, "lab", f"VENV={sys.prefix}", "LAB_ARGS=--port=0"]
    log = tmp_path / "log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            command,
            cwd=clone,
            env=fresh_environment(BROWSER="none"),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        address = None
        give_up = time.monotonic() + 400  # on a machine that is busy
        while address is None and time.monotonic() < give_up and server.poll() is None:
            time.sleep(0.2)
            address = re.search(r"http://\S+/lab/workspaces/\w+\?token=\w+", log.read_text())
        assert address, log.read_text()
        token_url = re.sub(r"/lab/workspaces/\w+", "/api/contents/workbook", address[0])
        with urllib.request.urlopen(token_url, timeout=30) as answer:
            names = {item["name"] for item in json.load(answer)["content"]}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)
    assert {path.name for path in (clone / "labs").iterdir() if path.is_dir()} <= names
    assert {"start_here.ipynb", "lessons"} <= names
    # Run and saved, every notebook that was laid is changed, and nothing tracked is.
    laid = list((clone / "workbook").rglob("*.ipynb"))
    assert len(laid) >= 2 * 8 + 1
    for path in laid:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["execution_count"] = 1
        path.write_text(json.dumps(notebook), encoding="utf-8")
    status = ["git", "-C", str(clone), "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""


# --- continuous integration -------------------------------------------------------------


def test_workflow_tests_three_systems_and_the_oldest_and_newest_python() -> None:
    path = REPOSITORY / ".github" / "workflows" / "ci.yml"
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    systems = {name.split("-")[0] for name in matrix["os"]}
    assert systems == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [PYTHONS[0], PYTHONS[-1]]
    commands = "\n".join(step.get("run", "") for step in workflow["jobs"]["test"]["steps"])
    assert "make test" in commands
    for line in command_lines("bat"):
        if "install" in line:  # with the extra test, which a learner does not need
            line = line.replace("-e .", '-e ".[test]"')
        if "install" in line or "selftest" in line:
            assert line in commands


def test_ci_runs_the_test_command_of_the_readme() -> None:
    path = REPOSITORY / ".ci" / "run"
    script = path.read_text(encoding="utf-8")
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script
    assert re.search(r"^make test EXTRAS=all$", script, flags=re.MULTILINE)
    assert "make test EXTRAS=all" in README
    if os.name != "nt":
        assert os.access(path, os.X_OK)


def test_launch_files_start_the_same_course() -> None:
    binder = REPOSITORY / ".binder"
    environment = yaml.safe_load((binder / "environment.yml").read_text(encoding="utf-8"))
    assert environment["dependencies"] == ["python=3.12", "pip"]  # repo2docker reads this form
    install = "pip install --no-cache-dir --quiet -c constraints.txt -e ."
    script = (binder / "postBuild").read_text(encoding="utf-8")
    assert install in script and "python -m grader workbook" in script
    if os.name != "nt":
        assert os.access(binder / "postBuild", os.X_OK)
    container = REPOSITORY / ".devcontainer"
    told = json.loads((container / "devcontainer.json").read_text(encoding="utf-8"))
    assert (container / told["build"]["dockerfile"]).is_file()
    words = {line.split(":")[0] for line in MAKEFILE.splitlines() if "## " in line}
    for command in (told["postCreateCommand"], told["postAttachCommand"]):
        assert command.split("make ")[1].split()[0] in words


# --- nothing of one person's machine ----------------------------------------------------


def git(*arguments: str) -> str:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git clone")
    answer = subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return answer.stdout


def committed_texts() -> Iterator[tuple[str, str]]:
    for name in git("ls-files").splitlines():
        path = REPOSITORY / name
        if path.is_file():
            with contextlib.suppress(UnicodeDecodeError):
                yield name, path.read_text(encoding="utf-8")


# Hosts of package registries: a clone elsewhere must install from wherever it is told to.
REGISTRIES = re.compile(
    r"pypi\.(org|python)|pythonhosted\.|npmjs\.(org|com)|yarnpkg\.com"
    r"|(deb|security|ftp)\.debian\.|archive\.ubuntu\.|anaconda\.(org|com)|proxy\.golang\."
    r"|--(extra-)?index-url|--(find-links|trusted-host)\b"
)
# Folders of one machine, and what a notebook leaves of the kernel that ran it.
MACHINE = re.compile(
    r"(?<![\w.~-])/(root|work|home/\w+/\.\w+|Users/\w+)/\w"
    r"|[A-Z]:\\{1,2}Users\\|ipykernel_\d|/site-packages/\w"
)


def configured_hosts() -> set[str]:
    """Return the hosts of the registries that pip uses here, whatever they are."""
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    return set(re.findall(r"https?://(?:[^@/\s']*@)?([\w.-]+\.[a-z]+)", answer.stdout))


def test_patterns_find_what_they_are_for() -> None:
    for text in ("https://pypi" + ".org/simple", "--index" + "-url x", "registry.npmjs" + ".org"):
        assert REGISTRIES.search(text), text
    for text in (
        "/roo" + "t/x",
        "/Users/" + "ada/x",
        "C:\\Users" + "\\x",
        "ipykernel" + "_12/3.py",
    ):
        assert MACHINE.search(text), text


def test_committed_files_name_no_registry_and_no_folder_of_a_machine() -> None:
    own = [REPOSITORY, Path.home(), Path(sys.prefix)]
    forbidden = [str(folder) + os.sep for folder in own if len(folder.parts) > 2]
    forbidden += sorted(configured_hosts())
    names = []
    for name, text in committed_texts():
        names.append(name)
        for pattern in (REGISTRIES, MACHINE):
            found = pattern.search(text)
            assert found is None, f"{name}: {text[found.start() : found.start() + 60]!r}"
        for word in forbidden:
            assert word not in text, f"{name} names {word}"
    assert "README.md" in names


def test_git_ignores_what_belongs_to_a_person_or_a_class() -> None:
    git("status")
    ignored = [
        "workbook/day1_estimate/x.ipynb",
        "grader/classroom/gradebook.db",
        ".venv/bin/python",
    ]
    kept = ["labs/day1_estimate/day1_estimate.ipynb", "course/compaction/data/x.json"]
    assert git("check-ignore", "--no-index", *ignored, *kept).splitlines() == ignored
