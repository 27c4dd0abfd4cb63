"""Finds checks in lit tests that would never run: ``python -m vllm_ir.tools.filecheck_lint [file or folder ...]``.

The Python filecheck looks for the directives that it knows and takes every other line for a comment. A misspelt
``CHECK-NXT:``, a prefix that no ``RUN`` line asks for or a missing colon therefore turns a check off without a word.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SUFFIXES = (".mlir", ".lit")

# Upper-case words before a colon that mean something to lit or to people, not to filecheck.
OTHER_KEYWORDS = frozenset(
    ("RUN", "DEFINE", "REDEFINE", "REQUIRES", "UNSUPPORTED", "XFAIL", "ALLOW_RETRIES", "END", "COM", "NOTE", "TODO")
)
# Commands and options whose exit status is a verdict by itself, without filecheck.
VERDICT_WORDS = frozenset(("not", "diff", "cmp", "--verify-diagnostics", "--validate"))

_RUN = re.compile(r"\bRUN:\s*(.*)")
_COMMENT = re.compile(r"(?://|#)\s*(?=\w)")
_LABEL = re.compile(r"(?P<word>[A-Z][A-Z0-9_]*(?:-[A-Za-z0-9_]+)*)(?:\{LITERAL\})?\s*:")
_SUFFIX = r"(?:-(?:DAG|COUNT-\d+|NOT|EMPTY|NEXT|SAME|LABEL))?(?:\{LITERAL\})?:"


@dataclass(frozen=True)
class Problem:
    """One finding: the 1-based line it is on and a sentence that says what is wrong."""

    line: int
    message: str


def run_commands(text: str) -> list[tuple[int, str]]:
    """The commands of the ``RUN`` lines of ``text``, each with its first line; trailing backslashes join lines."""
    commands: list[tuple[int, str]] = []
    start, pending = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _RUN.search(line)
        if found is None:
            continue
        start = start if pending else number
        pending += found.group(1).strip()
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
        else:
            commands.append((start, pending))
            pending = ""
    if pending:
        commands.append((start, pending))
    return commands


def _words(command: str) -> list[str]:
    """Shell words of ``command``, with pipes and separators as words of their own."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _prefixes(words: list[str]) -> Iterator[list[str]]:
    """For each use of filecheck among ``words``, the prefixes that it is given (``CHECK`` if none)."""
    for position, word in enumerate(words):
        if Path(word).name.lower() != "filecheck":
            continue
        arguments: list[str] = []
        for argument in words[position + 1 :]:
            if argument in {"|", "||", "&&", ";", ">", "<", "&"}:
                break
            arguments.extend(argument.split("=", 1) if argument.startswith("-") else [argument])
        given: list[str] = []
        for option, value in pairwise(arguments):
            if option.lstrip("-") in {"check-prefix", "check-prefixes"}:
                given.extend(value.split(","))
        yield given or ["CHECK"]


def _looks_meant_for(prefix: str, comment: str) -> bool:
    """Whether ``comment`` begins like a directive of ``prefix``: exactly so, or in any case with a colon after it."""
    if re.match(rf"{re.escape(prefix)}(?![A-Za-z0-9])", comment):
        return True
    return re.match(rf"{re.escape(prefix)}[-_ ]?\w*\s*:", comment, re.IGNORECASE) is not None


def _line_problems(text: str, prefixes: set[str], used: set[str]) -> Iterator[Problem]:
    """Problems of single lines; adds the prefixes of well-formed directives to ``used``."""
    alternatives = "|".join(sorted(map(re.escape, prefixes), key=len, reverse=True)) or r"(?!)"
    directive = re.compile(rf"(?:^|[^a-zA-Z\-_])(?P<prefix>{alternatives}){_SUFFIX}")
    for number, line in enumerate(text.splitlines(), 1):
        if _RUN.search(line):
            continue
        found = directive.search(line)
        if found is not None:
            used.add(found.group("prefix"))
            continue
        for opening in _COMMENT.finditer(line):
            comment = line[opening.end() :]
            label = _LABEL.match(comment)
            unknown = label is not None and label.group("word") not in OTHER_KEYWORDS
            if unknown or any(_looks_meant_for(prefix, comment) for prefix in prefixes):
                known = ", ".join(sorted(prefixes)) or "none"
                yield Problem(number, f"`{comment.strip()}` is not a directive (prefixes of the RUN lines: {known})")
                break


def lint_text(text: str) -> list[Problem]:
    """Problems of one test file: lines that only look like directives, prefixes without any, nothing run or checked."""
    commands = run_commands(text)
    if not commands:
        return [Problem(1, "no RUN line")]
    prefixes: dict[str, int] = {}
    problems: list[Problem] = []
    for number, command in commands:
        words = _words(command)
        uses = list(_prefixes(words))
        for prefix in (prefix for use in uses for prefix in use):
            prefixes.setdefault(prefix, number)
        if not uses and not VERDICT_WORDS.intersection(words) and not _keeps_output(words):
            problems.append(Problem(number, "neither filecheck nor an exit status judges this RUN line"))
    used: set[str] = set()
    problems.extend(_line_problems(text, set(prefixes), used))
    problems.extend(
        Problem(number, f"no directive has the prefix {prefix}")
        for prefix, number in prefixes.items()
        if prefix not in used
    )
    return sorted(problems, key=lambda problem: problem.line)


def _keeps_output(words: list[str]) -> bool:
    """Whether a command writes a file for a later RUN line (``> %t``, ``-o %t``, ``mkdir``...)."""
    return any("%t" in word for word in words)


def lit_tests(paths: Iterable[Path]) -> Iterator[Path]:
    """The lit tests among ``paths`` and in the folders among them."""
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        else:
            yield path


def main(arguments: list[str] | None = None) -> int:
    """Lint the files and folders named (default ``test``), print one line per problem, return 1 if there are any."""
    paths = [Path(argument) for argument in arguments or ["test"]]
    findings = [
        f"{file}:{problem.line}: {problem.message}"
        for file in lit_tests(paths)
        for problem in lint_text(file.read_text(encoding="utf-8"))
    ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
