"""Shell commands: which of their simple commands change something, and what they change.

From the text of a command line to its changing steps. Nothing is run; what cannot be told from
the words alone (a script's own effect) does not count as a change.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Step:
    """A simple command that changes something: its text, its objects, and whether it is last."""

    text: str
    objects: tuple[str, ...]
    is_last: bool = True


_HEREDOC = re.compile(
    r"<<-?\s*(['\"]?)(\w+)\1(?P<rest>[^\n]*)\n(?P<body>.*?)(?:\n\s*\2\b|\Z)", re.S
)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete|Move) (?:File|to): *(\S.*?)\s*$", re.MULTILINE)
_WRITTEN_BY_SCRIPT = re.compile(
    r"""open\(\s*f?r?['"]([^'"]+)['"]\s*,\s*['"][wax]|Path\(\s*['"]([^'"]+)['"]\s*\)\.write_"""
)
_WORTH_A_LOOK = re.compile(
    r">|\b(?:tee|sed|perl|git|gh|rm|rmdir|mv|cp|ln|mkdir|touch|chmod|chown|truncate|patch|dd|tar|unzip"
    r"|apply_patch|applypatch|pip3?|pipx|uv|npm|pnpm|yarn|npx|bun|apt|apt-get|apk|dnf|yum|brew|conda"
    r"|mamba|cargo|poetry|gem|go|composer|kubectl|helm|terraform|docker|podman|docker-compose"
    r"|systemctl|service|curl|wget|psql|mysql|sqlite3|redis-cli|crontab|rsync|scp|aws|gcloud|az"
    r"|alembic|make|python3?|node)\b"
)
_ALWAYS = frozenset(
    "rm rmdir mv cp ln mkdir touch chmod chown truncate apply_patch applypatch patch unzip"
    " scp rsync tee dd".split()
)
_VERBS = {
    "git": "commit push merge rebase reset revert tag rm mv cherry-pick am apply init clone pull"
    " checkout restore switch stash branch",
    "gh": "create merge close comment edit delete reopen review",
    "kubectl": "apply create delete patch scale rollout set edit replace label annotate drain"
    " cordon uncordon expose run",
    "helm": "install upgrade uninstall rollback",
    "terraform": "apply destroy import",
    "docker": "run build push rm rmi start stop restart kill pull compose up down tag",
    "systemctl": "start stop restart reload enable disable mask unmask",
    "service": "start stop restart reload",
    "go": "get install",
    "cargo": "add install remove publish",
    "uv": "add remove sync install",
    "alembic": "upgrade downgrade revision stamp",
    "make": "install deploy release publish",
    "aws": "cp mv rm sync",
    "tar": "x -x xf xzf -xf -xzf xvf -xvf -xzvf xzvf --extract",
}
_VERBS["podman"] = _VERBS["docker-compose"] = _VERBS["docker"]
_PACKAGE_VERBS = "install add remove uninstall upgrade update i ci publish rm"
for (
    _tool
) in "pip pip3 pipx npm pnpm yarn bun apt apt-get apk dnf yum brew conda mamba poetry gem".split():
    _VERBS[_tool] = _PACKAGE_VERBS
_VERBS_OF = {tool: frozenset(verbs.split()) for tool, verbs in _VERBS.items()}
_ONLY_LOOKS = {
    # git subcommands that change only with further words
    "branch": lambda words: not any(w for w in words if not w.startswith("-")) or "--list" in words,
    "tag": lambda words: not any(w for w in words if not w.startswith("-")) or "-l" in words,
    "stash": lambda words: bool({"list", "show"} & set(words)),
    "rollout": lambda words: bool({"status", "history"} & set(words)),
    "compose": lambda words: bool({"ps", "logs", "config"} & set(words)),
}
_DRY = frozenset(("--dry-run", "--dry-run=client", "--dry-run=server", "--check", "--help"))
_WRAPPERS = frozenset("sudo env time nohup xargs exec command then do else nice".split())
_SQL_CHANGE = re.compile(
    r"\b(?:insert\s+into|update\s+\S+\s+set|delete\s+from|alter\s+table|create\s+\w+|drop\s+\w+)\b",
    re.IGNORECASE,
)
_SEPARATORS = frozenset(("&&", "||", ";", "|", "&", "|&", "\n"))
_SAFE_TARGETS = re.compile(r"^(?:/dev/\w+|&\d|\d)$")
_MAX_WORDS = 4000


def changing_steps(command: str) -> list[Step]:
    """Return the steps of a command line that change something.

    >>> [step.text for step in changing_steps("cd app && grep -rn x . && git commit -qam done")]
    ['git commit -qam done']
    >>> changing_steps("cat > a.cfg <<'EOF'\\nx = 1\\nEOF")[0].objects
    ('a.cfg',)
    >>> changing_steps("sed -n 1,40p a.cfg | head -5 2>/dev/null")
    []
    """
    if not _WORTH_A_LOOK.search(command):
        return []
    bodies: list[str] = []

    def take_body(match: re.Match[str]) -> str:
        bodies.append(match["body"])
        return f"{match['rest']}\n"

    bare = _HEREDOC.sub(take_body, command)
    patched = tuple(path for text in (bodies or [command]) for path in _PATCHED.findall(text))
    simple = _simple_commands(bare)
    steps = []
    for number, words in enumerate(simple):
        objects = _changed_by(words, bodies, patched)
        if objects is not None:
            text = " ".join(words) if not patched else " ".join([words[0], *patched])
            steps.append(Step(text, objects, number == len(simple) - 1))
    return steps


def _simple_commands(text: str) -> list[list[str]]:
    """Split a command line into its simple commands, each a list of words without quotes."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for number, word in enumerate(lexer):
            if number > _MAX_WORDS:
                break
            if word in _SEPARATORS:
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # an open quote: what was read so far counts
        pass
    return [words for command in commands if (words := _without_wrappers(command))]


def _without_wrappers(words: list[str]) -> list[str]:
    while words and (words[0] in _WRAPPERS or re.match(r"^\w+=", words[0]) or words[0] in "({!"):
        words = words[1:]
    return words


def _changed_by(
    words: list[str], bodies: list[str], patched: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return what a simple command changes (perhaps nothing with a name), None when nothing."""
    name = words[0].rpartition("/")[2]
    rest = words[1:]
    if _DRY & set(rest):
        return None
    written = _redirected(words)
    plain = [w for w in rest if not w.startswith("-") and not set(w) <= set("<>&")]
    if name in ("apply_patch", "applypatch"):
        return patched or tuple(plain[:1])
    if name in ("python", "python3", "node"):
        script = "\n".join([*bodies, *rest])
        found = [a or b for a, b in _WRITTEN_BY_SCRIPT.findall(script)]
        if {"-m", "pip", "install"} <= set(rest):
            return tuple(plain[2:])
        return tuple(dict.fromkeys(found)) or written or None
    if name in ("sed", "perl"):
        in_place = any(re.match(r"^-\w*i|^--in-place", w) for w in rest)
        return tuple(plain[1:] or plain) if in_place else (written or None)
    if name == "dd":
        return tuple(w for w in rest if w.startswith("of=")) or None
    if name in _ALWAYS:
        return tuple(plain)
    if name in ("curl", "wget"):
        is_sent = any(w in ("POST", "PUT", "PATCH", "DELETE") or w == "--post-data" for w in rest)
        is_sent = is_sent or any(w in ("-d", "--data", "--json", "-F") for w in rest)
        saved = [rest[n + 1] for n, w in enumerate(rest[:-1]) if w in ("-o", "-O", "--output")]
        addresses = tuple(word for word in plain if "://" in word or "/" in word)
        return addresses[:1] if is_sent else (tuple(saved) or written or None)
    if name in ("psql", "mysql", "sqlite3"):
        return tuple(plain[:1]) if _SQL_CHANGE.search(" ".join([*rest, *bodies])) else None
    verbs = _VERBS_OF.get(name)
    if verbs:
        verb = next((w for w in rest if w in verbs), None)
        if verb and not (verb in _ONLY_LOOKS and _ONLY_LOOKS[verb](rest[rest.index(verb) + 1 :])):
            return tuple(plain[1:])
    return written or None


def _redirected(words: list[str]) -> tuple[str, ...]:
    """Return the files that a simple command's output is written to."""
    return tuple(
        target
        for sign, target in pairwise(words)
        if sign in (">", ">>", ">|", "&>") and not _SAFE_TARGETS.match(target)
    )
